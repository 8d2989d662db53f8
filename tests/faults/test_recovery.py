"""Recovery from the worst faults on real bcache. Each test leaves the guest idle."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio.units import SECTOR
from elastio_setup.format_backing import DATA_OFFSET_SECTORS
from elastio_testbed.ec2.client import open_client
from elastio_testbed.faults import acks
from elastio_testbed.faults.fault_actions import make_dirty, reboot
from elastio_testbed.guest.records import paths, verify
from elastio_testbed.machine import DATA
from tests.faults.conftest import SEED, Target

pytestmark = pytest.mark.guest


def test_a_clean_cache_that_is_removed_is_not_needed_not_even_at_the_next_boot(target: Target) -> None:
    lab = target.lab
    lab.guest.check(["sync"], timeout_s=60)
    target.boost()
    target.tear_off()
    # Reads that miss the cache: the kernel notices the removal when it stores them. A read at that instant may fail.
    reads = ["dd", f"if=/dev/{lab.device()}", "of=/dev/null", "bs=64k", "iflag=direct"]
    target.run(*reads, "count=256")
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert lab.takes_writes()
    lab.guest.check([*reads, "count=2"])  # too little load for another boost
    # The superblock keeps the UUID of the set, and the kernel would wait for it.
    assert target.state() == "clean"

    target.start_writer()
    lab.guest.vm.kill()
    lab.boot()
    assert target.records_lost() == 0
    assert target.intents("StartWithoutCache") == 1
    assert lab.guest.status()["fault"] == ""

    target.boost()
    lab.guest.check(["elastio", "flush", "--wait"], timeout_s=300)
    lab.wait_for_rest()
    assert target.state() == "no cache"


def test_a_dirty_cache_that_is_removed_is_recovered_without_a_reboot(target: Target) -> None:
    lab = target.lab
    boot = lab.guest.check(["cat", "/proc/sys/kernel/random/boot_id"])
    target.start_writer()
    with target.dirty_and_idle():
        volume = target.tear_off()
    missing = target.wait_for(lambda s: s["missing"] is not None, "the agent to report a missing cache")["missing"]
    assert missing["volume_id"] == volume
    code, output = target.run("elastio", "recover", "--umount", "--timeout", "240", timeout_s=300)
    assert code == 0, output
    assert volume in output
    # The kernel had unregistered the backing device with its cache.
    assert target.intents("RegisterBacking") >= 1
    lab.mount()
    lab.wait_for_rest()
    assert target.records_lost() == 0
    assert lab.leaked() == ()
    assert lab.guest.check(["cat", "/proc/sys/kernel/random/boot_id"]) == boot


def test_an_older_copy_of_the_backing_volume_is_not_mounted_and_the_right_one_recovers(
    target: Target,
) -> None:
    lab = target.lab
    line = f"/dev/{lab.device()} {DATA} ext4 nofail,x-systemd.device-timeout=90s 0 0"
    lab.guest.check(["sh", "-c", f"echo '{line}' >> /etc/fstab && sync"])
    image = lab.folder / "vm" / f"{lab.guest.serial}.img"
    older, right = image.with_suffix(".older"), image.with_suffix(".right")
    lab.guest.vm.kill()
    shutil.copyfile(image, older)
    lab.guest.vm.start(300)
    # Without the mount guard systemd mounts the device as soon as it appears.
    lab.wait_until(lambda: lab.succeeds("mountpoint", "-q", DATA), 120, "the device to be mounted")

    target.start_writer()
    make_dirty(lab)
    lab.guest.vm.kill()
    image.rename(right)
    older.rename(image)
    lab.guest.vm.start(300)
    target.wait_for(lambda s: s["phase"] == "faulted", "the agent to detect the copy")
    code, output = target.run("elastio", "recover")
    assert code == Exit.REFUSED, output
    assert lab.device() != ""
    assert not lab.succeeds("mountpoint", "-q", DATA)
    assert "SYSTEMD_READY=0" in lab.guest.check(["udevadm", "info", f"/dev/{lab.device()}"])

    lab.guest.vm.kill()
    right.replace(image)
    lab.guest.vm.start(300)
    lab.wait_until(lambda: lab.succeeds("mountpoint", "-q", DATA), 120, "the device to be mounted")
    lab.wait_for_agent()
    lab.wait_for_rest()
    assert target.records_lost() == 0
    assert lab.leaked() == ()
    lab.guest.check(["sh", "-c", "sed -i '$d' /etc/fstab && sync"])


def test_at_a_shutdown_the_agent_flushes_before_it_is_stopped(target: Target) -> None:
    lab = target.lab
    config = "/etc/elastio/elastio.toml"
    lab.guest.check(["sh", "-c", f"printf '[shutdown]\\non_shutdown = \"flush\"\\n' >> {config} && sync"])
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
    lab.wait_for_agent()
    target.start_writer()
    make_dirty(lab)
    asked = float(lab.guest.check(["date", "+%s"]))
    reboot(lab)
    # Flushed and detached before the shutdown: the kernel does not wait for a cache.
    assert target.state() == "no cache"
    booted = float(lab.guest.check(["date", "+%s"])) - lab.uptime_s()
    assert any(each["to"] == "detaching" and asked < each["wall"] < booted for each in lab.guest.decisions())
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert target.records_lost() == 0
    lab.guest.check(["sh", "-c", f"sed -i '/^\\[shutdown\\]/,$d' {config} && sync"])
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
    lab.wait_for_agent()


def test_a_copy_made_while_quiesced_is_complete(target: Target, tmp_path: Path) -> None:
    lab = target.lab
    target.start_writer()
    name = target.names[-1]
    make_dirty(lab)
    lab.guest.check(["elastio", "quiesce", "--hold", "900"], timeout_s=400)
    assert target.state() == "no cache"
    lab.stop_writer()
    lab.wait_until(lambda: not lab.burst_runs(), 120, "the burst to end")
    lab.guest.check(["sync"], timeout_s=60)
    copy, records = tmp_path / "copy.img", tmp_path / "records"
    records.mkdir()
    with (lab.folder / "vm" / f"{lab.guest.serial}.img").open("rb") as volume, copy.open("wb") as copied:
        volume.seek(DATA_OFFSET_SECTORS * SECTOR)
        shutil.copyfileobj(volume, copied, 1 << 20)
    assert lab.guest.status()["phase"] == "idle"
    lab.guest.check(["elastio", "unquiesce"])

    # e2fsck may replay the journal, as a mount does, but must find no other error.
    assert subprocess.run(["e2fsck", "-f", "-y", str(copy)], capture_output=True, check=False).returncode in (0, 1)
    known = acks.read(lab.records)[name]
    spec = {"directory": str(records), "name": name, "seed": SEED, "acknowledged": known}
    for path in map(Path, paths(spec)):
        subprocess.run(["debugfs", "-R", f"dump /records/{path.name} {path}", copy], capture_output=True, check=True)
    found = verify(spec, flags=0)
    assert (found["checked"], found["lost"]) == (known, 0)
    assert target.records_lost() == 0


def lose_cache(target: Target) -> None:
    """The cache is removed by surprise while it is dirty, its volume is deleted, and the device is unmounted."""
    lab = target.lab
    with target.dirty_and_idle():
        volume = target.tear_off()
    target.wait_for(lambda s: s["missing"] is not None, "the agent to report a missing cache")
    # Before the umount: once the dead device is gone, the agent would attach the volume again.
    lab.cloud.wait_for(volume, "available", 120)
    # Somebody deletes it whose role may.
    lab.cloud.guards_dirty = False
    open_client(lab.cloud).delete_volume(VolumeId=volume)
    lab.cloud.guards_dirty = True
    lab.guest.check(["umount", DATA], timeout_s=120)
    target.wait_for(lambda s: s["missing"] and s["missing"]["volume_state"] in ("gone", "deleting"), "the loss")


def test_a_lost_cache_is_given_up_only_by_command(target: Target) -> None:
    lab = target.lab
    lose_cache(target)
    assert lab.device() == ""
    code, output = target.run("elastio", "recover", "--accept-data-loss", "--yes", "--timeout", "240", timeout_s=300)
    assert code == 0, output
    assert target.state() == "inconsistent"
    code, output = target.run("e2fsck", "-f", "-y", f"/dev/{lab.device()}", timeout_s=300)
    assert code in (0, 1), output
    lab.mount()

    # After a boost it is a normal device again.
    target.boost()
    lab.guest.check(["elastio", "flush", "--wait"], timeout_s=300)
    lab.wait_for_rest()
    assert target.state() == "no cache"
    assert lab.leaked() == ()
