"""The experiments that can be run, at their published sizes."""

from __future__ import annotations

from elastio.strategy.credits import TIB
from elastio.units import GB
from elastio_testbed.experiment import ColdVolume, Experiment, Priced, Setup
from elastio_testbed.workloads import Bonnie, Dumps, Lammps

# 0.5 TiB of EBS sc1: 6 MiB/s, and 40 MiB/s with credits. Its bucket is little above what a flush leaves: with a full
# one, no run of this length would have to spare its credits.
SC1 = ColdVolume("sc1", first_share=0.103)
SC1_GB, SC1_BURST_MB_S = TIB / 2 / GB, 41.94304
COLD_PRICES = Priced("sc1", "gp3", most_time_pct=5.0, most_cost_pct=25.0)
# The VM is an m5.2xlarge in us-east-1, on demand.
GP3_PRICES = Priced("gp3", "gp3", most_time_pct=-3.0, most_cost_pct=100.0, vm_hour=0.384)

EXPERIMENTS = {
    # Three dumps a few minutes apart; `make demo` runs it at a scale of 0.1.
    "demo": Experiment("demo", (4.0, 4.0, 4.0), 500.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    "cm1": Experiment("cm1", (5.0, 4.0, 4.0, 4.0), 1100.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    # The same by money, with caches four times as fast as the volume that one would rent for good.
    "cm1-money": Experiment(
        "cm1-money",
        dumps_gb=(5.0, 4.0, 4.0, 4.0),
        compute_s=1100.0,
        backing_gb=50.0,
        backing_mb_s=33.0,
        cache_mb_s=512.0,
        initial_cache_gb=10.0,
        workload=Dumps(),
        setups=(Setup.STATIC_FAST, Setup.ADAPTIVE),
        priced=GP3_PRICES,
        fast_mb_s=128.0,
    ),
    "lammps": Experiment("lammps", (4.0, 3.0, 3.0, 3.0), 1380.0, 50.0, 33.0, 128.0, 10.0, Lammps()),
    # The dumps and pauses of `lammps` without computing, which measures storage only, as `cm1` does.
    "lammps-like": Experiment("lammps-like", (4.0, 3.0, 3.0, 3.0), 1380.0, 50.0, 33.0, 128.0, 10.0, Dumps()),
    # A dump every quarter of an hour, with the data on a cold volume.
    "cold": Experiment(
        "cold",
        dumps_gb=(4.0,) * 24,
        compute_s=23 * 900.0,
        backing_gb=SC1_GB,
        backing_mb_s=SC1_BURST_MB_S,
        cache_mb_s=128.0,
        initial_cache_gb=10.0,
        workload=Dumps(),
        setups=(Setup.STATIC_FAST, Setup.ADAPTIVE),
        cold=SC1,
        priced=COLD_PRICES,
        default_scale=0.1,  # at 1 it takes six hours for each set-up
    ),
    # Three runs with two pauses of 120 s. A file is twice the memory of the published VM, the default of Bonnie++.
    "bonnie": Experiment("bonnie", (4.0, 4.0, 4.0), 240.0, 10.0, 60.0, 128.0, 10.0, Bonnie()),
}
