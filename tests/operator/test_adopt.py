"""A volume with data is adopted and released, and the power is cut, or the command killed, before each of its changes.

The filesystem is mounted read-only, so that all of the volume can be compared, not only the files on it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import pytest

from elastio.units import MIB
from elastio_testbed.adopted import CLOSE, KEEPING, LAYOUTS, OPEN, OPENED, PACKAGES
from elastio_testbed.adoption import CUT_CASES, FORGET, RECOGNIZE, USE_RAW
from elastio_testbed.hypervisor import Machine, define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA, PROGRAMS, new_disk
from elastio_testbed.polling import until
from elastio_testbed.scratch import scratch_folder
from tests.unit.pages.blocks import ADOPTION, block

pytestmark = pytest.mark.guest

VOLUME, HEAD = "adopted0volume000000", "adopted0head00000000"
GROUP, MORE = "adopted0group0000000", "adopted0more00000000"
SMALL = "adopted0small0000000"  # read as a whole before each change
SIZES = {VOLUME: 320 * MIB, HEAD: 16 * MIB, GROUP: 320 * MIB, MORE: 32 * MIB, SMALL: 128 * MIB}
BOOT_S, CALL_S = 240.0, 120.0
STOPPED_AT, REACHED = f"{PROGRAMS}/stopped_at.py", "/run/reached"
TOMBSTONE = f"python3 {STOPPED_AT} -1 {REACHED} tombstone"
FIND = "/dev/$(grep -lx {} /sys/block/vd*/serial | cut -d/ -f4)"
DISKS = f"V={FIND.format(VOLUME)}; H={FIND.format(HEAD)}; O=--head=$H"
SMALL_DISKS = f"V={FIND.format(SMALL)}; H={FIND.format(HEAD)}; O=--head=$H"
LOGICAL = "V=/dev/group/data; H=/dev/group/head; O=--head=$H"
# The head gets a logical volume beside it.
GROUPED = "V=/dev/group/data; O="
LEFT = "lvs --noheadings -o lv_name group"
MAKE_LOGICAL = (
    f"G={FIND.format(GROUP)}; pvcreate -qy $G && vgcreate -qy group $G && "
    "lvcreate -qy -L 256m -n data group && lvcreate -qy -L 16m -n head group"
)
MAKE = {"ext4": "mkfs.ext4 -q", "xfs": "mkfs.xfs -q -f", "btrfs": "mkfs.btrfs -q -f"}
# With a node and a length in bytes.
SHORT = {
    "ext4": "mkfs.ext4 -q -b 4096 {0} $(({1} / 4096))",
    "xfs": "mkfs.xfs -q -f -d size={1} {0}",
    "btrfs": "mkfs.btrfs -q -f -b {1} {0}",
}
# XFS writes to its log also when it was mounted read-only, unless it leaves the log alone.
READ_ONLY = {"ext4": "ro", "xfs": "ro,norecovery", "btrfs": "ro"}
# The names on the page of adoption, and those of this machine.
NAMES = {"/dev/vdb": "$V", "/dev/vdc": "$H", "VG": "pool", "UUID": "$U", "/home": "/data", "/srv/data": "/data"}
READERS = re.compile(rf"(?<!\w)(?:{'|'.join(NAMES)})\b")
COMPOSE = "for r in /etc/elastio/adopted/*; do systemctl start elastio-compose@${r##*/}; done"


@dataclass
class Adopted:
    """A guest with a volume and a blank disk for its head. `image` and `files` are the sums to compare with.

    `layout`: a key of the laboratory's LAYOUTS; what has to be closed is adopted by its device, not by its mount point.
    `length`: bytes that the filesystem is made with, if that is not all of its volume. `folder`: of the disks' files.
    """

    vm: Machine
    nodes: str = DISKS
    layout: str = "disk"
    image: str = ""
    files: str = ""
    length: int = 0
    folder: Path = Path()

    def sum_of(self, node: str) -> str:
        """A command that prints the sum of what the filesystem may have of the volume, on this device."""
        return f"head -c {self.length} {node} | sha256sum" if self.length else f"sha256sum < {node}"

    @property
    def is_closed(self) -> bool:
        return self.layout in CLOSE

    @property
    def target(self) -> str:
        return "$V" if self.is_closed else DATA

    @property
    def close(self) -> str:
        return CLOSE.get(self.layout, f"umount {DATA}")

    @property
    def open(self) -> str:
        return OPEN.get(self.layout, f"mountpoint -q {DATA} || mount {DATA}")

    def run(self, script: str, *, timeout_s: float = CALL_S) -> tuple[int, str]:
        """Exit code and output. $V and $H are the volume and the device for its head."""
        done = self.vm.agent.run(["sh", "-c", f"{self.nodes}; {script}"], timeout_s=timeout_s)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").strip()

    def shell(self, script: str) -> str:
        code, output = self.run(script)
        assert code == 0, f"{script}: {output}\n{self.run('journalctl -b --no-pager -o cat | tail -40')[1]}"
        return output

    def make(self, filesystem: str) -> None:
        """A filesystem with some hundred files, which fstab mounts by its UUID."""
        made = OPENED.get(self.layout, "$V")
        if self.is_closed:
            self.shell(f"D=$V; {LAYOUTS[self.layout][0]}")
        make = SHORT[filesystem].format(made, self.length) if self.length else f"{MAKE[filesystem]} {made}"
        self.shell(f"{make} && udevadm settle && mkdir -p /data && mount {made} /data")
        self.shell("cp -r /usr/lib/x86_64-linux-gnu/perl-base /data/ && sync && umount /data")
        line = f"UUID=$(blkid -p -s UUID -o value {made}) /data auto {READ_ONLY[filesystem]},nofail 0 0"
        self.shell(f"sed -i '/data/d' /etc/fstab && echo {line} >> /etc/fstab")
        self.shell("systemctl daemon-reload && udevadm settle && (mountpoint -q /data || mount /data) && sync")
        self.files = self.sums()
        self.image = self.shell(f"{self.close}; {self.sum_of('$V')}; {self.open}").split()[0]

    def clear(self) -> None:
        """Nothing is on the volume any more."""
        self.run(f"{self.close}; wipefs -qa $V; rm -f /etc/crypttab; systemctl daemon-reload")

    def sums(self) -> str:
        return self.shell("cd /data && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum")

    def cut(self) -> None:
        """Cut the power, boot, and wait until the filesystem is mounted again."""
        self.vm.kill()
        self.vm.start(BOOT_S)
        self.require_mounted()

    def require_mounted(self) -> None:
        mounted = until(lambda: self.run("mountpoint -q /data")[0] == 0, CALL_S)
        assert mounted, self.run("lsblk; journalctl -b --no-pager -o cat | tail -60")[1]

    def end(self, ending: str) -> None:
        """Cut the power, or kill what was stopped with its guard; wait until the filesystem is mounted again."""
        if ending == "cut":
            self.cut()
            return
        self.shell("pkill -KILL -f [s]topped_at.py")
        self.run(f"elastio free; {COMPOSE}; udevadm settle; {self.open}")
        self.require_mounted()

    def is_composed(self) -> bool:
        return self.run("lsblk -nso NAME $(findmnt -no SOURCE /data) | grep -q bcache")[0] == 0

    def stop_before(self, number: int, command: str) -> bool:
        """Whether the command was stopped before the change with this number; it ended otherwise."""
        run = f"python3 {STOPPED_AT} {number} {REACHED} {command}"
        self.shell(f"rm -f {REACHED} {REACHED}.code; ({run}; echo $? > {REACHED}.code) >/run/said 2>&1 &")
        # Waited for in the guest: to ask again and again would slow it down.
        self.shell(f"until test -e {REACHED} || test -e {REACHED}.code; do sleep 0.1; done")
        return self.run(f"test -e {REACHED}")[0] == 0

    def require_same(self, *, is_composed: bool, has_tombstone: bool = False) -> None:
        """Every byte of the volume and every file is what it was, and it is mounted where it should be."""
        assert self.is_composed() == is_composed
        self.shell(FORGET)
        if not has_tombstone and not (is_composed and self.layout in KEEPING):
            assert self.shell(self.sum_of("$V")).split()[0] == self.image
        assert self.sums() == self.files
        if is_composed:
            raw = f"D=/dev/$(ls /sys/block | grep bcache); {self.close}; {self.sum_of('$D')}; {self.open}"
            assert self.shell(raw).split()[0] == self.image
            assert self.shell(USE_RAW) == "", "the volume itself cannot be used"
        else:
            left = "ls /etc/elastio/adopted 2>/dev/null; ls /sys/block | grep bcache; dmsetup ls | grep ^elastio-; true"
            assert self.shell(left) == ""

    def adopt(self) -> None:
        self.change(f"elastio device adopt {self.target} $O --yes")

    def release(self) -> None:
        self.change(f"elastio device release {self.target} --yes")

    def follow(self, first: str, nth: int = 0) -> None:
        """Run the page's block with this first line, of several the nth; every question is answered with yes."""
        script = READERS.sub(lambda found: NAMES[found[0]], block(ADOPTION, first, nth))
        self.shell(f"export V H U; yes | sh -ec {shlex.quote(script)}")

    def change(self, command: str) -> None:
        self.shell(f"{self.close} && {command} && {self.open}" if self.is_closed else command)


