"""Checks of the other devices of this VM: their agents, and the caps that devices share.

Volumes of a neighbour are left to its agent, and what it spends counts under shared caps. So an agent that does not run
is a volume that nobody releases, and a device that is gone may still take room of the caps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elastio.config.neighbours import Device, devices_in
from elastio.config.paths import STATEMENTS, common_dir, name_of, unit_of
from elastio.config.schema import Config, load
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.errors import ElastioError
from elastio.setup.check_result import CheckResult, fail, ok, warn

CAPS = "shared caps"


def neighbours(path: Path, config: Config) -> Iterator[CheckResult]:
    """One result for each device that is configured beside `path`, and what is wrong with the caps that they share."""
    beside = [device for device in devices_in(path.parent) if device.path != path and device.uuid]
    for device in beside:
        yield _neighbour(device, config)
    if config.caps.shared:
        yield from _statements(common_dir(config.agent.state_dir), {config.device.backing_uuid, *_uuids(beside)})


def _uuids(devices: list[Device]) -> Iterator[str]:
    return (device.uuid for device in devices)


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
    for path in left:
        text = f"{path} is of a device that is not configured here, and what it says counts under the caps"
        yield warn(CAPS, text, "if `elastio state` says that nothing is open, remove the file", "left")
