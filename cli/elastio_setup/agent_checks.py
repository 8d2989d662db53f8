"""Checks of the agent: its cloud, its daemon, its state directory and the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from elastio import __version__, registry
from elastio.agent.market import policy_of
from elastio.config.paths import GUARDS, common_dir
from elastio.config.schema import Config
from elastio.control.client import ControlClient
from elastio.control.protocol import UnreachableError
from elastio.core.model import VolumeSpec
from elastio.core.policy import Policy
from elastio.errors import ElastioError, HostError
from elastio.host import mounts
from elastio.host.usage import holds
from elastio.host.view import find_backing
from elastio.ports import VolumeProvider
from elastio.units import format_size
from elastio_setup.check_result import CheckResult, Machine, fail, ok, warn
from elastio_setup.kernel_checks import GUARD, RULES

METADATA = "169.254.169.254"
# As `nft --json` prints `meta skuid != 0`.
NOT_ROOT = {"match": {"op": "!=", "left": {"meta": {"key": "skuid"}}, "right": 0}}
METADATA_RULES = "nftables.d/elastio-metadata.nft"
# 2026-01-01 UTC. A clock that shows an earlier time is wrong: this release is newer.
NOT_BEFORE_WALL = 1_767_225_600.0


def cloud(config: Config) -> list[CheckResult]:
    """Whether the provider opens, and its own checks: credentials, quota, limits of the instance."""
    provider = config.provider
    page = f"see [provider.{provider.name}] in the configuration and the provider's reference page"
    try:
        policy = policy_of(config)
        wanted = VolumeSpec(policy.caps.max_size_bytes, policy.bought_bandwidth_mb_s, policy.cache_iops)
        opened = registry.open_provider(provider.name, provider.settings, config.device.backing_uuid)
        found = registry.run_checks(provider.name, opened, wanted)
    except ElastioError as error:
        return [fail(f"provider {provider.name}", str(error), page)]
    if not found:
        return [
            ok(f"provider {provider.name}", "it is installed and has no checks of its own"),
            *fastest(opened, policy),
        ]
    own = [ok(name, sentence) if passed else fail(name, sentence, page) for name, passed, sentence in found]
    return [*own, *fastest(opened, policy)]


def fastest(provider: VolumeProvider, policy: Policy) -> list[CheckResult]:
    """Whether the cloud sells the fastest cache that may be learned: a refused raise costs a burst its cache."""
    if policy.bandwidth is None:
        return []
    name, size, mb_s = "learned bandwidth", policy.caps.max_size_bytes, policy.bandwidth.most_mb_s
    remedy = "set cache.max_bandwidth_mb_s lower: what the cloud refuses is tried, and costs a burst its cache"
    try:
        sold = provider.quote(VolumeSpec(size, mb_s + policy.drain_bandwidth_mb_s, policy.cache_iops)).spec
    except ElastioError as error:
        return [warn(name, f"a cache of {mb_s:.0f} MB/s is not sold: {error}", remedy, "refused")]
    if sold.size_bytes > size:
        text = f"a cache of {mb_s:.0f} MB/s has at least {format_size(sold.size_bytes)}, above cache.max_size_gib"
        return [warn(name, text, remedy, "cache.max_size_gib")]
    return [ok(name, f"caches of up to {mb_s:.0f} MB/s may be learned, and are sold")]


def metadata(machine: Machine, config: Config) -> list[CheckResult]:
    """A process that reaches EC2's metadata service has the instance's role, and can delete the cache volume."""
    if config.provider.name != "aws":
        return []
    name, remedy = "metadata", f"install {METADATA_RULES}: see docs/how-to/install.md"
    try:
        rules = json.loads(machine.run(["nft", "--json", "list", "ruleset"], timeout_s=10))["nftables"]
    except (HostError, ValueError, LookupError, TypeError) as error:
        return [warn(name, f"the rules for the metadata service cannot be read ({error})", remedy, "unknown")]
    known = [each for each in rules if isinstance(each, Mapping)]
    if any(_keeps_to_root(each, known) for each in known):
        return [ok(name, "only root reaches the metadata service and can use the instance's role")]
    harm = "any process can use the instance's role, which may delete the cache volume"
    return [warn(name, f"no nftables rule restricts the metadata service ({METADATA}) to root: {harm}", remedy, "open")]


def _keeps_to_root(each: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> bool:
    """True for a rule that drops packets to the service of every user but root, in a chain that packets pass."""
    rule = each.get("rule", {})
    parts = list(rule.get("expr", ()))
    is_dropped = any("drop" in part or "reject" in part for part in parts)
    if not is_dropped or NOT_ROOT not in parts or not any(METADATA in str(part) for part in parts):
        return False
    place = {key: rule.get(key) for key in ("family", "table")} | {"name": rule.get("chain")}
    listed = [c["chain"] for c in rules if "chain" in c and place.items() <= c["chain"].items()]
    return not listed or any(chain.get("hook") == "output" for chain in listed)


def daemon(client: ControlClient) -> CheckResult:
    """Whether the daemon answers on its socket, runs this release and has no fault."""
    try:
        status = client.status()
    except UnreachableError as error:
        return warn("agent", str(error), "systemctl enable --now elastiod", "unreachable")
    except ElastioError as error:
        return fail("agent", str(error), "systemctl restart elastiod", "reply")
    if status.agent.version != __version__:
        return warn(
            "agent",
            f"it runs release {status.agent.version}, but {__version__} is installed",
            "systemctl restart elastiod",
            "version",
        )
    if status.fault:
        return fail(
            "agent", f"it is faulted: {status.fault}", "follow this message; no volume is released until then", "fault"
        )
    if status.cloud_error:
        return fail(
            "agent", f"it cannot use its cloud: {status.cloud_error}", "correct this, then restart elastiod", "cloud"
        )
    return ok("agent", f"it runs and is {status.phase}")


def credits(client: ControlClient) -> list[CheckResult]:
    """The credits of the backing volume, by the agent's model. Empty if it has none, or if no agent answers."""
    try:
        found = client.status().credits
    except ElastioError:
        return []  # the check of the agent says so
    if found is None:
        return []
    sentence = (
        f"{found.share:.0%} of {format_size(found.capacity_bytes)} are left, by the agent's model; a flush leaves "
        f"{format_size(found.reserve_bytes)}"
    )
    if found.balance_bytes >= found.reserve_bytes:
        return [ok("credits", sentence)]
    return [
        warn(
            "credits",
            f"{sentence}: applications have {found.base_mb_s:.1f} instead of {found.burst_mb_s:.1f} MB/s when none is",
            "compare with the cloud's metric (EBS: BurstBalance); use a larger volume if this lasts",
            "low",
        )
    ]


