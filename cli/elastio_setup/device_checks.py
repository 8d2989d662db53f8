"""Checks of the backing device. They read bcache's /sys and may hang: run them with `subprocess_timeout`."""

from __future__ import annotations

from collections.abc import Sequence

from elastio.config.schema import Config
from elastio.errors import ElastioError, HostError
from elastio.host import composed
from elastio.host.blockdev import serial_of
from elastio.host.sysfs import parse_size
from elastio.host.throttle import stacked
from elastio.host.tuning import SCHEDULER
from elastio.host.usage import UseKind, in_use
from elastio.host.view import Backing, find_backings
from elastio_setup import adopted_record, at_boot
from elastio_setup.adopted_record import Record
from elastio_setup.candidates import all_candidates
from elastio_setup.check_result import CheckResult, Machine, fail, ok, warn

NAME = "backing device"
# The kernel's default is 30; images for EC2 set the maximum.
LONG_TIMEOUT_S = 240


def device(machine: Machine, config: Config) -> list[CheckResult]:
    """The results for the configured backing device; a single one if it is not there or does not run."""
    sysfs = machine.sysfs
    found = find_backings(sysfs, config.device.backing_uuid)
    if len(found) > 1:
        return [_copied(found)]
    backing = found[0] if found else None
    if backing is None:
        return [_not_found(machine, config.device.backing_uuid)]
    state = sysfs.read_or(f"{backing.directory}/state", "unknown")
    if backing.adaptive is None:
        return [
            fail(
                NAME,
                f"/dev/{backing.device} is registered but does not run (state {state}): its cache is missing",
                "attach its cache volume again; without the cache its dirty data is lost",
                "cache_missing",
            )
        ]
    first = ok(NAME, f"/dev/{backing.device} runs as /dev/{backing.adaptive}, state {state}")
    return [
        first,
        _sectors(machine, backing),
        _sequential(machine, backing),
        _queue(machine, backing),
        _mount(machine, backing),
        *_above(machine, backing),
        *_serial(machine, backing),
        *_timeout(machine, backing),
    ]


def _not_found(machine: Machine, uuid: str) -> CheckResult:
    there = all_candidates(machine.sysfs)
    virtual = next((c for c in there if c.uuid == uuid and c.why_not), None)
    if virtual is not None:
        sentence = f"/dev/{virtual.device} {virtual.why_not}; the agent does not use it"
        return fail(NAME, sentence, "copy the data to an adaptive device on a volume of its own", "virtual")
    return fail(
        NAME,
        f"{uuid} is not registered with bcache (registered: {'; '.join(map(str, there)) or 'none'})",
        "attach its volume, correct device.backing_uuid, or create one with `elastio device create`",
        "unregistered",
    )


def _copied(found: Sequence[Backing]) -> CheckResult:
    names = ", ".join(f"/dev/{b.device}" for b in found)
    return fail(
        NAME,
        f"{names} have the same backing UUID: the agent uses none of them",
        "detach the copy, and restore snapshots on another machine",
        "duplicate",
    )


def _sectors(machine: Machine, backing: Backing) -> CheckResult:
    """A backing device formatted with larger blocks than its volume's excludes filesystems with smaller sectors."""
    size = machine.sysfs.read_or(f"sys/block/{backing.adaptive}/queue/logical_block_size", "unknown")
    own = machine.sysfs.read_or(f"sys/block/{backing.disk}/queue/logical_block_size", "unknown")
    if size == own:
        return ok("block size", f"{size} bytes, like its volume")
    return warn(
        "block size",
        f"the adaptive device has blocks of {size} bytes, its volume of {own}",
        "use a filesystem with sectors of that size, or format the device again",
    )


def _sequential(machine: Machine, backing: Backing) -> CheckResult:
    try:
        cutoff = parse_size(machine.sysfs.read(f"{backing.directory}/sequential_cutoff"))
    except HostError as error:
        return warn("bypass", str(error), "see `dmesg`", "unreadable")
    if cutoff == 0:
        return ok("bypass", "sequential_cutoff is 0: sequential I/O does not bypass the cache")
    return warn(
        "bypass",
        f"sequential_cutoff is {cutoff} bytes: reads can return stale data while a cache is attached",
        "start the agent, which sets it to 0, and install 60-elastio.rules",
        "nonzero",
    )


def _queue(machine: Machine, backing: Backing) -> CheckResult:
    offered = machine.sysfs.read_or(f"sys/block/{backing.disk}/queue/scheduler", "")
    if f"[{SCHEDULER}]" in offered:
        return ok("scheduler", f"{SCHEDULER} on /dev/{backing.disk}")
    if SCHEDULER in offered:
        return warn(
            "scheduler", f"/dev/{backing.disk} uses {offered}", f"start the agent, which sets {SCHEDULER}", "other"
        )
    return warn(
        "scheduler",
        f"/dev/{backing.disk} offers {offered or 'none'}, not {SCHEDULER}: flushing slows applications down",
        f"use a kernel with {SCHEDULER}",
        "unsupported",
    )


