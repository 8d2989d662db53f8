"""What an operator finds after the worst, and the way back, on real bcache. Each test hands the guest back at rest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from elastio.host.blockdev import SECTOR
from elastio.setup.format_backing import DATA_OFFSET_SECTORS
from elastio_testbed.ec2.client import open_client
from elastio_testbed.faults import acks
from elastio_testbed.faults.deeds import make_dirty, reboot
from elastio_testbed.guest.records import verify
from elastio_testbed.machine import DATA
from tests.faults.conftest import SEED, Patient

pytestmark = pytest.mark.guest


def test_a_cache_torn_off_while_clean_is_not_missed_not_even_at_the_next_boot(patient: Patient) -> None:
    lab = patient.lab
    lab.guest.check(["sync"], timeout_s=60)
    patient.boost()
    patient.tear_off()
    # Reads that miss: the kernel notices when it fills the cache with them. One of that very instant may fail.
    reads = ["dd", f"if=/dev/{lab.device()}", "of=/dev/null", "bs=64k", "iflag=direct"]
    patient.run(*reads, "count=256")
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert lab.takes_writes()
    lab.guest.check([*reads, "count=2"])  # too little for another boost
    # The kernel keeps the name of the set, and would wait for it.
    assert patient.state() == "clean"

    patient.start_writer()
    lab.guest.vm.kill()
    lab.boot()
    assert patient.records_lost() == 0
    assert patient.intents("StartWithoutCache") == 1
    assert lab.guest.status()["fault"] == ""

    patient.boost()
    lab.guest.check(["elastio", "flush", "--wait"], timeout_s=300)
    lab.wait_for_rest()
    assert patient.state() == "no cache"


def test_a_dirty_cache_torn_off_comes_back_under_the_same_boot(patient: Patient) -> None:
    lab = patient.lab
    boot = lab.guest.check(["cat", "/proc/sys/kernel/random/boot_id"])
    patient.start_writer()
    with patient.dirty_and_still():
        volume = patient.tear_off()
    missing = patient.wait_for(lambda s: s["missing"] is not None, "the agent to miss its cache")["missing"]
    assert missing["volume_id"] == volume
    code, said = patient.run("elastio", "recover", "--umount", "--timeout", "240", timeout_s=300)
    assert code == 0, said
    assert volume in said
    # The kernel had let go of the backing device with its cache.
    assert patient.intents("RegisterBacking") >= 1
    lab.mount()
    lab.wait_for_rest()
    assert patient.records_lost() == 0
    assert lab.leaked() == ()
    assert lab.guest.check(["cat", "/proc/sys/kernel/random/boot_id"]) == boot


def test_an_older_copy_of_the_backing_volume_is_not_mounted_and_the_right_one_brings_everything_back(
    patient: Patient,
) -> None:
    lab = patient.lab
    line = f"/dev/{lab.device()} {DATA} ext4 nofail,x-systemd.device-timeout=90s 0 0"
    lab.guest.check(["sh", "-c", f"echo '{line}' >> /etc/fstab && sync"])
    image = lab.folder / "vm" / f"{lab.guest.serial}.img"
    older, right = image.with_suffix(".older"), image.with_suffix(".right")
    lab.guest.vm.kill()
    shutil.copyfile(image, older)
    lab.guest.vm.start(300)
    # Without the marker systemd mounts the device as soon as it is there.
    lab.wait_until(lambda: lab.succeeds("mountpoint", "-q", DATA), 120, "the device to be mounted")

    patient.start_writer()
    make_dirty(lab)
    lab.guest.vm.kill()
    image.rename(right)
    older.rename(image)
    lab.guest.vm.start(300)
    fault = patient.wait_for(lambda s: s["phase"] == "faulted", "the agent to notice the copy")["fault"]
    assert "older copy" in fault
    code, said = patient.run("elastio", "recover")
    assert code == 5, said
    assert "attach the right backing volume in its place" in said
    assert lab.device() != ""
    assert not lab.succeeds("mountpoint", "-q", DATA)
    assert "SYSTEMD_READY=0" in lab.guest.check(["udevadm", "info", f"/dev/{lab.device()}"])

    lab.guest.vm.kill()
    right.replace(image)
    lab.guest.vm.start(300)
    lab.wait_until(lambda: lab.succeeds("mountpoint", "-q", DATA), 120, "the device to be mounted")
    lab.wait_for_agent()
    lab.wait_for_rest()
    assert patient.records_lost() == 0
    assert lab.leaked() == ()
    lab.guest.check(["sh", "-c", "sed -i '$d' /etc/fstab && sync"])


def test_at_a_shutdown_the_agent_is_asked_before_it_is_stopped(patient: Patient) -> None:
    lab = patient.lab
    config = "/etc/elastio/elastio.toml"
    lab.guest.check(["sh", "-c", f"printf '[shutdown]\\non_shutdown = \"flush\"\\n' >> {config} && sync"])
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
    lab.wait_for_agent()
    patient.start_writer()
    make_dirty(lab)
    reboot(lab)
    # Flushed and taken off before the machine went down: the kernel waited for nothing.
    assert patient.state() == "no cache"
    assert any("asked to shutdown" in each["reason"] for each in lab.guest.decisions())
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert patient.records_lost() == 0
    lab.guest.check(["sh", "-c", f"sed -i '/^\\[shutdown\\]/,$d' {config} && sync"])
    lab.guest.check(["systemctl", "restart", "elastiod"], timeout_s=120)
    lab.wait_for_agent()


def test_a_copy_made_while_quiesced_is_whole_by_itself(patient: Patient, tmp_path: Path) -> None:
    lab = patient.lab
    patient.start_writer()
    name = patient.names[-1]
    make_dirty(lab)
    lab.guest.check(["elastio", "quiesce", "--hold", "900"], timeout_s=400)
    assert patient.state() == "no cache"
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

    # The journal is replayed, as at a mount; nothing else may be wrong.
    assert subprocess.run(["e2fsck", "-f", "-y", str(copy)], capture_output=True, check=False).returncode in (0, 1)
    for file in (f"{name}.log", f"{name}.table"):
        script = f"dump /records/{file} {records / file}"
        subprocess.run(["debugfs", "-R", script, str(copy)], capture_output=True, check=True)
    known = acks.read(lab.records)[name]
    found = verify({"directory": str(records), "name": name, "seed": SEED, "acknowledged": known}, flags=0)
    assert (found["checked"], found["lost"]) == (known, 0)
    assert patient.records_lost() == 0


def test_a_cache_that_is_lost_for_good_is_given_up_by_order_only(patient: Patient) -> None:
    lab = patient.lab
    with patient.dirty_and_still():
        volume = patient.tear_off()
    patient.wait_for(lambda s: s["missing"] is not None, "the agent to miss its cache")
    # Before the umount: as soon as the dead device is gone the agent brings a volume back that there is.
    lab.cloud.wait_for(volume, "available", 120)
    open_client(lab.cloud).delete_volume(VolumeId=volume)
    lab.guest.check(["umount", DATA], timeout_s=120)
    patient.wait_for(lambda s: s["missing"] and s["missing"]["volume_state"] in ("gone", "deleting"), "the loss")
    assert lab.device() == ""
    code, said = patient.run("elastio", "recover", "--accept-data-loss", "--yes", "--timeout", "240", timeout_s=300)
    assert code == 0, said
    assert "goes on without its cache" in said
    assert patient.state() == "inconsistent"
    code, said = patient.run("e2fsck", "-f", "-y", f"/dev/{lab.device()}", timeout_s=300)
    assert code in (0, 1), said
    lab.mount()

    # A boost makes it a device like any other.
    patient.boost()
    lab.guest.check(["elastio", "flush", "--wait"], timeout_s=300)
    lab.wait_for_rest()
    assert patient.state() == "no cache"
    assert lab.leaked() == ()
