"""The head of a logical volume on free extents of its volume group: a logical volume of its own, made and removed here.

The record names the group before the logical volume is made. Its tag has the UUID of the head, and is in the same
commit of the group's metadata: what a killed lvcreate leaves is found by it. Name, size and place may change. In a
clone of the group the tag is there, too, and the group has another UUID (vgimportclone(8)).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import heads
from elastio.host.blockdev import disk_of, is_zero
from elastio.host.commands import Run, is_installed
from elastio.host.heads import LEAST_BYTES, Head
from elastio.host.sysfs import Sysfs
from elastio.host.usage import in_use
from elastio.units import SECTOR, format_size
from elastio_setup.adopted_record import Record, Step
from elastio_setup.adopted_volume import LOGICAL_VOLUME, is_logical

LVM_S = 60.0
UUID_LETTERS = 32  # of a UUID of LVM, without hyphens
# In device-mapper's names: a hyphen of a name is doubled there.
_BETWEEN = re.compile("(?<!-)-(?!-)")
LAYOUTS = ("linear", "striped")
ALLOCATABLE = ("allocatable", "1")  # the second by binary_values_as_numeric of lvm.conf(5)
# lvmreport(7). The sixth letter of vg_attr: clustered or shared; the third and fourth: exported, partial.
GROUP_FIELDS = ("vg_name", "vg_uuid", "vg_attr", "vg_extent_size", "pv_name", "pv_free", "pv_allocatable")
VOLUME_FIELDS = ("vg_name", "vg_uuid", "vg_attr", "lv_name", "lv_uuid", "lv_layout", "lv_role", "lv_tags")


@dataclass(frozen=True, slots=True)
class FreeExtents:
    """Where a head's logical volume is going to be: so many extents of one physical volume `disk`, a node's path.

    `disk_device` is the kernel's name of that.
    """

    group: str
    group_uuid: str
    disk: str
    disk_device: str
    extents: int
    sectors: int


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical volume. `is_alone`: it is no snapshot, and has none. `is_plain`: it has extents of its own, too.

    `may_change`: its group can be changed.
    """

    group: str
    group_uuid: str
    name: str
    uuid: str
    tags: tuple[str, ...]
    may_change: bool
    is_alone: bool
    is_plain: bool

    @property
    def mapped(self) -> str:
        """device-mapper's UUID."""
        return LOGICAL_VOLUME + (self.group_uuid + self.uuid).replace("-", "")


def name_of(head: Head) -> str:
    """The name that it is made with."""
    return f"elastio-head-{head.uuid[:8]}"


def tag_of(head: Head) -> str:
    return f"elastio-head-{head.uuid}"


def free_extents(sysfs: Sysfs, device: str, block_bytes: int, run: Run) -> FreeExtents:
    """Free extents of the group of a logical volume `dm-N`, on its own disks if they have some. Read-only.

    `block_bytes`: the largest blocks that the head may have. Raises HostError or NotOursError.
    """
    if not is_installed(sysfs, "lvm"):
        raise HostError("lvm2 is not installed, which makes a head in the volume group", code="adopt.files")
    mapped = sysfs.read(f"sys/block/{device}/dm/uuid")
    volume = next((found for found in _volumes(run) if found.mapped == mapped), None)
    if volume is None or not volume.is_plain:
        shown = f"{volume.group}/{volume.name}" if volume else f"/dev/{device}"
        text = (
            f"{shown} is thin, a RAID, cached, a snapshot or has some: make a volume like it, and name it with --head"
        )
        raise NotOursError(f"{text}; nothing was changed", code="group.kind")
    rows = [row for row in report("pvs", GROUP_FIELDS, "pv", run) if row["vg_uuid"] == volume.group_uuid]
    if not all(may_change(row) for row in rows):
        text = f"the volume group {volume.group} is read-only, exported, partial or shared: nothing was changed"
        raise NotOursError(text, code="group.other")
    places = [
        found for row in rows if row["pv_allocatable"] in ALLOCATABLE and (found := _place(sysfs, row, block_bytes))
    ]
    below = sysfs.names(f"sys/block/{device}/slaves")
    if not places:
        text = f"the volume group {volume.group} has no {format_size(LEAST_BYTES)} free on one disk for the head"
        raise HostError(f"{text}: nothing was changed", code="group.full")
    return min(places, key=lambda place: place.disk_device not in below)


