"""The experiments that can be run, at their published sizes."""

from __future__ import annotations

from elastio_testbed.experiment import Experiment
from elastio_testbed.workloads import Bonnie, Dumps, Lammps

EXPERIMENTS = {
    # Three dumps a few minutes apart; `make demo` runs it at a scale of 0.12.
    "demo": Experiment("demo", (4.0, 4.0, 4.0), 500.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    "cm1": Experiment("cm1", (5.0, 4.0, 4.0, 4.0), 1100.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    "lammps": Experiment("lammps", (4.0, 3.0, 3.0, 3.0), 1380.0, 50.0, 33.0, 128.0, 10.0, Lammps()),
    # The dumps and pauses of `lammps` without computing, which measures storage only, as `cm1` does.
    "lammps-like": Experiment("lammps-like", (4.0, 3.0, 3.0, 3.0), 1380.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    # Three runs with two pauses of 120 s. A file is twice the memory of the published VM, the default of Bonnie++.
    "bonnie": Experiment("bonnie", (4.0, 4.0, 4.0), 240.0, 10.0, 60.0, 128.0, 10.0, Bonnie()),
}