@pytest.fixture(scope="module")
def guest() -> Iterator[Adopted]:
    with scratch_folder("elastio-adopt-") as name:
        folder = Path(name)
        disks = [new_disk(folder, serial, size) for serial, size in SIZES.items()]
        image = build_guest_image(extra=PACKAGES)
        with define_machine(image, disks=disks, directory=folder / "vm", memory_mib=768) as vm:
            vm.start(BOOT_S)
            program = resources.files("elastio_testbed.guest").joinpath("stopped_at.py").read_bytes()
            vm.agent.write_file(STOPPED_AT, program)
            yield Adopted(vm, folder=folder)


@pytest.fixture(scope="module")
def ext4(guest: Adopted) -> Adopted:
    guest.make("ext4")
    return guest


def test_what_is_adopted_and_released_is_what_it_was(ext4: Adopted) -> None:
    ext4.adopt()
    ext4.require_same(is_composed=True)
    ext4.cut()
    ext4.require_same(is_composed=True)
    assert "not removed" in ext4.run("apt-get -qq -y remove elastio")[1]
    ext4.release()
    ext4.require_same(is_composed=False)
    assert ext4.shell("tr -d '\\0' < $H | wc -c") == "0", "nothing of the head is left"


def test_the_head_alone_looks_like_nothing(ext4: Adopted) -> None:
    ext4.adopt()
    assert ext4.run("blkid -p $H")[0] != 0
    assert ext4.shell("wipefs --no-act $H; udevadm info $H | grep ID_FS || true") == ""
    assert ext4.run("echo $H > /sys/fs/bcache/register")[0] != 0
    assert ext4.run("elastio device create $H --force --yes")[0] != 0
    ext4.release()


