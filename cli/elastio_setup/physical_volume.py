"""A physical volume of LVM that is adopted: its volume group lies on it alone, is not active, and comes up on bcacheN.

LVM finds a physical volume on whatever device shows its label, in one of the first four sectors. It asks neither udev
(`external_device_info_source`) nor who has claimed a device, and `vgchange` activates nothing of what it sees twice.
So the tombstone stays from the adoption to the release (`Head.keeps_tombstone`): the volume itself shows no label.
Sources: lib/cache/lvmcache.c, tools/toollib.c and lib/label/label.c of LVM 2.03.16 and 2.03.31.
"""

from __future__ import annotations

from elastio.errors import ConfigError, HostError, NotOursError
from elastio.host.commands import Run, is_installed
from elastio.host.sysfs import Sysfs
from elastio_setup.adopted_volume import is_logical
from elastio_setup.fstab import Entry
from elastio_setup.head_volume import LVM_S, may_change, report

FIELDS = ("pv_name", "vg_name", "vg_attr", "pv_count")


def group_on(device: str, sysfs: Sysfs, run: Run) -> str:
    """The name of the volume group on the device. Raises HostError, or NotOursError for one that is not adopted."""
    if not is_installed(sysfs, "lvm"):
        raise HostError("lvm2 is not installed, which activates the volume group", code="adopt.files")
    if is_logical(sysfs, device):
        text = f"/dev/{device} is a logical volume with a physical volume on it: adopt what that lies on"
        raise NotOursError(f"{text}; nothing was changed", code="adopt.virtual")
    rows = report("pvs", FIELDS, "pv", run, str(sysfs.path(f"dev/{device}")))
    group = rows[0]["vg_name"] if len(rows) == 1 else ""
    if not group:
        text = f"/dev/{device} is in no volume group that this machine may use: nothing was changed"
        raise NotOursError(text, code="group.none")
    if rows[0]["pv_count"] != "1":
        text = f"the volume group {group} lies on {rows[0]['pv_count']} physical volumes, and one on a single one is"
        raise NotOursError(f"{text} adopted: nothing was changed", code="group.spread")
    if not may_change(rows[0]):
        text = f"the volume group {group} is read-only, exported, partial or shared: nothing was changed"
        raise NotOursError(text, code="group.other")
    run(["vgck", group], timeout_s=LVM_S)
    return group


def is_in_group(entry: Entry, group: str) -> bool:
    """Whether a line of fstab(5) or crypttab(5) names a logical volume of the group."""
    source, mapped = entry.source.replace('"', ""), f"/dev/mapper/{group.replace('-', '--')}-"
    is_mapped = source.startswith(mapped) and not source.startswith(f"{mapped}-")
    return is_mapped or source.startswith(f"/dev/{group}/")


def require_usual(entry: Entry, group: str) -> None:
    """Raises ConfigError for a line that uses the group for what is needed while a device is suspended, or before."""
    if entry.kind == "swap" or entry.place == "/":
        what = "swap" if entry.kind == "swap" else "the root filesystem"
        text = f"/etc/fstab has {what} in the volume group {group}, which is not adopted then: nothing was changed"
        raise ConfigError(text, code="adopt.fstab")


def require_shown(adaptive: str, sysfs: Sysfs, run: Run) -> None:
    """Raises HostError unless LVM finds the physical volume on the adaptive device: a filter may hide that."""
    try:
        report("pvs", FIELDS, "pv", run, str(sysfs.path(f"dev/{adaptive}")))
    except HostError as error:
        if error.code != "program.failed":
            raise
        text = (
            f"LVM does not use /dev/{adaptive} (filter or devices file of lvm.conf, see `pvs -a`): nothing was changed"
        )
        raise HostError(text, code="group.hidden") from error
