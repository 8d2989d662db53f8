"""What people put on an adaptive device besides one plain filesystem, up to its release.

The power is cut while the cache is dirty.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from elastio_testbed.adoption import FORGET, IMAGE, RECOGNIZE, STEP_S, SUMS
from elastio_testbed.faults import acks
from elastio_testbed.faults.fault_target import CALL_S, RECORDS_PORT
from elastio_testbed.faults.lab import BOOT_S, Lab
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA
from elastio_testbed.scratch import scratch_folder
from tests.faults.conftest import SEED, Target
from tests.operator.conftest import boost_with_records, load, shell, wait_for_dirty

pytestmark = pytest.mark.guest

PACKAGES = ("btrfs-progs", "cryptsetup-bin", "lvm2", "postgresql")
APPEARS_S = 120.0
KEY = "/etc/data.key"


@dataclass(frozen=True)
class Layout:
    """`make` puts it on the device $D, `open` shows it again after a boot, and `volume` is what is mounted then."""

    make: str
    volume: str = "$D"
    open: str = "true"
    close: str = "true"


LVM = Layout(
    make="pvcreate -qy $D && vgcreate -qy data $D && lvcreate -qy -l 100%FREE -n data data && "
    "mkfs.ext4 -q /dev/data/data",
    volume="/dev/data/data",
    open="vgchange -qay data",
    close="vgchange -qan data",
)
LUKS = Layout(
    make=f"head -c 32 /dev/urandom > {KEY} && sync {KEY} && cryptsetup luksFormat -q --pbkdf pbkdf2 $D {KEY} && "
    f"cryptsetup open --key-file {KEY} $D data && mkfs.xfs -q /dev/mapper/data",
    volume="/dev/mapper/data",
    open=f"cryptsetup open --key-file {KEY} $D data",
    close="cryptsetup close data",
)
BTRFS = Layout(make="mkfs.btrfs -q $D")
LAYOUTS = {"lvm": LVM, "luks": LUKS, "btrfs": BTRFS}
XFS = Layout(make="mkfs.xfs -q -f $D")

DATABASE = f"{DATA}/database"
SERVER = f"exec $(echo /usr/lib/postgresql/*/bin/postgres) -D {DATABASE} -k /tmp"
QUERY = "psql -h /tmp -U postgres -qAt"
COMMITS = f"""
i=0
while i=$((i + 1)) && {QUERY} -c "INSERT INTO commits VALUES ($i)"; do
    echo "committed $i." > /dev/virtio-ports/{RECORDS_PORT}