def test_after_a_release_nothing_old_is_read_by_whoever_had_the_volume_open(ext4: Adopted) -> None:
    """What the volume's own page cache had is older than what was written to the adaptive device."""
    ext4.adopt()
    ext4.shell('systemd-run --unit=holder sh -c "exec 9<$V; cat <&9 >/dev/null; exec sleep 600" && sleep 2')
    ext4.shell("mount -o remount,rw /data && echo new > /data/new && sync && mount -o remount,ro /data")
    ext4.shell("umount /data; elastio device release $V --yes")
    ext4.shell("dd if=$V bs=1M status=none iflag=direct | sha256sum > /run/direct; sha256sum < $V | cmp - /run/direct")
    ext4.shell("systemctl stop holder; e2fsck -fn $V; mount /data")
    assert ext4.shell("cat /data/new") == "new"
    ext4.files, ext4.image = ext4.sums(), ext4.shell("umount /data; sha256sum < $V; mount /data").split()[0]


def end_before_each_change(guest: Adopted, command: str, ending: str) -> None:
    """It goes on, or is what it was."""
    number, options = 0, "$O --yes" if command == "adopt" else "--yes"
    while True:
        if command == "release" and not guest.is_composed():
            guest.adopt()
        if guest.is_closed:
            guest.shell(guest.close)
        if not guest.stop_before(number, f"device {command} {guest.target} {options}"):
            break
        guest.end(ending)
        is_composed = guest.is_composed()
        guest.require_same(is_composed=is_composed)
        if is_composed and command == "adopt":
            guest.release()
        number += 1
    assert number > 10, "it has as many changes at least"
    guest.shell(guest.open)
    guest.require_same(is_composed=command == "adopt")
    if command == "adopt":
        guest.release()


@pytest.fixture(scope="module", params=CUT_CASES)
def stepped(guest: Adopted, request: pytest.FixtureRequest) -> Iterator[Adopted]:
    """The layouts whose tombstones differ in length."""
    layout, filesystem = request.param.split("/")
    guest.clear()
    found = Adopted(guest.vm, SMALL_DISKS, layout)
    found.make(filesystem)
    yield found
    found.clear()


