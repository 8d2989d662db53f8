"""Volumes with data are adopted, boosted and released, and faults strike while a tombstone moves."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio_testbed.adopted import CASES, PACKAGES, AdoptedGuest
from elastio_testbed.adoption import CUT_CASES, SLOWER, played
from elastio_testbed.faults.campaign import carry_out
from elastio_testbed.faults.kinds import OF_ADOPTED
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.plan import plan
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA
from elastio_testbed.scratch import scratch_folder
from tests.faults.verdict import assert_nothing_is_lost_or_left

pytestmark = pytest.mark.guest

SEED, RUNS = 4, 8
CALL_S, BOOT_S = 300.0, 240.0
SUM = f"sha256sum {DATA}/new"
WRITE = f"dd if=/dev/urandom of={DATA}/new bs=1M count=24 conv=fsync status=none"
# By hand, as udev does it, and from the volume alone.
ACTIVATE = "vgchange -ay pool; vgchange -aay --autoactivation event pool; vgchange -ay --devices $V pool"


@pytest.mark.parametrize("name", CASES)
def test_a_volume_with_data_is_what_it_was_after_its_boost(name: str) -> None:
    case = played(name, build_guest_image(extra=PACKAGES), SEED)
    assert (case.sums_equal, case.cut_dirty, case.raw_mounts) == (True, True, 0)


@pytest.mark.parametrize("name", CUT_CASES)
def test_whatever_ends_the_move_of_a_piece_nothing_is_lost_or_left(name: str, tmp_path: Path) -> None:
    for result in carry_out(plan(RUNS, SEED, OF_ADOPTED), SEED, tmp_path, print, adopted=name):
        assert_nothing_is_lost_or_left(result)
        assert not result.missed


def test_a_volume_group_comes_up_nowhere_without_its_cache() -> None:
    """The power is cut while the cache is dirty, and its disk is away at the boot."""
    image = build_guest_image(extra=PACKAGES)
    with scratch_folder("elastio-adopt-") as folder, Lab(image, Path(folder), SEED, adopted="pv/ext4") as lab:
        lab.prepare()
        guest, vm = lab.guest, lab.guest.vm
        assert isinstance(guest, AdoptedGuest)

        def run(script: str) -> str:
            return guest.check(["sh", "-c", f"V={guest.volume()}; {script}"], timeout_s=CALL_S)

        run("elastio boost --wait")
        vm.set_limit(guest.serial, guest.cap_bytes_s // SLOWER)
        written = run(f"{WRITE}; {SUM}")
        assert run("cat /sys/block/dm-*/bcache/state") == "dirty"
        cache = lab.attached_volume()
        run("systemctl mask elastiod && sync -f /etc")  # it would attach the volume again
        vm.kill()
        lab.cloud.tear_off(cache, lambda serial: vm.unplug(serial, 10.0))
        vm.set_limit(guest.serial, guest.cap_bytes_s)
        vm.start(BOOT_S)
        run("until test -d /sys/block/dm-0/bcache; do sleep 0.5; done; udevadm settle")
        said = run(f"exec 2>&1; {ACTIVATE}; cat /sys/block/dm-0/bcache/state")
        assert run("test -e /dev/pool/data && echo up; lvs --noheadings pool 2>/dev/null; true") == "", said
        run(f"systemctl unmask elastiod && systemctl start elastiod; until mountpoint -q {DATA}; do sleep 0.5; done")
        assert run(SUM) == written
        run("elastio pause && elastio flush --wait && systemctl stop elastiod")
        run(f"{guest.close} && elastio device release $V --yes && {guest.open}")
        assert (
            run(f"{SUM}; findmnt -no SOURCE {DATA}; ls /sys/block | grep bcache; true")
            == f"{written}\n/dev/mapper/pool-data"
        )
