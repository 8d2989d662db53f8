from __future__ import annotations

from pathlib import Path

import pytest

from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.cli import chosen_setups
from elastio_testbed.experiment import PUBLISHED, Scaled, Setup
from elastio_testbed.image import GuestImage
from elastio_testbed.lvmcache import MAPPED_NAME, lvm_commands
from elastio_testbed.machine import Guest
from elastio_testbed.rates import rates_of
from elastio_testbed.trial import Plan

MIB_SECTORS = 2048


def test_all_means_the_published_set_ups_and_others_are_named_and_run_once() -> None:
    assert chosen_setups(("all",)) == PUBLISHED
    assert chosen_setups(("lvmcache", "all")) == tuple(Setup)
    assert chosen_setups(("all",), EXPERIMENTS["cold"].setups) == (Setup.STATIC_FAST, Setup.ADAPTIVE)
    assert chosen_setups(("adaptive", "adaptive", "static-slow")) == (Setup.STATIC_SLOW, Setup.ADAPTIVE)


@pytest.mark.parametrize("experiment", ["demo", "cm1"])
def test_the_published_set_ups_of_a_simple_workload_need_the_default_image_only(experiment: str) -> None:
    assert not Plan(experiment, PUBLISHED).needs_tools
    assert Plan(experiment, (*PUBLISHED, Setup.LVMCACHE)).needs_tools
    assert Plan("bonnie", PUBLISHED).needs_tools


def test_with_a_write_cache_the_applications_device_is_the_mapped_one() -> None:
    serials = {"vdb": "vm0backing", "vdc": "vm0fast", "dm-1": "lab-data_wcorig", "dm-2": MAPPED_NAME}
    idle = {name: [0, 0] for name in serials}
    busy = {
        "vdb": [0, MIB_SECTORS],
        "vdc": [0, 3 * MIB_SECTORS],
        "dm-1": [0, MIB_SECTORS],
        "dm-2": [0, 2 * MIB_SECTORS],
    }
    lines = [{"t": at, "disks": disks, "serials": serials} for at, disks in ((10.0, idle), (11.0, busy))]
    seen = rates_of(lines, "vm0backing", is_static=False)
    moved = {role: round(points[0][1] * 1e6) for role, points in seen.items()}
    assert moved == {"application": 2 << 20, "backing volume": 1 << 20, "cache volume": 3 << 20}


def test_each_volume_is_on_its_own_disk_and_the_fast_one_becomes_the_write_cache() -> None:
    commands = [" ".join(argv) for argv in lvm_commands("/dev/vdb", "/dev/vdc")]
    created = [c for c in commands if c.startswith("lvcreate")]
    assert [c.split()[-1] for c in created] == ["/dev/vdb", "/dev/vdc"]
    assert "--type writecache" in commands[-1]
    assert "--cachevol fast" in commands[-1]
    assert commands[-1].endswith("lab/data")


def test_the_fixed_fast_volume_is_as_large_as_the_first_adaptive_one(tmp_path: Path) -> None:
    image, scaled = (
        GuestImage(tmp_path, tmp_path, tmp_path, tmp_path, "digest", "bookworm"),
        Scaled(EXPERIMENTS["cm1"], 0.25, 0.5),
    )
    guest = Guest(image, tmp_path, "vm0", Setup.LVMCACHE, scaled)
    assert guest.fixed_cache_bytes == round(scaled.initial_cache_gib * 2**30)
    sizes = {serial: path.stat().st_size for serial, path in guest.vm.files().items()}
    assert sizes == {"vm0backing": scaled.backing_bytes, "vm0fast": guest.fixed_cache_bytes}
