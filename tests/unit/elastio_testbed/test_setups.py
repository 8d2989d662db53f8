from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio_testbed.adopted import PACKAGES, AdoptedGuest
from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.cli import chosen_setups
from elastio_testbed.errors import PlanError
from elastio_testbed.experiment import PUBLISHED, Scaled, Setup
from elastio_testbed.image import TOOLS, GuestImage
from elastio_testbed.lvmcache import MAPPED_NAME, lvm_commands
from elastio_testbed.machine import Guest
from elastio_testbed.rates import rates_of
from elastio_testbed.run import check
from elastio_testbed.trial import Plan

MIB_SECTORS = 2048


def test_all_means_the_published_set_ups_and_others_are_named_and_run_once() -> None:
    assert chosen_setups(("all",)) == PUBLISHED
    assert chosen_setups(("lvmcache", "all")) == tuple(Setup)
    assert chosen_setups(("all",), EXPERIMENTS["cold"].setups) == (Setup.STATIC_FAST, Setup.ADAPTIVE)
    assert chosen_setups(("adaptive", "adaptive", "static-slow")) == (Setup.STATIC_SLOW, Setup.ADAPTIVE)


@pytest.mark.parametrize("experiment", ["demo", "cm1"])
def test_the_published_set_ups_of_a_simple_workload_need_the_default_image_only(experiment: str) -> None:
    assert Plan(experiment, PUBLISHED).packages == ()
    assert Plan(experiment, (*PUBLISHED, Setup.LVMCACHE)).packages == Plan("bonnie", PUBLISHED).packages == TOOLS


def test_only_the_volume_of_the_adaptive_set_up_is_adopted_and_needs_what_makes_it(tmp_path: Path) -> None:
    plan = Plan("cm1", PUBLISHED, adopted="luks/xfs")
    image = GuestImage(tmp_path, tmp_path, tmp_path, tmp_path, "digest", "bookworm")
    guests = {setup: plan.guest(setup, image, tmp_path / setup, "vm0") for setup in PUBLISHED}
    assert {setup for setup, guest in guests.items() if isinstance(guest, AdoptedGuest)} == {Setup.ADAPTIVE}
    adopted = guests[Setup.ADAPTIVE]
    assert isinstance(adopted, AdoptedGuest)
    assert (adopted.layout, adopted.filesystem) == ("luks", "xfs")
    assert set(PACKAGES) <= set(plan.packages)
    both = replace(plan, experiment="bonnie").packages
    assert sorted(both) == sorted({*TOOLS, *PACKAGES})


def test_a_run_without_an_adaptive_device_has_nothing_to_adopt() -> None:
    check(Plan("cm1", PUBLISHED, adopted="disk/ext4"))
    with pytest.raises(PlanError) as raised:
        check(Plan("cm1", (Setup.STATIC_FAST,), adopted="disk/ext4"))
    assert raised.value.code == "setup"


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
