from __future__ import annotations

from elastio_testbed.experiment import EXPERIMENTS, Scaled
from elastio_testbed.lvmcache import LvmCache, lvm_commands


def test_each_volume_lies_on_its_own_disk_and_the_fast_one_becomes_the_write_cache() -> None:
    commands = [" ".join(argv) for argv in lvm_commands("/dev/vdb", "/dev/vdc")]
    created = [c for c in commands if c.startswith("lvcreate")]
    assert [c.split()[-1] for c in created] == ["/dev/vdb", "/dev/vdc"]
    assert "--type writecache" in commands[-1]
    assert "--cachevol fast" in commands[-1]
    assert commands[-1].endswith("lab/data")


def test_the_fixed_fast_volume_is_as_large_as_the_first_adaptive_one() -> None:
    scaled = Scaled(EXPERIMENTS["cm1"], 0.25, 0.5)
    assert LvmCache("vm0fast", scaled).size_bytes == round(scaled.initial_cache_gib * 2**30)
