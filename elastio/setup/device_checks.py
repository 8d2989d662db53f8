"""Is the backing device there, running, safe and mounted? Reads bcache's /sys: call it where a hang is bearable."""

from __future__ import annotations

from collections.abc import Sequence

from elastio.config.schema import Config
from elastio.errors import HostError
from elastio.host.blockdev import serial_of
from elastio.host.sysfs import parse_size
from elastio.host.throttle import stacked
from elastio.host.tuning import SCHEDULER
from elastio.host.view import Backing, find_backings
from elastio.setup.candidates import candidates
from elastio.setup.check_result import CheckResult, Machine, fail, ok, warn

NAME = "backing device"
# The kernel's own is 30; images for EC2 have the most there is.
LONG_TIMEOUT_S = 240


def device(machine: Machine, config: Config) -> list[CheckResult]:
    """Everything about the configured backing device; only the first finding when it is not there."""
    sysfs = machine.sysfs
    found = find_backings(sysfs, config.device.backing_uuid)
    if len(found) > 1:
        return [_copied(found)]
    backing = found[0] if found else None
    if backing is None:
        there = "; ".join(map(str, candidates(sysfs))) or "none"
        return [
            fail(
                NAME,
                f"{config.device.backing_uuid} is not registered with bcache (registered: {there})",
                "attach its volume, correct device.backing_uuid, or make one with `elastio device create`",
            )
        ]
    state = sysfs.read_or(f"{backing.directory}/state", "unknown")
    if backing.adaptive is None:
        return [
            fail(
                NAME,
                f"/dev/{backing.device} is registered and does not run, its state is {state}: its cache is missing",
                "attach its cache volume again; starting it without the cache loses data for good",
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


def _copied(found: Sequence[Backing]) -> CheckResult:
    names = ", ".join(f"/dev/{b.device}" for b in found)
    return fail(
        NAME,
        f"{names} carry the same backing UUID: the agent takes none of them for its device",
        "detach the copy, and restore snapshots in another machine",
    )


def _sectors(machine: Machine, backing: Backing) -> CheckResult:
    """A cache set's block size may not exceed the backing device's, and no disk can have less than its own."""
    size = machine.sysfs.read_or(f"sys/block/{backing.adaptive}/queue/logical_block_size", "unknown")
    own = machine.sysfs.read_or(f"sys/block/{backing.disk}/queue/logical_block_size", "unknown")
    if size == own:
        return ok("block size", f"{size} bytes, as the volume's own")
    return warn(
        "block size",
        f"the adaptive device has blocks of {size} bytes and its volume of {own}",
        "a filesystem with smaller sectors cannot be put on it",
    )


def _sequential(machine: Machine, backing: Backing) -> CheckResult:
    try:
        cutoff = parse_size(machine.sysfs.read(f"{backing.directory}/sequential_cutoff"))
    except HostError as error:
        return warn("bypass", str(error), "see `dmesg`")
    if cutoff == 0:
        return ok("bypass", "sequential_cutoff is 0: no write goes past the cache unasked")
    return warn(
        "bypass",
        f"sequential_cutoff is {cutoff} bytes: reads can stay stale while a cache is attached",
        "start the agent, which sets it to 0, and install 60-elastio.rules",
    )


def _queue(machine: Machine, backing: Backing) -> CheckResult:
    offered = machine.sysfs.read_or(f"sys/block/{backing.disk}/queue/scheduler", "")
    if f"[{SCHEDULER}]" in offered:
        return ok("scheduler", f"{SCHEDULER} on /dev/{backing.disk}")
    if SCHEDULER in offered:
        return warn("scheduler", f"/dev/{backing.disk} uses {offered}", f"the agent sets {SCHEDULER} when it starts")
    return warn(
        "scheduler",
        f"/dev/{backing.disk} offers {offered or 'none'} and not {SCHEDULER}: flushing takes from the application",
        f"use a kernel with {SCHEDULER}",
    )


def _mount(machine: Machine, backing: Backing) -> CheckResult:
    places = mounted_at(machine, f"sys/block/{backing.adaptive}/dev")
    if places:
        return ok("mount", f"/dev/{backing.adaptive} is mounted at {', '.join(places)}")
    held = machine.sysfs.names(f"sys/block/{backing.adaptive}/holders")
    if held:
        return ok("mount", f"/dev/{backing.adaptive} is used by {', '.join(held)}")
    return warn("mount", f"/dev/{backing.adaptive} is not mounted", "mount it, with `nofail` in /etc/fstab")


def _above(machine: Machine, backing: Backing) -> list[CheckResult]:
    """dm-crypt, LVM, md on the adaptive device: what they write may come from threads of the kernel."""
    above = stacked(machine.sysfs, backing.adaptive or "")[1:]
    if not above:
        return []
    shown = ", ".join(f"/dev/{n} ({_kind(machine, n)})" for n in above)
    if not any(_kind(machine, n) == "md" for n in above):
        return [ok("above", f"{shown}: requests are held back there, too, while a cache is attached or detached")]
    return [
        warn(
            "above",
            f"{shown}: while md resynchronizes, its own writes cannot be held back, and a cache is not attached",
            "put md below bcache, or expect no boosts while it resynchronizes",
        )
    ]


def _kind(machine: Machine, name: str) -> str:
    """As device-mapper names it (CRYPT, LVM...), else by the driver."""
    return machine.sysfs.read_or(f"sys/block/{name}/dm/uuid", "").partition("-")[0] or name.rstrip("0123456789-")


def _serial(machine: Machine, backing: Backing) -> list[CheckResult]:
    """A cache disk is found by its serial: where the backing disk shows none, the next disk will not either."""
    if serial_of(machine.sysfs, backing.disk):
        return []
    return [
        warn(
            "serial",
            f"/dev/{backing.disk} shows no serial in /sys: a cache volume that is attached the same way is never found",
            "use virtio-blk, NVMe or virtio-scsi disks (Xen's show none)",
        )
    ]


def _timeout(machine: Machine, backing: Backing) -> list[CheckResult]:
    shown = machine.sysfs.read_or("sys/module/nvme_core/parameters/io_timeout", "")
    if not backing.disk.startswith("nvme") or not shown.isdecimal() or int(shown) >= LONG_TIMEOUT_S:
        return []
    return [
        warn(
            "timeout",
            f"an NVMe request that takes more than {shown} s becomes an I/O error, also where the cloud is only slow",
            "boot with nvme_core.io_timeout=4294967295",
        )
    ]


def mounted_at(machine: Machine, number_file: str) -> list[str]:
    """Mount points of the block device whose `major:minor` stands in the file (proc(5), mountinfo fields 3 and 5)."""
    number = machine.sysfs.read_or(number_file, "?")
    fields = (line.split() for line in machine.sysfs.read_or("proc/self/mountinfo", "").splitlines())
    return [f[4] for f in fields if len(f) > 4 and f[2] == number]
