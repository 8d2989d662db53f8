"""Checks of what cgroups are promised on the adaptive device and do not get: weights, limits of others, latencies.

Checks of the other devices of this VM: their agents, and the caps that devices share.

Volumes of a neighbour are left to its agent, and what it spends counts under shared caps. So an agent that does not run
is a volume that nobody releases, and a device that is gone may still take room of the caps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from elastio.config.neighbours import Device, devices_in
from elastio.config.paths import STATEMENTS, common_dir, name_of, unit_of
from elastio.config.schema import Config, load
from elastio.config.sections import ShareSection
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.core.shares import SharePlan, path
from elastio.errors import ElastioError
from elastio.host import cgroups, throttle
from elastio.host.sysfs import Sysfs
from elastio.host.usage import mounts_on
from elastio.host.view import Backing, find_backings
from elastio_setup.check_result import CheckResult, Machine, fail, ok, warn

NAME = "shares"
# So many cgroups are named.
SHOWN = 3


def check_shares(machine: Machine, config: Config) -> list[CheckResult]:
    """What is in the way, for the configured device while it runs; nothing where all is well.

    Reads bcache's /sys and may hang: run it with `subprocess_timeout`.
    """
    sysfs = machine.sysfs
    found = find_backings(sysfs, config.device.backing_uuid)
    if len(found) != 1 or found[0].adaptive is None:
        return []
    groups, above = cgroups.counted(sysfs), throttle.stacked(sysfs, found[0].adaptive)
    return [
        *([] if config.share.enabled else _weights(sysfs, found[0], groups)),
        *_limits(sysfs, groups, _numbers(sysfs, above)),
        *_latencies(sysfs, found[0], _numbers(sysfs, above), config.share),
    ]


def _numbers(sysfs: Sysfs, names: Sequence[str]) -> frozenset[str]:
    """The MAJOR:MINOR of these devices."""
    return frozenset(sysfs.read_or(f"sys/block/{name}/dev", "") for name in names) - {""}


def _weights(sysfs: Sysfs, backing: Backing, groups: Sequence[str]) -> list[CheckResult]:
    """Weights take effect by iocost or BFQ on the disk alone, and iocost is off until somebody enables it."""
    costs = cgroups.by_device(sysfs, "", "io.cost.qos").get(sysfs.read_or(f"sys/block/{backing.disk}/dev", ""), {})
    is_fair = "[bfq]" in sysfs.read_or(f"sys/block/{backing.disk}/queue/scheduler", "")
    weighted = [group for group in groups if cgroups.weight(sysfs, group) != cgroups.DEFAULT_WEIGHT]
    if not weighted or is_fair or costs.get("enable") == "1":
        return []
    return [
        warn(
            NAME,
            f"the weight of {_named(weighted)} (IOWeight=, io.weight) has no effect on the adaptive device: the kernel "
            "never sees it as full",
            "see with `elastio shares` what the weights would give, or set share.enabled (experimental)",
            "weight",
        )
    ]


def _limits(sysfs: Sysfs, groups: Sequence[str], numbers: frozenset[str]) -> list[CheckResult]:
    """Limits of an administrator on the device, or on what is above it."""
    foreign = [group for group in groups if _is_limited_by_others(sysfs, group, numbers)]
    if not foreign:
        return []
    at_top = [group for group in foreign if "/" not in group]
    if at_top:
        harm = f"requests of {_named(at_top)} cannot be held back while a cache is attached or detached"
        remedy = "set the limits on services, not on slices, or remove them"
    else:
        harm = "it stays in force while a cache is attached"
        remedy = "remove it (IOReadBandwidthMax=, IOWriteBandwidthMax= and their like), or set it for the cache's speed"
    return [
        warn(NAME, f"somebody else limits {_named(foreign)} on the adaptive device (io.max): {harm}", remedy, "limit")
    ]


def _is_limited_by_others(sysfs: Sysfs, group: str, numbers: frozenset[str]) -> bool:
    shown = (values for number, values in cgroups.by_device(sysfs, group, "io.max").items() if number in numbers)
    return any(not throttle.is_ours(" ".join(f"{kind}={most}" for kind, most in each.items())) for each in shown)


def _latencies(sysfs: Sysfs, backing: Backing, numbers: frozenset[str], share: ShareSection) -> list[CheckResult]:
    """On ext4, a commit of the journal first waits for data of all others (data=ordered, the default)."""
    if not any(mount.kind == "ext4" for mount in mounts_on(sysfs, backing.adaptive or "")):
        return []
    adaptive = sysfs.read_or(f"sys/block/{backing.adaptive}/dev", "")
    targeted = numbers | _numbers(sysfs, [backing.disk])
    users = [group for group in cgroups.sharers(sysfs) if cgroups.moved(sysfs, group, adaptive) is not None]
    own = SharePlan(0.0, latency=share.latency if share.enabled else ())
    prompt = [group for group in users if own.target_s(group) is not None or _has_target(sysfs, group, targeted)]
    if not prompt or len(users) < 2:
        return []
    return [
        warn(
            NAME,
            f"{_named(prompt)} has a latency target (io.latency, share.latency_ms), and shares an ext4 on the adaptive "
            "device with other cgroups: its fsync waits for their data",
            "give it a filesystem of its own, or use xfs",
            "latency",
        )
    ]


def _has_target(sysfs: Sysfs, group: str, numbers: frozenset[str]) -> bool:
    """A latency target of the cgroup, or of one above it, on one of these devices."""
    return any(numbers & cgroups.by_device(sysfs, node, "io.latency").keys() for node in path(group))


def _named(groups: Sequence[str]) -> str:
    more = f" and {len(groups) - SHOWN} more" if len(groups) > SHOWN else ""
    return ", ".join(groups[:SHOWN]) + more


CAPS = "shared caps"


def neighbours(path: Path, config: Config) -> Iterator[CheckResult]:
    """One result for each device that is configured beside `path`, and what is wrong with the caps that they share."""
    beside = [device for device in devices_in(path.parent) if device.path != path and device.uuid]
    for device in beside:
        yield _neighbour(device, config)
    if config.caps.shared:
        configured = {config.device.backing_uuid, *(device.uuid for device in beside)}
        yield from _statements(common_dir(config.agent.state_dir), configured)


def _neighbour(device: Device, config: Config) -> CheckResult:
    name, unit = f"neighbour {device.name}", unit_of(name_of(device.path)).removesuffix(".service")
    try:
        its = load(device.path)
        seen = ControlClient(its.agent.socket).status()
    except UnreachableError as error:
        text = f"no agent answers ({error}): nobody releases a volume that it may have"
        return warn(name, text, f"systemctl enable --now {unit}", "unreachable")
    except ElastioError as error:
        return warn(name, str(error), f"see `elastio doctor --device {device.name}`", "unknown")
    if seen.device_uuid and seen.device_uuid != device.uuid:
        text = f"its agent drives the backing device {seen.device_uuid}, and {device.path} names {device.uuid}"
        return warn(name, text, f"correct the file, or restart {unit}", "other_device")
    if seen.fault:
        text = f"its agent is faulted: {seen.fault}"
        return fail(name, text, f"see `elastio status --device {device.name}`", "fault")
    if config.caps.shared and not its.caps.shared:
        text = f"it does not share its caps: what it spends does not count under those of {config.device.backing_uuid}"
        return warn(name, text, f"set caps.shared in {device.path} too, see docs/how-to/several-devices.md", "unshared")
    return ok(name, f"its agent runs and is {seen.phase}")


def _statements(common: Path, known: set[str]) -> Iterator[CheckResult]:
    """Statements of devices that are not configured any more: they count for ever if a bill was open."""
    try:
        left = sorted(path for path in (common / STATEMENTS).glob("*.json") if path.stem not in known)
    except OSError as error:
        yield warn(CAPS, f"{common / STATEMENTS} cannot be read: {error.strerror}", "run it as root", "unreadable")
        return
    for statement in left:
        text = f"{statement} is of a device that is not configured here, and what it says counts under the caps"
        yield warn(CAPS, text, "if `elastio state` says that nothing is open, remove the file", "left")
