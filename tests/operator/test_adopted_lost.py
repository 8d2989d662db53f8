"""What an adopted volume needs is away or another one, its cache is lost, and copies of it are made.

The data is on the volume and on a cache that is dirty, and records say what was acknowledged.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio_testbed.adopted import PACKAGES, AdoptedGuest
from elastio_testbed.adoption import FILES, RECOGNIZE, STEP_S, USE_RAW
from elastio_testbed.cuts.reader import UNCAPPED_BYTES_S
from elastio_testbed.faults.fault_actions import make_dirty
from elastio_testbed.faults.lab import BOOT_S, Lab
from elastio_testbed.hypervisor import Machine, define_machine
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.machine import DATA, NAMED, SMALL_MIB
from elastio_testbed.scratch import scratch_folder
from tests.faults import test_recovery as recovery
from tests.faults.conftest import SEED, Target
from tests.operator.conftest import shell, succeed

pytestmark = pytest.mark.guest

OFF_S, APPEARS_S = 10.0, 240.0
# The files that were there before the adoption; nobody writes to them.
OLD = f"cd {DATA} && find python3 perl-base -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum"
UNIT = "elastio-compose@$(ls /etc/elastio/adopted)"
# The same of an adopted device.
test_a_dirty_cache_that_is_removed_is_recovered_without_a_reboot = (
    recovery.test_a_dirty_cache_that_is_removed_is_recovered_without_a_reboot
)


@pytest.fixture(scope="module")
def image() -> GuestImage:
    return build_guest_image(extra=PACKAGES)


@pytest.fixture(scope="module")
def target(image: GuestImage) -> Iterator[Target]:
    with scratch_folder("elastio-lost-") as name, Lab(image, Path(name), SEED, adopted="disk/ext4") as lab:
        adopted(lab).files = FILES
        lab.prepare()
        yield Target(lab)


def adopted(lab: Lab) -> AdoptedGuest:
    assert isinstance(lab.guest, AdoptedGuest)
    return lab.guest


def cut_while_dirty(target: Target) -> None:
    target.start_writer()
    make_dirty(target.lab)
    target.lab.guest.vm.kill()


def take_out(target: Target, serial: str) -> Path:
    """Detach a disk of the machine that is off. Its file."""
    path = target.lab.guest.vm.files()[serial]
    target.lab.guest.vm.unplug(serial, OFF_S)
    return path


def put_in(target: Target, serial: str, path: Path) -> None:
    target.lab.guest.vm.plug(serial, path, bytes_per_second=UNCAPPED_BYTES_S)


def require_down(target: Target, volume: str, serial: str) -> None:
    """Neither composed nor mounted, and nothing recognizes the volume. The unit says which disk is needed."""
    named = f"journalctl -b --no-pager -o cat -u {UNIT} | grep -q {serial}"
    target.lab.wait_until(lambda: target.lab.succeeds("sh", "-c", named), APPEARS_S, f"the unit to name {serial}")
    assert not target.lab.succeeds("mountpoint", "-q", DATA)
    assert target.lab.device() == ""
    assert "is not composed" in target.run("elastio", "status")[1]
    for script in (RECOGNIZE, USE_RAW):
        assert shell(target, f"V=/dev/$({NAMED.format(volume)}); {script}", STEP_S) == ""


def require_up(target: Target) -> None:
    """It comes up by itself, with every record; then it is flushed and released."""
    lab = target.lab
    lab.mount()
    lab.wait_for_agent()
    assert target.records_lost() == 0
    lab.wait_for_rest()
    assert lab.leaked() == ()


def test_without_its_head_it_stays_down_names_it_and_comes_up_with_it(target: Target) -> None:
    guest = adopted(target.lab)
    cut_while_dirty(target)
    head = take_out(target, guest.head_serial)
    guest.vm.start(BOOT_S)
    require_down(target, guest.serial, guest.head_serial)
    put_in(target, guest.head_serial, head)
    require_up(target)


def test_a_restored_copy_in_its_place_is_not_composed_and_the_volume_comes_up_when_it_is_back(
    target: Target, tmp_path: Path
) -> None:
    guest = adopted(target.lab)
    cut_while_dirty(target)
    volume = take_out(target, guest.serial)
    shutil.copyfile(volume, tmp_path / "restored")
    guest.vm.start(BOOT_S)
    put_in(target, "restored", tmp_path / "restored")
    require_down(target, "restored", guest.serial)
    guest.vm.unplug("restored", STEP_S)
    put_in(target, guest.serial, volume)
    guest.vm.set_limit(guest.serial, guest.cap_bytes_s)
    require_up(target)


def plugged(machine: Machine, serial: str, path: Path) -> str:
    """A script's assignment of the disk's node to a variable of this name, in upper case."""
    machine.plug(serial, path, bytes_per_second=UNCAPPED_BYTES_S)
    return f"udevadm settle; {serial.upper()}=/dev/$({NAMED.format(serial)})"


def test_a_copy_made_while_quiesced_is_the_filesystem_and_one_made_during_a_boost_is_unusable(
    target: Target, image: GuestImage, tmp_path: Path
) -> None:
    lab, guest = target.lab, adopted(target.lab)
    files, copies = guest.vm.files(), {name: tmp_path / name for name in ("quiesced", "boosted", "head")}
    shell(target, f"elastio boost --wait && cp -r {DATA}/perl-base {DATA}/late && sync -f {DATA}")
    succeed(target, "elastio", "quiesce", "--hold", "900", timeout_s=400)
    shutil.copyfile(files[guest.serial], copies["quiesced"])
    kept = shell(target, f"{OLD}; diff -r {DATA}/perl-base {DATA}/late", STEP_S)
    succeed(target, "elastio", "unquiesce")
    target.boost()
    with target.dirty_and_idle():
        shutil.copyfile(files[guest.serial], copies["boosted"])
        shutil.copyfile(files[guest.head_serial], copies["head"])
    lab.wait_for_rest()

    with define_machine(image, directory=tmp_path / "elsewhere", memory_mib=SMALL_MIB) as other:
        other.start(BOOT_S)
        volume, head = (plugged(other, name, copies[name]) for name in ("boosted", "head"))
        for script in (RECOGNIZE, USE_RAW):
            assert other.agent.check(["sh", "-c", f"{volume}; V=$BOOSTED; {script}"], timeout_s=STEP_S).strip() == ""
        compose = f"{head}; elastio device compose --head $HEAD"
        assert other.agent.run(["sh", "-c", compose], timeout_s=STEP_S).returncode == Exit.FAILED
        script = f"{plugged(other, 'quiesced', copies['quiesced'])}; D=$QUIESCED; {guest.mounted_elsewhere}"
        shown = f"{script} && {OLD}; diff -r {DATA}/perl-base {DATA}/late"
        assert other.agent.check(["sh", "-c", shown], timeout_s=STEP_S).strip() == kept


def test_a_lost_cache_is_given_up_only_by_command_and_the_volume_is_released(target: Target) -> None:
    """What lies on the volume since before the boost is kept."""
    lab, guest = target.lab, adopted(target.lab)
    kept = shell(target, OLD, STEP_S)
    recovery.lose_cache(target)
    assert lab.device() == ""
    code, output = target.run("elastio", "recover", "--accept-data-loss", "--yes", "--timeout", "240", timeout_s=300)
    assert code == 0, output
    assert target.state() == "inconsistent"
    shell(target, f"udevadm settle; if mountpoint -q {DATA}; then umount {DATA}; fi")
    code, output = target.run("e2fsck", "-f", "-y", f"/dev/{lab.device()}", timeout_s=300)
    assert code in (0, 1), output
    lab.mount()
    assert shell(target, OLD, STEP_S) == kept

    target.boost()
    succeed(target, "elastio", "flush", "--wait", timeout_s=300)
    lab.wait_for_rest()
    assert lab.leaked() == ()
    shell(target, "elastio pause && systemctl stop elastiod", STEP_S)
    succeed(target, "elastio", "device", "release", DATA, "--yes", timeout_s=STEP_S)
    assert shell(target, OLD, STEP_S) == kept
    assert shell(target, f"findmnt -no SOURCE {DATA}") == f"/dev/{guest.disk_name()}"
