"""What `elastio device adopt` is going to do, and every reason against it. Read-only.

What cannot be proved is refused: nothing was changed then.
"""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from elastio.config.paths import DEFAULT_PATH, DEFAULT_STATE_DIR
from elastio.core.model import Serial
from elastio.errors import ConfigError, DeviceBusyError, HostError, NotOursError
from elastio.host import mounts, superblock, tombstone
from elastio.host.blockdev import Disk, disk_of, run_wipefs, why_no_backing
from elastio.host.commands import FOLDERS, Run, is_installed
from elastio.host.heads import LEAST_BYTES, PHYSICAL_VOLUME, Head, Volume, behind
from elastio.host.sysfs import Sysfs
from elastio.host.usage import UseKind, described, in_use, mounted_at
from elastio.units import SECTOR, format_size
from elastio_setup import adopted_record, fstab, head_behind, head_volume, kernel_checks
from elastio_setup.adopt_contents import BTRFS, CONTENTS, LUKS, PROGRAMS, require_sound, saved_sectors
from elastio_setup.adopted_volume import describe, is_logical, path_of, serials, with_uuid
from elastio_setup.check_result import Machine, Verdict
from elastio_setup.format_backing import name_of, require_blank
from elastio_setup.fstab import Entry
from elastio_setup.head_volume import FreeExtents
from elastio_setup.physical_volume import group_on, is_in_group, require_usual

FSTAB, CRYPTTAB = "etc/fstab", "etc/crypttab"
RULES_FILE, UNIT = "59-elastio-adopted.rules", "elastio-compose@.service"
# What the initramfs mounts, the boot loader reads, or adopting and boosting need themselves.
NEEDED = (Path("/usr"), Path("/boot"), DEFAULT_PATH.parent, DEFAULT_STATE_DIR, Path(sys.prefix))
# Sources of fstab and crypttab that name the device, or the filesystem on it not by its UUID.
BY_DEVICE = {
    "PARTUUID=": "/dev/disk/by-partuuid/",
    "PARTLABEL=": "/dev/disk/by-partlabel/",
    "LABEL=": "/dev/disk/by-label/",
}


@dataclass(frozen=True, slots=True)
class AdoptPlan:
    """`device` and `head_device` are the kernel's names. `place`: where it is mounted and will be again; or None.

    `head_device` may be `device` itself (`head_behind`). `head_serials`: those of the disks below the head. `extents`:
    where its logical volume is going to be made; then `head_device` is empty. `is_at_boot`: it is in use now, and is
    adopted when nothing has mounted it yet.
    """

    device: str
    volume: Volume
    place: Path | None
    head_device: str
    head: Head
    block_bytes: int
    head_serials: tuple[str, ...] = ()
    extents: FreeExtents | None = None
    is_at_boot: bool = False

    @property
    def shown(self) -> str:
        """What an operator has to know before."""
        size = format_size(self.volume.size_sectors * SECTOR)
        around = f"unmount {self.place}, and mount it again by /etc/fstab\n" if self.place else ""
        if self.is_at_boot:
            around = f"at the next boot, after its check and before it is mounted at {self.place}\n"
        what = {LUKS: "data", PHYSICAL_VOLUME: "volume group"}.get(self.volume.filesystem, "filesystem")
        written = "its first 4 KiB move to the head" if self.head.keeps_tombstone else "nothing on it is written"
        filesystem = f"{self.volume.filesystem} with UUID {self.volume.uuid}"
        return (
            f"/dev/{self.device}: {filesystem}, {size}; {written}\n"
            f"{self._shown_head}\n{around}"
            f"afterwards the {what} is on a /dev/bcacheN, and /dev/{self.device} is not used directly"
        )

    @property
    def _shown_head(self) -> str:
        if first := self.head.first_sector:
            size, at = format_size(LEAST_BYTES), format_size(first * SECTOR)
            return f"{size} of /dev/{self.device} from {at} on become the head: the filesystem cannot grow over it"
        if self.extents is None:
            return f"/dev/{self.head_device}: {format_size(LEAST_BYTES)} of it become the head"
        size = format_size(self.extents.sectors * SECTOR)
        name = f"{self.extents.group}/{head_volume.name_of(self.head)}"
        return f"{name}: a logical volume of {size} is made on {self.extents.disk} for the head"


