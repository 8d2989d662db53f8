"""The commands of `docs/how-to/adopt.md` are run as the page has them, layout by layout, and no byte changes."""

from __future__ import annotations

import pytest

from tests.operator.test_adopt import BOOT_S, DISKS, FIND, GROUP, GROUPED, HEAD, SIZES, SMALL, SMALL_DISKS, Adopted
from tests.operator.test_adopt import guest as guest  # noqa: PLC0414  the fixture
from tests.operator.test_head_behind import enlarge

pytestmark = pytest.mark.guest

# The first line of each block that is run here.
WITH_HEAD = "elastio device adopt /data --head /dev/vdc --dry-run     # checks everything, changes nothing"
WITHOUT_HEAD = "elastio device adopt /data"
AT_BOOT = "elastio device adopt /home --head /dev/vdc --at-boot --dry-run     # checks what can be checked now"
CLOSED = {"luks": "umount /data && cryptsetup close safe", "pv": "umount /data && vgchange -an VG"}
LOST_HEAD = "pvcreate --uuid UUID --restorefile /etc/lvm/backup/VG /dev/vdb && vgcfgrestore VG"
RELEASE = "systemctl stop elastiod                                  # after `elastio pause` and `elastio flush --wait`"
RUN_HERE = (WITH_HEAD, WITHOUT_HEAD, AT_BOOT, *CLOSED.values(), LOST_HEAD, RELEASE)
NODES = {"ext4": SMALL_DISKS, "xfs": DISKS, "btrfs": SMALL_DISKS}
MAKE_LOGICAL = f"G={FIND.format(GROUP)}; pvcreate -qy $G && vgcreate -qy group $G && lvcreate -qy -L 128m -n data group"


def on(guest: Adopted, nodes: str, filesystem: str, layout: str = "disk") -> Adopted:
    guest.clear()
    found = Adopted(guest.vm, nodes, layout, folder=guest.folder)
    found.clear()
    found.make(filesystem)
    return found


def leave(found: Adopted) -> None:
    found.follow(RELEASE)
    found.require_same(is_composed=False)


@pytest.mark.parametrize("filesystem", NODES)
def test_a_disk_with_a_head_that_is_named(guest: Adopted, filesystem: str) -> None:
    found = on(guest, NODES[filesystem], filesystem)
    found.follow(WITH_HEAD)
    found.require_same(is_composed=True)
    leave(found)


def test_a_disk_at_the_next_boot_until_that_is_taken_back(guest: Adopted) -> None:
    found = on(guest, SMALL_DISKS, "ext4")
    found.follow(AT_BOOT)
    found.cut()
    found.require_same(is_composed=False)


def test_a_volume_that_was_enlarged(guest: Adopted) -> None:
    found = on(guest, SMALL_DISKS, "ext4")
    found.length = SIZES[SMALL]
    enlarge(found, SMALL)
    found.follow(WITHOUT_HEAD)
    found.require_same(is_composed=True)
    leave(found)


def test_a_logical_volume(guest: Adopted) -> None:
    guest.run("umount /data")
    guest.shell(MAKE_LOGICAL)
    found = Adopted(guest.vm, GROUPED)
    found.make("ext4")
    found.follow(WITHOUT_HEAD)
    found.require_same(is_composed=True)
    leave(found)
    found.shell("umount /data; vgremove -fy group")


@pytest.mark.parametrize("layout", CLOSED)
def test_what_is_adopted_closed(guest: Adopted, layout: str) -> None:
    found = on(guest, SMALL_DISKS, "ext4", layout)
    found.follow(CLOSED[layout])
    found.require_same(is_composed=True)
    found.cut()
    found.follow(CLOSED[layout], nth=1)
    found.require_same(is_composed=False)
    found.clear()


def test_a_volume_group_whose_head_is_lost(guest: Adopted) -> None:
    """It has its label again, and is adopted again."""
    found = on(guest, SMALL_DISKS, "ext4", "pv")
    uuid = found.shell("pvs --noheadings -o uuid $V")
    found.follow(CLOSED["pv"])
    found.shell("rm -r /etc/elastio/adopted && sync")
    found.vm.kill()
    disk = guest.folder / f"{HEAD}.img"
    disk.write_bytes(bytes(SIZES[HEAD]))
    found.vm.start(BOOT_S)
    found.nodes += f"; U={uuid}"
    found.follow(LOST_HEAD)
    found.shell(found.open)
    assert found.sums() == found.files
    found.follow(CLOSED["pv"])
    assert found.is_composed()
    found.follow(CLOSED["pv"], nth=1)
    assert found.sums() == found.files
    found.clear()
