"""What an experiment runs in its guest: one `Workload` per kind of application."""

from elastio_testbed.workloads.bonnie import Bonnie
from elastio_testbed.workloads.dumps import Dumps
from elastio_testbed.workloads.lammps import Lammps

__all__ = ["Bonnie", "Dumps", "Lammps"]