def plan(target: Path, head_target: Path | None, sysfs: Sysfs, run: Run, *, is_at_boot: bool = False) -> AdoptPlan:
    """Check everything. Raises ConfigError, DeviceBusyError, NotOursError or HostError; the code names the check."""
    _require_machine(sysfs, run)
    device, place = _target(target, sysfs)
    _require_kind(device, sysfs)
    if is_at_boot:
        place = _mounted(device, place, sysfs)
    else:
        _require_uses(device, place, sysfs)
    for mounted in mounted_at(sysfs, device):
        _require_late(mounted)
    volume = _volume(device, sysfs, run)
    group = group_on(device, sysfs, run) if volume.filesystem == PHYSICAL_VOLUME else ""
    _require_tables(device, volume, place, group, sysfs)
    saved = saved_sectors(device, volume, sysfs)
    if place is None:
        require_sound(device, volume, sysfs, run)
    block_bytes = int(sysfs.read(f"sys/block/{disk_of(sysfs, device)}/queue/logical_block_size"))
    names = (str(uuid.uuid4()), str(uuid.uuid4()))
    if head_target is None and is_logical(sysfs, device):
        extents = head_volume.free_extents(sysfs, device, block_bytes, run)
        head = Head(*names, volume, extents.sectors, saved_sectors=saved)
        found = serials(sysfs, extents.disk_device)
        return AdoptPlan(device, volume, place, "", head, block_bytes, found, extents, is_at_boot)
    if head_target is None:
        head = Head(*names, volume, LEAST_BYTES // SECTOR, saved_sectors=saved)
        head = behind(head, head_behind.place(sysfs, device, volume, run))
        found = serials(sysfs, device)
        return AdoptPlan(device, head.volume, place, device, head, block_bytes, found, is_at_boot=is_at_boot)
    head_device, sectors = _head_device(path_of(head_target, sysfs), device, block_bytes, sysfs, run)
    head = Head(*names, volume, sectors, saved_sectors=saved)
    found = serials(sysfs, head_device)
    return AdoptPlan(device, volume, place, head_device, head, block_bytes, found, is_at_boot=is_at_boot)


def require_same_head(found: AdoptPlan, sysfs: Sysfs, run: Run) -> None:
    """Check the device for the head once more, just before it is written. Raises as `plan` does, or NotOursError."""
    if first := found.head.first_sector:
        if serials(sysfs, found.device) != found.head_serials:
            raise NotOursError(f"/dev/{found.device} is another device now: nothing was changed", code="head.other")
        if head_behind.place(sysfs, found.device, found.volume, run) != first:
            raise NotOursError("the filesystem has another size now: nothing was changed", code="head.other")
        return
    device, sectors = _head_device(sysfs.path(f"dev/{found.head_device}"), found.device, found.block_bytes, sysfs, run)
    if (sectors, serials(sysfs, device)) != (found.head.size_sectors, found.head_serials):
        text = f"/dev/{found.head_device} is another device now: nothing was changed"
        raise NotOursError(text, code="head.other")


def _require_machine(sysfs: Sysfs, run: Run) -> None:
    """What hides and composes the volume at boot is installed, and bcache without a cache has no known bug here."""
    wanted = ((RULES_FILE, kernel_checks.RULES), (UNIT, kernel_checks.UNITS), ("dmsetup", FOLDERS))
    for name, folders in wanted:
        if not is_installed(sysfs, name, folders):
            raise HostError(f"{name} is not installed: see docs/how-to/adopt.md", code="adopt.files")
    kernel = kernel_checks.kernel(Machine(sysfs, run))
    if kernel.verdict is Verdict.FAIL or "double_completion" in kernel.code:
        raise HostError(f"{kernel.sentence}: {kernel.remedy}", code="adopt.kernel")


def _target(target: Path, sysfs: Sysfs) -> tuple[str, Path | None]:
    """The kernel's name of the device, and where it is mounted if that was named."""
    if target.is_dir():
        mount = next((m for m in reversed(mounts.read(sysfs)) if m.place == str(target.absolute())), None)
        if mount is None:
            raise ConfigError(f"nothing is mounted at {target}: mount it, or name the device", code="adopt.not_mounted")
        _require_late(mount.place)
        device = sysfs.link(f"sys/dev/block/{mount.number}") or ""
        if mount.kind == BTRFS:  # its number is no device's
            device = mounts.node_name(sysfs, mount.source)
        if not device:
            text = f"the {mount.kind} at {target} does not lie on one block device: nothing was changed"
            raise NotOursError(text, code="adopt.filesystem")
        return device, Path(mount.place)
    return name_of(path_of(target, sysfs), sysfs), None


def _require_kind(device: str, sysfs: Sysfs) -> None:
    """A disk, a partition or a logical volume that is not bcache's and has no head."""
    node, directory = sysfs.path(f"dev/{device}"), f"sys/class/block/{device}"
    if device.startswith("bcache"):
        raise NotOursError(f"/dev/{device} is an adaptive device already", code="adopt.bcache")
    if why_no_backing(device) and not is_logical(sysfs, device):
        text = f"/dev/{device} is no disk, partition or logical volume: RAID, multipath and others are refused"
        if sysfs.read_or(f"{directory}/dm/uuid", "").startswith("CRYPT-"):
            name, below = sysfs.read(f"{directory}/dm/name"), " ".join(sysfs.names(f"{directory}/slaves"))
            text = f"LUKS is adopted closed: unmount it, `cryptsetup close {name}`, and name /dev/{below}"
        raise NotOursError(text, code="adopt.virtual")
    if sysfs.exists(f"{directory}/bcache") or superblock.read(node) is not None:
        raise NotOursError(f"/dev/{device} has a superblock of bcache", code="adopt.bcache")
    tombstone.require_none(node, f"/dev/{device}", "adopt.is_head")
    if sysfs.read_or(f"{directory}/ro", "0") != "0":
        raise HostError(f"/dev/{device} is read-only", code="device.read_only")


def _require_uses(device: str, place: Path | None, sysfs: Sysfs) -> None:
    """Raises DeviceBusyError unless the only use is one mount at `place`, or there is none."""
    found = in_use(sysfs, device)
    if place is not None and [(use.kind, use.by) for use in found] == [(UseKind.MOUNT, str(place))]:
        return
    if place is None and [use.kind for use in found] == [UseKind.MOUNT]:
        text = f"/dev/{device} {found[0]}: name that place, or unmount it; nothing was changed"
        raise DeviceBusyError(text, code="adopt.mounted")
    if found:
        text = f"/dev/{device} {described(sysfs, found)}: nothing was changed"
        raise DeviceBusyError(text, code="adopt.used")


def _mounted(device: str, place: Path | None, sysfs: Sysfs) -> Path:
    """Where it is mounted. Raises DeviceBusyError if it is used in another way, too; after a boot it may be again."""
    found = in_use(sysfs, device)
    if others := tuple(use for use in found if use.kind is not UseKind.MOUNT):
        raise DeviceBusyError(f"/dev/{device} {described(sysfs, others)}: nothing was changed", code="adopt.used")
    if not found:
        raise ConfigError(f"/dev/{device} is not in use: adopt it without --at-boot", code="at_boot.unused")
    return place or Path(found[0].by)


def _require_late(place: str) -> None:
    """Raises NotOursError if what is mounted there is needed before it can be adopted, or by elastio itself."""
    folders = (*NEEDED, *(folder.resolve() for folder in NEEDED))
    needed = next((folder for folder in folders if Path(place) in (folder, *folder.parents)), None)
    if needed is not None:
        text = f"{needed} lies on what is mounted at {place}, and is needed before that is composed, or for it"
        raise NotOursError(f"{text}: give the data a volume of its own", code="adopt.root")


def _volume(device: str, sysfs: Sysfs, run: Run) -> Volume:
    volume = describe(sysfs, device, run)
    if volume is None or volume.filesystem not in CONTENTS:
        shown = volume.filesystem if volume else "no single filesystem"
        text = f"/dev/{device} has {shown} on it, and only {', '.join(CONTENTS)} are adopted: nothing was changed"
        raise NotOursError(text, code="adopt.filesystem")
    for program in PROGRAMS[volume.filesystem]:  # what is mounted is checked later, at a boot maybe
        if not is_installed(sysfs, program):
            text = f"{program} is not installed, which checks what is on /dev/{device}: see docs/how-to/adopt.md"
            raise HostError(text, code="adopt.files")
    if not adopted_record.is_name(volume.uuid):  # that of LUKS is a text
        text = f"/dev/{device} has the UUID {volume.uuid!r}, which no record can have as its name: nothing was changed"
        raise NotOursError(text, code="adopt.uuid")
    if not volume.serial:
        text = f"the disk of /dev/{device} shows no serial, by which it could be told from a copy: nothing was changed"
        raise NotOursError(text, code="adopt.serial")
    others = sorted(set(with_uuid(sysfs, volume.uuid, run)) - {device})
    if others:
        text = f"/dev/{others[0]} has the same filesystem as /dev/{device}: detach the copy; nothing was changed"
        raise NotOursError(text, code="adopt.copy")
    if adopted_record.load(sysfs, volume.uuid) is not None:
        text = f"an adoption of /dev/{device} was begun: `elastio device release {volume.uuid}` undoes it"
        raise NotOursError(text, code="adopt.begun")
    return volume


def _require_tables(device: str, volume: Volume, place: Path | None, group: str, sysfs: Sysfs) -> None:
    """Raises ConfigError for a line that would use the device itself at the next boot, or if none mounts `place`.

    `group`: the volume group on it; else empty.
    """
    found = fstab.entries(fstab.read(sysfs.path(FSTAB)))
    opened = fstab.crypt_entries(fstab.read(sysfs.path(CRYPTTAB)))
    by_uuid = [entry for entry in found if _is_on(entry, volume, group)]
    crypts = [entry for entry in opened if _is_on(entry, volume, group)]
    for table, entry in [(FSTAB, entry) for entry in found] + [(CRYPTTAB, entry) for entry in opened]:
        named = entry.source.replace('"', "")
        source = next((to + named[len(by) :] for by, to in BY_DEVICE.items() if named.startswith(by)), named)
        is_named = entry in by_uuid or entry in crypts
        if not is_named and mounts.node_name(sysfs, source) == device:
            text = f"/{table} names {entry.source}: write UUID={volume.uuid} there; nothing was changed"
            raise ConfigError(text, code="adopt.fstab")
    on_it = [entry for crypt in crypts for entry in found if entry.source == f"/dev/mapper/{crypt.place}"]
    for entry in (*by_uuid, *crypts, *on_it):
        if group:
            require_usual(entry, group)
        _require_late(entry.place)
        raw = [
            option
            for option in entry.options
            if option in ("initramfs", "x-initrd.mount") or option.startswith("device=")
        ]
        if raw:
            text = f"the line for {entry.place} has {raw[0]}, which is for the volume itself: nothing was changed"
            raise ConfigError(text, code="adopt.fstab")
    for entry in (*by_uuid, *crypts, *on_it, *fstab.dependents(found, (*by_uuid, *on_it))):
        if "nofail" not in entry.options:
            table = CRYPTTAB if entry in crypts else FSTAB
            text = f"the line for {entry.place} in /{table} lacks nofail, without which the boot waits for the head"
            raise ConfigError(text, code="fstab.nofail")
    if place is not None and not any(entry.place == str(place) for entry in by_uuid):
        text = f"/etc/fstab has no line that mounts UUID={volume.uuid} at {place}: add it; nothing was changed"
        raise ConfigError(text, code="adopt.fstab")


def _is_on(entry: Entry, volume: Volume, group: str) -> bool:
    return entry.is_of(volume.uuid, "") or (group != "" and is_in_group(entry, group))


def _head_device(path: Path, volume: str, block_bytes: int, sysfs: Sysfs, run: Run) -> tuple[str, int]:
    """The kernel's name of the device for the head, and its size in sectors. Raises unless it is blank and unused."""
    device = name_of(path, sysfs)
    node, directory = sysfs.path(f"dev/{device}"), f"sys/class/block/{device}"
    if device == volume:
        raise ConfigError("the head cannot lie on the volume itself", code="head.same")
    if why_no_backing(device) and not is_logical(sysfs, device):
        raise NotOursError(f"/dev/{device} is no disk, partition or logical volume", code="head.virtual")
    found = in_use(sysfs, device)
    if found:
        raise DeviceBusyError(f"/dev/{device} {', '.join(map(str, found))}: nothing was changed", code="head.used")
    sectors = int(sysfs.read(f"{directory}/size"))
    own_block = int(sysfs.read(f"sys/block/{disk_of(sysfs, device)}/queue/logical_block_size"))
    if sectors * SECTOR < LEAST_BYTES or sysfs.read_or(f"{directory}/ro", "0") != "0" or own_block > block_bytes:
        text = (
            f"/dev/{device} is read-only, smaller than {format_size(LEAST_BYTES)}, or has larger blocks than the volume"
        )
        raise HostError(text, code="head.small")
    tombstone.require_none(node, f"/dev/{device}", "head.taken")
    signatures = run_wipefs(node, run)
    if signatures:
        raise NotOursError(f"/dev/{device} is not blank ({', '.join(signatures)})", code="head.not_blank")
    require_blank(Disk(device, Serial(""), sectors * SECTOR, node), f"/dev/{device}", "head.not_blank", is_forced=False)
    return device, sectors