def _place(sysfs: Sysfs, row: dict[str, str], block_bytes: int) -> FreeExtents | None:
    """The extents on this physical volume; None if it has too few, or too large blocks."""
    extent = int(row["vg_extent_size"])
    extents = -(-LEAST_BYTES // SECTOR // extent)
    disk = sysfs.path(row["pv_name"].lstrip("/")).resolve().name
    own_block = int(sysfs.read(f"sys/block/{disk_of(sysfs, disk)}/queue/logical_block_size"))
    if int(row["pv_free"]) < extents * extent or own_block > block_bytes:
        return None
    return FreeExtents(row["vg_name"], row["vg_uuid"], row["pv_name"], disk, extents, extents * extent)


def may_change(row: dict[str, str]) -> bool:
    """Whether the group can be changed: it is not read-only, exported, partial or shared."""
    attributes = row["vg_attr"]
    return attributes[0] == "w" and attributes[2:4] == "--" and attributes[5:6] == "-"


def make(sysfs: Sysfs, place: FreeExtents, head: Head, run: Run) -> str:
    """Make the logical volume of the head; its record is on disk. Returns the kernel's name. Raises HostError.

    Its first block and known signatures are wiped before udev sees it (lvcreate(8)); the rest is what was there.
    """
    options = ["--type", "linear", "--extents", str(place.extents), "--zero", "y", "--wipesignatures", "y"]
    names = ["--addtag", tag_of(head), "--name", name_of(head), place.group, place.disk]
    run(["lvcreate", "--yes", *options, *names], timeout_s=LVM_S)
    found = find(sysfs, place.group_uuid, head, run)
    device = kernel_name(sysfs, found) if found else None
    if device is None or int(sysfs.read(f"sys/block/{device}/size")) != place.sectors or in_use(sysfs, device):
        text = f"lvcreate made no volume {name_of(head)} of {place.sectors} sectors that is active and unused"
        raise HostError(text, code="group.made")
    return device


def find(sysfs: Sysfs, group_uuid: str, head: Head, run: Run) -> Logical | None:
    """The head's logical volume in this group, or None. Raises NotOursError if several have its tag."""
    found = [
        one for one in _of_group(sysfs, group_uuid, run) if one.group_uuid == group_uuid and tag_of(head) in one.tags
    ]
    if len(found) > 1:
        shown = ", ".join(f"{one.group}/{one.name}" for one in found)
        raise NotOursError(f"{shown} have the tag of one head: remove it from the wrong one", code="group.ambiguous")
    return found[0] if found else None


def group_of(sysfs: Sysfs, head: Head, device: str, run: Run) -> str:
    """The group's UUID, if the device with the head was made for it; else empty."""
    if not is_logical(sysfs, device):
        return ""
    mapped = sysfs.read(f"sys/block/{device}/dm/uuid")
    own = _of_group(sysfs, mapped[len(LOGICAL_VOLUME) : -UUID_LETTERS], run)
    made = (one for one in own if one.mapped == mapped and tag_of(head) in one.tags)
    return next((one.group_uuid for one in made), "")


def device_of(sysfs: Sysfs, record: Record, run: Run) -> str | None:
    """The kernel's name of the head's logical volume; None if it is not there, or not active."""
    found = find(sysfs, record.group_uuid, record.head, run)
    return kernel_name(sysfs, found) if found else None


def activate(sysfs: Sysfs, record: Record, run: Run) -> None:
    """Have the head's logical volume be a device: whoever activates the volume may not have done so."""
    found = find(sysfs, record.group_uuid, record.head, run)
    if found is not None and kernel_name(sysfs, found) is None:
        run(["lvchange", "--yes", "--activate", "y", f"{found.group}/{found.name}"], timeout_s=LVM_S)


def removable(sysfs: Sysfs, record: Record, head_device: str | None, run: Run) -> Logical | None:
    """What `remove` removes. Raises NotOursError if something else is on it, DeviceBusyError if it is used.

    It is the device with the head, or zeros. Before the head is written it is what was on the extents before.
    """
    found = find(sysfs, record.group_uuid, record.head, run)
    device = kernel_name(sysfs, found) if found else None
    if found is None:
        return None
    shown = f"the logical volume {found.group}/{found.name} of the head"
    if not found.may_change:
        text = f"the volume group {found.group} is read-only, exported, partial or shared: nothing was removed"
        raise NotOursError(text, code="group.other")
    if not found.is_alone:
        raise NotOursError(f"{shown} has snapshots, or is one: remove them; nothing was removed", code="head.snapshots")
    if device is None or device == head_device:
        return found
    if used := in_use(sysfs, device):
        raise DeviceBusyError(f"{shown} {', '.join(map(str, used))}: nothing was removed", code="head.used")
    node = sysfs.path(f"dev/{device}")
    try:
        is_free = (record.step is Step.ADOPTING and heads.read(node) is None) or is_zero(node, 0, LEAST_BYTES)
    except OSError as error:
        raise HostError(f"{shown} cannot be read: {error.strerror}", code="head.unreadable") from error
    if not is_free:
        text = (
            f"{shown} has something else on it: nothing was removed; `lvchange --deltag {tag_of(record.head)}` keeps it"
        )
        raise NotOursError(text, code="head.other")
    return found


def remove(sysfs: Sysfs, record: Record, run: Run) -> None:
    """Remove the head's logical volume; one that is gone is fine. Raises as `removable`, and HostError."""
    found = removable(sysfs, record, None, run)
    if found is None:
        return
    # By its UUID, under the group's lock: a name may be another volume's meanwhile.
    chosen = f"vg_uuid={found.group_uuid} && lv_uuid={found.uuid}"
    run(["lvremove", "--yes", "--select", chosen, found.group], timeout_s=LVM_S)
    if find(sysfs, record.group_uuid, record.head, run) is not None:
        raise HostError(f"lvremove has left {found.group}/{found.name}", code="group.left")


def kernel_name(sysfs: Sysfs, volume: Logical) -> str | None:
    """The kernel's name; None while it is not active."""
    names = (name for name in sysfs.names("sys/block") if name.startswith("dm-"))
    return next((name for name in names if sysfs.read_or(f"sys/block/{name}/dm/uuid", "") == volume.mapped), None)


def _of_group(sysfs: Sysfs, group_uuid: str, run: Run) -> list[Logical]:
    """Logical volumes, all of this group among them. Raises HostError.

    Of all groups `lvs` fails if one of them is broken. By its name it is asked for this one alone; a volume that is
    active tells the name.
    """
    try:
        return _volumes(run)
    except HostError as error:
        begin = LOGICAL_VOLUME + group_uuid.replace("-", "")
        names = (f"sys/block/{name}/dm" for name in sysfs.names("sys/block") if name.startswith("dm-"))
        shown = (sysfs.read_or(f"{dm}/name", "") for dm in names if sysfs.read_or(f"{dm}/uuid", "").startswith(begin))
        group = _BETWEEN.split(next(shown, ""))[0].replace("--", "-")
        if error.code != "program.failed" or not group:
            raise
        return _volumes(run, group)


def _volumes(run: Run, *groups: str) -> list[Logical]:
    return [
        Logical(
            row["vg_name"],
            row["vg_uuid"],
            row["lv_name"],
            row["lv_uuid"],
            tuple(row["lv_tags"].split(",")),
            may_change(row),
            row["lv_role"] == "public",
            row["lv_layout"] in LAYOUTS and row["lv_role"] == "public",
        )
        for row in report("lvs", VOLUME_FIELDS, "lv", run, *groups)
    ]


def report(program: str, fields: tuple[str, ...], key: str, run: Run, *groups: str) -> list[dict[str, str]]:
    """Rows of a report of LVM; sizes in sectors. Raises HostError."""
    options = ["--reportformat", "json", "--units", "s", "--nosuffix", "--config", 'report/list_item_separator=","']
    text = run([program, *groups, *options, "--options", ",".join(fields)], timeout_s=LVM_S)
    try:
        rows = [row for report in json.loads(text)["report"] for row in report[key]]
        return [{field: str(row[field]) for field in fields} for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise HostError(f"what `{program}` prints is not understood: {error}", code="lvm.output") from error