done
"""


@pytest.fixture
def target() -> Iterator[Target]:
    image = build_guest_image(extra=PACKAGES)
    with scratch_folder("elastio-layouts-") as name, Lab(image, Path(name), SEED) as lab:
        lab.prepare()
        lab.guest.check(["systemctl", "disable", "--now", "postgresql"], timeout_s=CALL_S)
        yield Target(lab)


def on_device(target: Target, script: str) -> str:
    return shell(target, f"D=/dev/{target.lab.device()}; {script}")


def put(target: Target, layout: Layout) -> None:
    """Replace what is on the adaptive device."""
    shell(target, f"if mountpoint -q {DATA}; then umount {DATA}; fi")
    on_device(target, f"wipefs -qa $D && {layout.make} && mount {layout.volume} {DATA}")
    shell(target, f"cp -r /usr/lib/python3 {DATA}/ && sync")


def cut_and_boot(target: Target, layout: Layout) -> None:
    """Cut the power now; then boot, show the data as after any boot, and wait until the agent has recovered."""
    lab = target.lab
    lab.guest.vm.kill()
    lab.guest.vm.start(BOOT_S)
    lab.wait_until(lambda: lab.device() != "", APPEARS_S, "the adaptive device")
    on_device(target, layout.open)
    volume = f"test -b {layout.volume}".replace("$D", f"/dev/{lab.device()}")
    lab.wait_until(lambda: lab.succeeds("sh", "-c", volume), APPEARS_S, layout.volume)
    on_device(target, f"mount {layout.volume} {DATA}")
    lab.wait_for_agent()


def require_left(target: Target, layout: Layout) -> None:
    """Release the device as an operator does: the same bytes and files are on the partition, without elastio."""
    guest = target.lab.guest
    node = f"/dev/{guest.disk_name()}"
    shell(target, "elastio pause && elastio flush --wait && systemctl stop elastiod", STEP_S)
    guest.vm.set_limit(guest.serial, None)
    files = shell(target, f"{FORGET}; {SUMS}", STEP_S)
    on_device(target, f"umount {DATA} && {layout.close}")
    image = shell(target, IMAGE.format(f"/dev/{target.lab.device()}", 0), STEP_S)
    shell(target, f"elastio device release {node} --yes", STEP_S)
    assert shell(target, "ls /sys/block | grep bcache; true") == ""
    assert shell(target, IMAGE.format(f"{node}1", 0), STEP_S) == image
    shell(target, f"D={node}1; {layout.open} && mount {layout.volume} {DATA}")
    assert shell(target, SUMS, STEP_S) == files


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_power_cut_while_the_cache_is_dirty_loses_nothing_of_any_layout_nor_does_its_release(
    target: Target, name: str
) -> None:
    lab, layout = target.lab, LAYOUTS[name]
    put(target, layout)
    boost_with_records(target)
    assert shell(target, f"V=/dev/{lab.guest.disk_name()}; {RECOGNIZE}") == "bcache", "nobody can use the volume alone"
    cut_and_boot(target, layout)
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert target.records_lost() == 0
    require_left(target, layout)


def test_lvm_on_an_older_copy_of_the_volume_is_not_activated_and_on_the_right_one_it_is(target: Target) -> None:
    """LVM does not ask whether systemd sees a device."""
    lab = target.lab
    put(target, LVM)
    lab.wait_for_rest()
    image = lab.folder / "vm" / f"{lab.guest.serial}.img"
    older, right = image.with_suffix(".older"), image.with_suffix(".right")
    lab.guest.vm.kill()
    shutil.copyfile(image, older)
    lab.guest.vm.start(BOOT_S)
    lab.wait_until(lambda: lab.succeeds("test", "-b", LVM.volume), APPEARS_S, "LVM to activate what is on the device")
    shell(target, f"mount {LVM.volume} {DATA}")
    lab.wait_for_agent()

    boost_with_records(target)
    lab.guest.vm.kill()
    image.rename(right)
    older.rename(image)
    lab.guest.vm.start(BOOT_S)
    target.wait_for(lambda s: s["phase"] == "faulted", "the agent to detect the copy")
    shell(target, f"udevadm settle && test ! -e {LVM.volume} && ! ls /run/systemd/transient/lvm-activate-*")

    lab.guest.vm.kill()
    right.replace(image)
    lab.guest.vm.start(BOOT_S)
    lab.wait_until(lambda: lab.succeeds("test", "-b", LVM.volume), APPEARS_S, "LVM to activate what is on the device")
    shell(target, f"mount {LVM.volume} {DATA}")
    lab.wait_for_agent()
    lab.wait_for_rest()
    assert lab.leaked() == ()
    assert target.records_lost() == 0


def committed(lab: Lab) -> int:
    """The last transaction whose commit was acknowledged to the host."""
    return max((int(number) for number in re.findall(r"committed (\d+)\.", acks.text_of(lab.records))), default=0)


def start_server(target: Target) -> None:
    target.lab.guest.check(["systemd-run", "--collect", "--unit=server", "--uid=postgres", "sh", "-c", SERVER])
    target.lab.wait_until(
        lambda: target.lab.succeeds("sh", "-c", f"{QUERY} -c 'SELECT 1'"), APPEARS_S, "the database to accept queries"
    )


def test_a_database_has_every_transaction_that_it_has_acknowledged(target: Target) -> None:
    lab = target.lab
    put(target, XFS)
    init = f"su postgres -c '$(echo /usr/lib/postgresql/*/bin/initdb) -D {DATABASE}'"
    shell(target, f"install -d -o postgres -m 700 {DATABASE} && {init}")
    start_server(target)
    shell(target, f"{QUERY} -c 'CREATE TABLE commits (number bigint PRIMARY KEY)'")
    lab.guest.check(["systemd-run", "--collect", "--unit=commits", "sh", "-c", COMMITS])
    load(lab)
    wait_for_dirty(lab, lambda: committed(lab))

    cut_and_boot(target, XFS)
    start_server(target)
    kept = shell(target, f"{QUERY} -c 'SELECT count(*), max(number) FROM commits'").split("|")
    assert int(kept[0]) == int(kept[1]) >= committed(lab) > 0
    lab.stop("server")
    lab.wait_for_rest()
    assert lab.leaked() == ()
