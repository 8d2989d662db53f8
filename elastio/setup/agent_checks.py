"""The agent itself: configuration, cloud, daemon, its state and the clock."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from elastio import __version__, registry
from elastio.config.paths import GUARDS
from elastio.config.schema import Config
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.core.model import VolumeSpec
from elastio.errors import ElastioError, HostError
from elastio.host.view import find_backing
from elastio.setup.check_result import CheckResult, Machine, fail, ok, warn
from elastio.setup.kernel_checks import GUARD, RULES

METADATA = "169.254.169.254"
METADATA_RULES = "nftables.d/elastio-metadata.nft"
# No machine that runs this release can be older: 2026-01-01, UTC.
NOT_BEFORE_WALL = 1_767_225_600.0


def cloud(config: Config) -> list[CheckResult]:
    """The provider opens, and what it can check itself: credentials, quota, the instance's limits."""
    provider = config.provider
    page = f"see [provider.{provider.name}] in the configuration and the provider's reference page"
    policy = config.policy()
    wanted = VolumeSpec(policy.caps.max_size_bytes, policy.bought_bandwidth_mb_s, policy.cache_iops)
    try:
        opened = registry.open_provider(provider.name, provider.settings, config.device.backing_uuid)
        found = registry.run_checks(provider.name, opened, wanted)
    except ElastioError as error:
        return [fail(f"provider {provider.name}", str(error), page)]
    if not found:
        return [ok(f"provider {provider.name}", "it is installed and offers no checks of its own")]
    return [ok(name, sentence) if passed else fail(name, sentence, page) for name, passed, sentence in found]


def metadata(machine: Machine, config: Config) -> list[CheckResult]:
    """Whoever reaches EC2's metadata service has the instance's role, and so the cache volume."""
    if config.provider.name != "aws":
        return []
    name, remedy = "metadata", f"install {METADATA_RULES}: see docs/how-to/install.md"
    try:
        rules = json.loads(machine.run(["nft", "--json", "list", "ruleset"], timeout_s=10))["nftables"]
    except (HostError, ValueError, LookupError, TypeError) as error:
        return [warn(name, f"whether only root reaches the metadata service is unknown ({error})", remedy)]
    if any(_keeps_to_root(str(rule)) for rule in rules):
        return [ok(name, "only root reaches the metadata service, and with it the instance's role")]
    harm = "any process can have the instance's role, which may delete the cache volume"
    return [warn(name, f"no rule of nftables keeps the metadata service ({METADATA}) to root: {harm}", remedy)]


def _keeps_to_root(rule: str) -> bool:
    """A rule about who sends to the service, and that stops it."""
    return all(word in rule for word in ("'rule'", METADATA, "'skuid'")) and ("'drop'" in rule or "'reject'" in rule)


def daemon(client: ControlClient) -> CheckResult:
    """It answers on its socket, and is of this release."""
    try:
        status = client.status()
    except UnreachableError as error:
        return warn("agent", str(error), "systemctl enable --now elastiod")
    except ElastioError as error:
        return fail("agent", str(error), "restart it: systemctl restart elastiod")
    if status.agent.version != __version__:
        return warn(
            "agent",
            f"it is still release {status.agent.version}, installed is {__version__}",
            "systemctl restart elastiod",
        )
    if status.fault:
        return fail("agent", f"it is faulted: {status.fault}", "do as it says; nothing is released until then")
    if status.cloud_error:
        return fail("agent", f"it cannot use its cloud: {status.cloud_error}", "correct that, then restart elastiod")
    return ok("agent", f"it runs and is {status.phase}")


def state_place(machine: Machine, config: Config) -> CheckResult:
    """The journal must survive what it records: it may not lie on the device that waits for its cache."""
    name = "state"
    folder = nearest(config.agent.state_dir)
    try:
        backing = find_backing(machine.sysfs, config.device.backing_uuid)
    except HostError as error:
        return warn(name, f"where it lies cannot be compared: {error}", "see `dmesg`")
    try:
        device = folder.stat().st_dev
    except OSError as error:
        return fail(name, f"{folder} cannot be looked at: {error.strerror}", "correct agent.state_dir")
    shown = f"{os.major(device)}:{os.minor(device)}"
    adaptive = backing.adaptive if backing else None
    if adaptive and shown == machine.sysfs.read_or(f"sys/block/{adaptive}/dev", "?"):
        return fail(
            name,
            f"{config.agent.state_dir} lies on the adaptive device itself: after a crash the agent could not read it",
            "set agent.state_dir to a folder on another device",
        )
    return ok(name, f"{config.agent.state_dir} lies on another device than the data")


def guard(machine: Machine, config: Config) -> list[CheckResult]:
    """udev must find the marker of a boot before anything is mounted. Nothing where the rule is not installed."""
    name, folder = "guard", config.agent.state_dir / GUARDS
    rule = next((f"{f}/{GUARD}" for f in RULES if machine.sysfs.exists(f"{f}/{GUARD}")), None)
    if rule is None:
        return []
    if f"{folder}/" not in machine.sysfs.read_or(rule, ""):
        sentence = f"{GUARD} looks for the marker of a boot elsewhere than in {folder}, where the agent puts it"
        return [warn(name, f"{sentence}: it keeps nothing back", f"correct the path in /etc/udev/rules.d/{GUARD}")]
    lines = (line.split() for line in machine.sysfs.read_or("proc/self/mountinfo", "").splitlines())
    places = {fields[4] for fields in lines if len(fields) > 4}
    late = [str(parent) for parent in (folder, *folder.parents) if str(parent) in places and parent.name]
    if late:
        return [
            warn(
                name,
                f"{folder} lies on {late[0]}, mounted after udev has looked for the marker: it keeps nothing back",
                "set agent.state_dir to a folder on the root filesystem, and correct the path in the rule",
            )
        ]
    return [ok(name, "a backing device whose cache was lost is kept from being mounted at boot")]


def nearest(path: Path) -> Path:
    """The folder itself, or the one it will be made in."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def clock(machine: Machine, wall: float | None = None) -> CheckResult:
    """Costs are counted by the wall clock, and clouds refuse requests whose time is wrong."""
    now = time.time() if wall is None else wall
    if now < NOT_BEFORE_WALL:
        return fail("clock", "the clock is years behind: every cloud refuses such requests", "set the clock, use NTP")
    try:
        synchronized = machine.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"], timeout_s=5)
    except HostError as error:
        return warn("clock", f"whether it is synchronized is unknown ({error})", "use NTP")
    if synchronized.strip() == "yes":
        return ok("clock", "it is synchronized")
    return warn("clock", "it is not synchronized", "use NTP, for example systemd-timesyncd")