def state_place(machine: Machine, config: Config) -> CheckResult:
    """The journal must not be on the adaptive device: while its cache is missing it could not be read."""
    name = "state"
    folder = nearest(config.agent.state_dir)
    try:
        backing = find_backing(machine.sysfs, config.device.backing_uuid)
        adaptive = backing.adaptive if backing else None
        is_on_data = holds(machine.sysfs, adaptive, folder) if adaptive else False
    except HostError as error:
        return warn(name, f"its device cannot be compared with the data's: {error}", "see `dmesg`", "unknown")
    except OSError as error:
        return fail(name, f"{folder} cannot be read: {error.strerror}", "correct agent.state_dir", "unreadable")
    if is_on_data is None:
        sentence = f"the filesystem of {folder} does not say on which devices it is: they may be the data's"
        return warn(name, sentence, "set agent.state_dir to a folder on the root filesystem", "unknown")
    if is_on_data:
        return fail(
            name,
            f"{config.agent.state_dir} is on the adaptive device: after a crash the agent could not read it",
            "set agent.state_dir to a folder on another device",
            "on_adaptive",
        )
    return ok(name, f"{config.agent.state_dir} is on another device than the data")


def guard(machine: Machine, config: Config) -> list[CheckResult]:
    """udev must find the mount guard's file before filesystems are mounted. Empty if its rule is not installed."""
    name, folder = "guard", common_dir(config.agent.state_dir) / GUARDS
    rule = next((f"{f}/{GUARD}" for f in RULES if machine.sysfs.exists(f"{f}/{GUARD}")), None)
    if rule is None:
        return []
    if f"{folder}/" not in machine.sysfs.read_or(rule, ""):
        sentence = f"{GUARD} does not read {folder}, where the agent writes the mount guard: no mount is prevented"
        return [warn(name, sentence, f"correct the path in /etc/udev/rules.d/{GUARD}", "path")]
    places = {mount.place for mount in mounts.read(machine.sysfs)}
    late = [str(parent) for parent in (folder, *folder.parents) if str(parent) in places and parent.name]
    if late:
        return [
            warn(
                name,
                f"{folder} is on {late[0]}, which is mounted after udev reads the mount guard: no mount is prevented",
                "set agent.state_dir to a folder on the root filesystem, and correct the path in the rule",
                "late",
            )
        ]
    return [ok(name, "a backing device whose cache was lost is not mounted at boot")]


def nearest(path: Path) -> Path:
    """The folder itself, or the nearest parent that exists."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def clock(machine: Machine, wall: float | None = None) -> CheckResult:
    """Costs depend on the wall clock, and clouds refuse requests with a wrong time."""
    now = time.time() if wall is None else wall
    if now < NOT_BEFORE_WALL:
        return fail("clock", "the clock is years behind: clouds refuse such requests", "set the clock, use NTP", "past")
    try:
        synchronized = machine.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"], timeout_s=5)
    except HostError as error:
        return warn("clock", f"whether it is synchronized is unknown ({error})", "use NTP", "unknown")
    if synchronized.strip() == "yes":
        return ok("clock", "it is synchronized")
    return warn("clock", "it is not synchronized", "use NTP, for example systemd-timesyncd", "unsynchronized")