def _mount(machine: Machine, backing: Backing) -> CheckResult:
    shown = f"/dev/{backing.adaptive}"
    try:
        found = in_use(machine.sysfs, backing.adaptive or "")
    except HostError as error:
        return warn("mount", f"whether {shown} is mounted is not known: {error}", "mount /proc", "unknown")
    known = [use for use in found if use.kind is not UseKind.UNKNOWN]
    if known:
        return ok("mount", f"{shown} {' and '.join(map(str, known))}")
    if found:
        return warn("mount", f"{shown} {found[0]}", "see with `lsof` and `zpool status` who uses it", "unknown")
    return warn("mount", f"{shown} is not mounted", "mount it, with `nofail` in /etc/fstab")


def _above(machine: Machine, backing: Backing) -> list[CheckResult]:
    """dm-crypt, LVM or md on the adaptive device: kernel threads may issue their writes."""
    above = stacked(machine.sysfs, backing.adaptive or "")[1:]
    if not above:
        return []
    shown = ", ".join(f"/dev/{n} ({_kind(machine, n)})" for n in above)
    if not any(_kind(machine, n) == "md" for n in above):
        return [ok("above", f"{shown}: throttled as well while a cache is attached or detached")]
    return [
        warn(
            "above",
            f"{shown}: while md resynchronizes, its writes cannot be throttled, and no cache is attached",
            "expect no boosts during a resynchronization; md cannot be below bcache either",
        )
    ]


def _kind(machine: Machine, name: str) -> str:
    """The device-mapper type (CRYPT, LVM...), else the driver's name."""
    return machine.sysfs.read_or(f"sys/block/{name}/dm/uuid", "").partition("-")[0] or name.rstrip("0123456789-")


def _serial(machine: Machine, backing: Backing) -> list[CheckResult]:
    """A cache disk is found by its serial. If the backing disk shows none, a cache disk will not either."""
    if serial_of(machine.sysfs, backing.disk):
        return []
    return [
        warn(
            "serial",
            f"/dev/{backing.disk} has no serial in /sys: a cache volume attached the same way is never found",
            "use virtio-blk, NVMe or virtio-scsi disks (Xen disks have no serial)",
        )
    ]


def _timeout(machine: Machine, backing: Backing) -> list[CheckResult]:
    shown = machine.sysfs.read_or("sys/module/nvme_core/parameters/io_timeout", "")
    if not backing.disk.startswith("nvme") or not shown.isdecimal() or int(shown) >= LONG_TIMEOUT_S:
        return []
    return [
        warn(
            "timeout",
            f"an NVMe request that takes more than {shown} s becomes an I/O error, even if the cloud is only slow",
            "boot with nvme_core.io_timeout=4294967295",
        )
    ]


ADOPTED = "adopted volume"


def adopted(machine: Machine) -> list[CheckResult]:
    """One result for each record, and each pending adoption; none on a machine without."""
    try:
        found = [_composed(machine, record) for record in adopted_record.load_all(machine.sysfs)]
        return found + [_pending(each) for each in at_boot.load_all(machine.sysfs)]
    except ElastioError as error:
        return [fail(ADOPTED, str(error), "restore the file from a copy: docs/how-to/adopt.md", error.code)]


def _pending(pending: at_boot.Pending) -> CheckResult:
    shown = f"{pending.volume.uuid} at {pending.place}"
    if not pending.refused:
        return ok(ADOPTED, f"{shown} is adopted at the next boot")
    remedy = "`elastio device adopt`: --at-boot asks again, --cancel forgets it"
    return warn(ADOPTED, f"{shown} was not adopted at boot: {pending.refused}", remedy, "at_boot")


def _composed(machine: Machine, record: Record) -> CheckResult:
    adaptive = composed.adaptive_of(machine.sysfs, record.head)
    if adaptive is not None and record.step is adopted_record.Step.COMPOSED:
        return ok(ADOPTED, f"{record.uuid} is on /dev/{adaptive}")
    unit = f"`journalctl -u elastio-compose@{record.uuid}`"
    if composed.waits_for_cache(machine.sysfs, record.head):
        return fail(ADOPTED, f"{record.uuid} waits for its cache", f"attach it: {unit} names it", "cache_missing")
    return fail(
        ADOPTED,
        f"{record.uuid} is not composed (recorded step: {record.step})",
        f"see {unit}, or run `elastio device release {record.uuid}`",
        "not_composed",
    )
