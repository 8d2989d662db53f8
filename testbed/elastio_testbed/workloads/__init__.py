"""What an experiment runs in its guest: one value per kind of application, all behind `Workload`."""

from elastio_testbed.workloads.bonnie import Bonnie
from elastio_testbed.workloads.dumps import Dumps
from elastio_testbed.workloads.kind import Workload
from elastio_testbed.workloads.lammps import Lammps

__all__ = ["Bonnie", "Dumps", "Lammps", "Workload"]
