"""A guest whose data volume had its file system before it got an adaptive device."""

from __future__ import annotations

import json
from pathlib import Path

from elastio.config.paths import ADOPTED
from elastio.host.heads import LEAST_BYTES
from elastio_testbed.hypervisor import Disk
from elastio_testbed.machine import DATA, Guest, new_disk

# What makes the volume of each layout on the data disk $D, and where it is.
KEY = "/etc/safe.key"
LUKS = "/dev/mapper/safe"
OPENED = {"luks": LUKS, "pv": "/dev/pool/data"}
MAKE_LUKS = f"""\
echo secret > {KEY} && cryptsetup luksFormat -q --pbkdf pbkdf2 --pbkdf-force-iterations 1000 $D {KEY} &&
cryptsetup open --key-file {KEY} $D safe && U=$(cryptsetup luksUUID $D) &&
echo safe UUID=$U {KEY} luks,nofail > /etc/crypttab &&
rm -f /etc/systemd/system-generators/systemd-cryptsetup-generator && systemctl daemon-reload"""
# A cloud has enlarged the volume: the head lies behind the file system.
ENLARGED = "enlarged"
SHORTEN = "resize2fs -f $D $(( $(blockdev --getsize64 $D) / 1024 - 65536 ))K"
LAYOUTS = {
    "disk": ("true", "$D"),
    ENLARGED: ("true", "$D"),
    "partition": ("echo ,,L | sfdisk -q --label gpt $D && udevadm settle", "${D}1"),
    "lv": ("pvcreate -qy $D && vgcreate -qy group $D && lvcreate -qy -l 100%FREE -n data group", "/dev/group/data"),
    "luks": (MAKE_LUKS, "$D"),
    "pv": ("pvcreate -qy $D && vgcreate -qy pool $D && lvcreate -qy -Wn -l 100%FREE -n data pool", "$D"),
}
# Layout and file system of the volumes that are tried.
CASES = (
    *("disk/ext4", "disk/xfs", "disk/btrfs", "partition/ext4", "partition/xfs", "lv/ext4", "lv/xfs", "luks/ext4"),
    *("pv/ext4", "enlarged/ext4"),
)
PACKAGES = ("lvm2", "cryptsetup-bin", "btrfs-progs")
# What has to be closed before the volume is in nobody's hands, and opens it.
CLOSE = {
    "luks": f"umount {DATA} && systemctl stop systemd-cryptsetup@safe; cryptsetup close safe; ! test -b {LUKS}",
    "pv": f"umount {DATA} && vgchange -qqan pool",
}
# With nofail, mount(8) succeeds also where it finds no volume; and systemd may mount it meanwhile.
MOUNT = f"udevadm settle; {{ mountpoint -q {DATA} || mount {DATA}; mountpoint -q {DATA}; }}"
OPEN = {"luks": f"systemctl start systemd-cryptsetup@safe && {MOUNT}", "pv": f"vgchange -qqay pool && {MOUNT}"}
# What a guest that has never had the volume does to see its file system.
ELSEWHERE = {
    "luks": f"echo secret > {KEY} && cryptsetup open --key-file {KEY} $D safe",
    "lv": "vgchange -qqay group",
    "pv": "vgchange -qqay pool",
}
# Layouts whose volume has its tombstone until the release: bytes of it that differ until then.
KEEPING = {"pv": 4096}


class AdoptedGuest(Guest):
    """The head lies on a disk of its own, but for ENLARGED.

    Until `prepare`: `layout`, a key of LAYOUTS, and `files` that are copied.
    """

    layout = "disk"
    files = ""

    def be_made_as(self, case: str) -> None:
        """Until `prepare`: one of CASES."""
        self.layout, self.filesystem = case.split("/")

    @property
    def head_serial(self) -> str:
        return f"{self.name}head"

    def backing_device(self) -> str:
        """The kernel's name of the composed device; empty while there is none."""
        return self.check(["sh", "-c", "ls -d /sys/block/dm-*/bcache 2>/dev/null | cut -d/ -f4"])

    @property
    def mounted_elsewhere(self) -> str:
        """A script that mounts the disk $D without elastio, in another guest."""
        opened = OPENED.get(self.layout, LAYOUTS[self.layout][1])
        return f"{ELSEWHERE.get(self.layout, 'true')} && udevadm settle && mkdir -p {DATA} && mount {opened} {DATA}"

    @property
    def is_closed(self) -> bool:
        """Whether it is adopted and released by its device, not by its mount point."""
        return self.layout in CLOSE

    @property
    def close(self) -> str:
        return CLOSE.get(self.layout, f"umount {DATA}")

    @property
    def open(self) -> str:
        return OPEN.get(self.layout, f"mount {DATA}")

    def volume(self) -> str:
        """The node of the volume."""
        return self.check(["sh", "-c", f"D=/dev/{self.disk_name()}; echo {LAYOUTS[self.layout][1]}"])

    def _more_disks(self, folder: Path) -> list[Disk]:
        return [new_disk(folder, self.head_serial, LEAST_BYTES)]

    def _make_adaptive(self, device: str) -> str:
        """The volume: it gets its adaptive device when it has its file system."""
        self.check(["sh", "-c", f"D={device}; {LAYOUTS[self.layout][0]}"], timeout_s=120)
        return OPENED.get(self.layout) or self.volume()

    def _mount(self, device: str) -> None:
        """By /etc/fstab, as its owner did; then the adaptive device is put in front of the volume."""
        if self.layout == ENLARGED:
            self.check(["sh", "-c", f"D={device}; {SHORTEN}"], timeout_s=120)
        uuid = self.check(["blkid", "-p", "-s", "UUID", "-o", "value", device])
        line = f"UUID={uuid} {DATA} {self.filesystem} defaults,nofail 0 2"
        self.check(["sh", "-c", f"echo '{line}' >> /etc/fstab; systemctl daemon-reload; udevadm settle; mount {DATA}"])
        if self.files:
            self.check(["sh", "-c", f"cp -r {self.files} {DATA}/ && sync"], timeout_s=120)
        self.before_adoption()
        head = f"/dev/{self.disk_name(self.head_serial)}"
        target = DATA
        if self.is_closed:
            target = self.volume()
            uuid = self.check(["sh", "-c", f"{self.close}; blkid -p -s UUID -o value {target}"])
        self.adopt(target, head)
        if self.is_closed:
            self.check(["sh", "-c", self.open], timeout_s=120)
        self.check(["mountpoint", "-q", DATA])  # with nofail, mount(8) succeeds also where it finds no volume
        record = json.loads(self.vm.agent.read_file(f"/{ADOPTED}/{uuid}"))
        self.backing_uuid = record["head"]["backing_uuid"]

    def adopt(self, target: str, head: str) -> None:
        """When it returns, the volume is composed."""
        named = [] if self.layout == ENLARGED else ["--head", head]
        self.check(["elastio", "device", "adopt", target, *named, "--yes"], timeout_s=180)

    def before_adoption(self) -> None:
        """Called when the file system is mounted and has its files."""