@pytest.mark.parametrize("command", ["adopt", "release"])
@pytest.mark.parametrize("ending", ["cut", "kill"])
def test_ended_before_any_change_it_goes_on_or_is_what_it_was(stepped: Adopted, command: str, ending: str) -> None:
    end_before_each_change(stepped, command, ending)


@pytest.mark.parametrize("command", ["adopt", "release"])
def test_a_volume_group_outlives_a_killed_command(guest: Adopted, command: str) -> None:
    guest.clear()
    found = Adopted(guest.vm, SMALL_DISKS, "pv")
    found.make("ext4")
    end_before_each_change(found, command, "kill")
    found.shell(f"{found.close}; vgremove -fy pool")


@pytest.fixture(scope="module")
def moved(stepped: Adopted) -> Iterator[Adopted]:
    stepped.adopt()
    yield stepped
    stepped.release()


@pytest.mark.parametrize("what", ["write", "remove"])
@pytest.mark.parametrize("ending", ["cut", "kill"])
def test_ended_before_any_change_a_tombstone_is_there_as_a_whole_or_not_at_all(
    moved: Adopted, what: str, ending: str
) -> None:
    """Under the mounted file system, which is the same meanwhile, and at the next boot."""
    number, stops = 0, True
    while stops:
        if what == "remove":
            moved.shell(f"{TOMBSTONE} write")
        stops = moved.stop_before(number, f"tombstone {what}")
        if stops:
            moved.end(ending)
        has_tombstone = moved.shell(RECOGNIZE) == ""
        moved.require_same(is_composed=True, has_tombstone=has_tombstone)
        assert stops or has_tombstone == (what == "write")
        if has_tombstone:
            moved.shell(f"{TOMBSTONE} remove")
            moved.require_same(is_composed=True)
        number += 1
    assert number > 5, "it has as many changes at least"


def test_xfs_is_adopted_and_released(guest: Adopted) -> None:
    guest.clear()
    guest.make("xfs")
    guest.adopt()
    guest.require_same(is_composed=True)
    guest.cut()
    guest.require_same(is_composed=True)
    guest.release()
    guest.require_same(is_composed=False)


def test_a_logical_volume_is_adopted_with_a_head_that_is_named(guest: Adopted) -> None:
    guest.run("umount /data")
    guest.shell(MAKE_LOGICAL)
    logical = Adopted(guest.vm, LOGICAL)
    logical.make("ext4")
    logical.adopt()
    logical.require_same(is_composed=True)
    logical.cut()
    logical.require_same(is_composed=True)
    assert logical.run("lvremove -fy group/data")[0] != 0
    logical.release()
    logical.require_same(is_composed=False)
    logical.cut()
    logical.require_same(is_composed=False)


@pytest.fixture(scope="module")
def grouped(guest: Adopted) -> Adopted:
    guest.run("umount /data; vgremove -fy group")
    guest.shell(f"{MAKE_LOGICAL.replace('256m', '128m')}; lvremove -y group/head")
    found = Adopted(guest.vm, GROUPED)
    found.make("ext4")
    return found


def test_a_logical_volume_gets_a_head_in_its_group_that_may_move(grouped: Adopted) -> None:
    assert "group/elastio-head-" in grouped.shell("elastio device adopt /data --dry-run")
    assert grouped.shell(LEFT).split() == ["data"]
    grouped.adopt()
    grouped.require_same(is_composed=True)
    name = next(name for name in grouped.shell(LEFT).split() if name != "data")
    assert grouped.run(f"blkid -p /dev/group/{name}")[0] != 0
    assert grouped.run(f"lvremove -y group/{name}")[0] != 0
    more = FIND.format(MORE)
    grouped.shell(f"M={more}; pvcreate -qy $M && vgextend -q group $M && pvmove -i 1 -n {name} {FIND.format(GROUP)} $M")
    grouped.shell(f"lvrename group {name} moved && lvchange --setautoactivation n group/moved")
    grouped.cut()
    grouped.require_same(is_composed=True)
    grouped.release()
    grouped.require_same(is_composed=False)
    assert grouped.shell(LEFT).split() == ["data"]
    grouped.cut()
    grouped.require_same(is_composed=False)


@pytest.mark.parametrize("command", ["adopt", "release"])
def test_a_head_in_a_group_outlives_no_killed_command(grouped: Adopted, command: str) -> None:
    end_before_each_change(grouped, command, "kill")
    assert grouped.shell(LEFT).split() == ["data"]
