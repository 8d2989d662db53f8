"""The configuration: reads a TOML file and its drop-ins, and returns a frozen `Config`.

Every key is declared once, in its section below, with its meaning, default and bounds. Parsing, `elastio init` and the
reference page use this declaration. An unknown key is an error, because a misspelt cap would not limit anything.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from elastio.config.files import read_merged
from elastio.config.neighbours import UNKNOWN_CAPS, sharing_with, uuids_beside
from elastio.config.paths import DEFAULT_PATH, DEVICES, common_dir, name_of, socket_of, state_dir_of
from elastio.config.rules import Flag, Number, Text, refuse
from elastio.config.rules import key as _key
from elastio.config.sections import (
    AgentSection,
    CacheSection,
    CapsSection,
    DeviceSection,
    ProfileSection,
    ShareSection,
    ValueSection,
    check_cache,
    check_credits,
    check_share,
    lowest,
)
from elastio.core.policy import Ahead, Model, Policy, StopPolicy
from elastio.errors import ConfigError
from elastio.strategy.memory import STOP_GAIN
from elastio.strategy.spending import Caps
from elastio.units import GIB

ENDS, MACHINE_ENDS = ("leave", "flush"), ("auto", "flush", "leave")
MODELS = tuple(model.value for model in Model)
# Names of [policy] keys in release 0.1.0, and their names now. Both are read.
RENAMED = {
    "hold_s": "trigger_delay_s",
    "attach_deadline_s": "attach_timeout_s",
    "start_spread_s": "start_jitter_s",
    "detach_help_after_s": "detach_throttle_after_s",
    "reconcile_s": "reconcile_interval_s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySection:
    """[policy]: when a boost starts and when it ends."""

    model: str = _key(
        Text(
            "what decides about size, speed and hold of a cache: agbs, the settings; money, prices and value.hour",
            "choice",
            MODELS,
        ),
        "agbs",
    )

    utilization_threshold: float = _key(
        Number("share of the backing device's bandwidth at which a boost starts", above=0, most=1), 0.30
    )
    release_threshold: float | None = _key(
        Number(
            "share below which the load is over; default: 0.25, or utilization_threshold if that is lower",
            above=0,
            most=1,
        ),
        None,
    )
    trigger_delay_s: float = _key(
        Number("duration of a load before it starts a boost, in seconds", least=0, most=3600), 0.0
    )
    inactivity_delay_s: float = _key(
        Number("time without load before the cache is flushed, in seconds", least=0, most=86400), 30.0
    )
    cool_down_s: float = _key(Number("pause between two boosts, in seconds", least=0, most=86400), 5.0)
    attach_timeout_s: float = _key(
        Number("time after which a boost without an attached cache is given up, in seconds", least=1, most=3600), 180.0
    )
    start_jitter_s: float = _key(
        Number(
            "maximum random delay of a purchase, in seconds, so that not all of a fleet buys at once",
            least=0,
            most=3600,
        ),
        0.0,
    )
    detach_throttle_after_s: float = _key(
        Number(
            "time after which a detach without an idle instant throttles applications for up to 2 s; 0: never",
            least=0,
            most=86400,
        ),
        0.0,
    )
    reconcile_interval_s: float = _key(
        Number("interval of the search for orphaned volumes, in seconds", least=10, most=86400), 3600.0
    )
    stop_gain: float = _key(
        Number(
            "least share of a burst's time that a doubling of cache.bandwidth must save, where that is learned",
            least=0.001,
            most=0.4,
        ),
        STOP_GAIN,
    )
    ahead: str = _key(
        Text(
            "bursts that a cache is bought ahead of: none (off), announced ones (expect), or also those that are "
            "expected from past ones (learned)",
            "choice",
            tuple(a.value for a in Ahead),
        ),
        Ahead.EXPECT.value,
    )
    lead_s: float = _key(
        Number("time from a purchase to an expected burst until boosts were measured, in seconds", least=1, most=3600),
        20.0,
    )

    @property
    def release_at(self) -> float:
        """The release threshold in force."""
        default = min(0.25, self.utilization_threshold)
        return default if self.release_threshold is None else self.release_threshold


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownSection:
    """[shutdown]: what happens to an attached cache when the agent or the machine stops. It is never deleted dirty."""

    on_stop: str = _key(
        Text("action when the agent is stopped: leave the cache attached, or flush it", "choice", ENDS), "leave"
    )
    on_shutdown: str = _key(
        Text(
            "action when the machine goes down (needs elastio-shutdown.service); auto: flush before a power-off, "
            "because the volume of a machine that is off costs money, and leave before a reboot",
            "choice",
            MACHINE_ENDS,
        ),
        "auto",
    )
    flush_limit_s: float = _key(
        Number(
            "time limit of the flush, in seconds; dirty data left after it stays on its volume", above=0, most=86400
        ),
        300.0,
    )
    notice_flush: bool = _key(
        Flag("flush when the cloud announces the end of the instance; boosts are inhibited in either case"), True
    )
    notice_poll_s: float = _key(
        Number("interval of the polls for such a notice during a boost, in seconds; 0: never", least=0, most=3600), 5.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSection:
    """[provider]: the cloud. Settings of the provider itself are in the table [provider.<name>]."""

    name: str = _key(Text("name of the provider's entry point, for example aws", "word"))
    settings: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, validated. A reload creates a new one; this one never changes."""

    device: DeviceSection
    cache: CacheSection
    policy_settings: PolicySection
    caps: CapsSection
    value: ValueSection
    share: ShareSection
    profile: ProfileSection
    shutdown: ShutdownSection
    agent: AgentSection
    provider: ProviderSection
    neighbours: frozenset[str] = frozenset()  # UUIDs of the backing devices of the files beside this one

    def policy(self) -> Policy:
        """The settings as the core uses them."""
        policy, cache = self.policy_settings, self.cache
        return Policy(
            backing_bandwidth_mb_s=self.device.bandwidth_mb_s,
            cache_bandwidth_mb_s=cache.bandwidth_mb_s,
            drain_bandwidth_mb_s=cache.drain_mb_s(self.device.bandwidth_mb_s),
            utilization_threshold=policy.utilization_threshold,
            release_threshold=policy.release_at,
            trigger_delay_s=policy.trigger_delay_s,
            inactivity_delay_s=policy.inactivity_delay_s,
            cool_down_s=policy.cool_down_s,
            initial_size_bytes=_bytes(cache.initial_size_gib),
            min_size_bytes=_bytes(cache.min_size_gib),
            size_step_bytes=_bytes(cache.size_step_gib),
            cache_iops=cache.iops,
            headroom=cache.headroom,
            attach_timeout_s=policy.attach_timeout_s,
            start_jitter_s=policy.start_jitter_s,
            reconcile_interval_s=policy.reconcile_interval_s,
            ahead=Ahead(policy.ahead),
            lead_s=policy.lead_s,
            on_stop=self._stop_policy(self.shutdown.on_stop),
            on_shutdown=self._stop_policy("leave" if self.shutdown.on_shutdown == "leave" else "flush"),
            on_reboot=self._stop_policy(self.shutdown.on_shutdown),
            notice_poll_s=self.shutdown.notice_poll_s or None,
            notice_flush=self.shutdown.notice_flush,
            tags_volumes=True,
            detach_throttle_after_s=policy.detach_throttle_after_s or None,
            backing_uuid=self.device.backing_uuid,
            neighbours=self.neighbours,
            caps=Caps(max_size_bytes=_bytes(cache.max_size_gib), **asdict(self.caps)),
            model=Model(policy.model),
            backing_credits=self.device.bucket,
            first_credits_bytes=self.device.first_credits_gib * GIB,
            share_reserve=self.share.reserved,
            share_latency=self.share.latency,
            boost_rights=self.share.rights,
            bandwidth=cache.speed_bounds(policy.stop_gain),
        )

    @property
    def doubts(self) -> tuple[str, ...]:
        """A sentence for each setting that is valid and surely not meant.

        `config check`, `init`, `doctor` and the log of a start show them. The agent starts with them: one that refused
        to start after an upgrade would leave a dirty cache unflushed and paid for.
        """
        backing_mb_s, cache_mb_s = self.device.bandwidth_mb_s, self.cache.bandwidth_mb_s
        if self.policy_settings.model == Model.MONEY or cache_mb_s > backing_mb_s:
            return ()
        text = f"cache.bandwidth_mb_s is {cache_mb_s:g}, and device.bandwidth_mb_s {backing_mb_s:g}: a cache that is "
        return (text + "not faster than the backing volume costs money and gains nothing",)

    def _stop_policy(self, end: str) -> StopPolicy:
        return StopPolicy(True, self.shutdown.flush_limit_s) if end == "flush" else StopPolicy()


def _bytes(size_gib: float) -> int:
    """The size in bytes: whole 512-byte sectors, at least one."""
    return max(512, int(size_gib * GIB) // 512 * 512)


SECTIONS: Mapping[str, type[Any]] = {
    "device": DeviceSection,
    "cache": CacheSection,
    "policy": PolicySection,
    "caps": CapsSection,
    "value": ValueSection,
    "share": ShareSection,
    "profile": ProfileSection,
    "shutdown": ShutdownSection,
    "agent": AgentSection,
    "provider": ProviderSection,
}


def keys_of(section: str) -> tuple[Field[Any], ...]:
    """The keys of a section in the order of the reference page. `metadata["rule"]` is the rule of a key."""
    return tuple(f for f in fields(SECTIONS[section]) if "rule" in f.metadata)


# --- reading -----------------------------------------------------------------------------------------------


def load(path: Path = DEFAULT_PATH) -> Config:
    """The configuration of the file and of every `*.toml` in `<path>.d`, merged in the order of their names.

    Where caps are shared, the lowest limit of each kind that one of the devices sets. Raises ConfigError; its code is
    the key, or `file.*` if a file cannot be used.
    """
    config = load_alone(path)
    if not config.caps.shared:
        return config
    return replace(config, caps=lowest(_caps_beside(path, config), config.caps))


def load_alone(path: Path) -> Config:
    """The same without what other devices share. Raises ConfigError for what is wrong in this file only."""
    config = parse(read_merged(path), name_of(path))
    return replace(config, neighbours=uuids_beside(path) - {config.device.backing_uuid})


def _caps_beside(path: Path, config: Config) -> Iterator[CapsSection]:
    """The caps of those that share them. Raises ConfigError if they are not known, or a statement is kept elsewhere."""
    for other, document in sharing_with(path):
        agent = document.get("agent")
        given = agent.get("state_dir") if isinstance(agent, Mapping) else None
        state_dir = Path(given) if isinstance(given, str) else state_dir_of(name_of(other))
        if common_dir(state_dir) != common_dir(config.agent.state_dir):
            text = (
                f"{path} and {other} share their caps, and their state directories lie in different places: set "
                f"agent.state_dir to {common_dir(config.agent.state_dir)}/{DEVICES}/NAME in both"
            )
            raise ConfigError(text, code="agent.state_dir")
        try:
            yield _section(CapsSection, "caps", document)
        except ConfigError as error:
            raise ConfigError(f"{other}, which shares its caps, is invalid: {error}", code=UNKNOWN_CAPS) from error


# --- parsing -----------------------------------------------------------------------------------------------

S = TypeVar("S")


def parse(document: Mapping[str, Any], name: str = "") -> Config:
    """The configuration of the device with this name from a TOML document. Raises ConfigError; its code is the key."""
    for section, table in document.items():
        if section not in SECTIONS:
            raise ConfigError(f"[{section}] is not a section{_did_you_mean(section, SECTIONS)}", code=section)
        if not isinstance(table, Mapping):
            raise ConfigError(f"{section} is a section: write [{section}] and its keys below it", code=section)
    config = Config(
        device=_section(DeviceSection, "device", document),
        cache=_section(CacheSection, "cache", document),
        policy_settings=_section(PolicySection, "policy", document),
        caps=_section(CapsSection, "caps", document),
        value=_section(ValueSection, "value", document),
        share=_section(ShareSection, "share", document),
        profile=_section(ProfileSection, "profile", document),
        shutdown=_section(ShutdownSection, "shutdown", document),
        agent=_section(AgentSection, "agent", _with_places(document, name)),
        provider=_provider(document),
    )
    _check_together(config)
    return config


def _section(kind: type[S], name: str, document: Mapping[str, Any]) -> S:
    table = _with_current_names(name, document.get(name, {}))
    known = {f.name: f for f in keys_of(name)}
    for key in table:
        if key not in known:
            raise ConfigError(f"{name}.{key} is not a setting{_did_you_mean(key, known)}", code=f"{name}.{key}")
    for key, spec in known.items():
        if key not in table and spec.default is MISSING:
            raise ConfigError(f"{name}.{key} is not set: {spec.metadata['rule'].meaning}", code=f"{name}.{key}")
    return kind(**{key: known[key].metadata["rule"].read(f"{name}.{key}", value) for key, value in table.items()})


def _with_places(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The document with the directories of a device that has a name, where it sets no others."""
    if not name:
        return document
    places = {"state_dir": str(state_dir_of(name)), "socket": str(socket_of(name))}
    return {**document, "agent": {**places, **document.get("agent", {})}}


def _with_current_names(section: str, table: Mapping[str, Any]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in table.items():
        name = RENAMED.get(key, key) if section == "policy" else key
        if name in renamed:
            raise ConfigError(
                f"{section}.{key} and {section}.{name} are the same setting: keep {name}", code=f"{section}.{name}"
            )
        renamed[name] = value
    return renamed


def _provider(document: Mapping[str, Any]) -> ProviderSection:
    table = document.get("provider", {})
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping) or key == "name"}
    named = _section(ProviderSection, "provider", {"provider": plain})
    for key in table:
        if key not in plain and key != named.name:
            text = f'[provider.{key}] is for another provider: provider.name is "{named.name}"'
            raise ConfigError(text, code=f"provider.{key}")
    return ProviderSection(name=named.name, settings=dict(table.get(named.name, {})))


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    return f": did you mean {close[0]}?" if close else f"; known are {', '.join(names)}"


def _check_together(config: Config) -> None:
    """The constraints between keys."""
    check_credits(config.device)
    check_share(config.share, config.device)
    check_cache(config.cache, config.device, config.policy_settings.model, is_profiled=config.profile.enabled)
    if config.policy_settings.model == Model.MONEY and config.value.hour is None:
        text = 'policy.model is "money" and value.hour is not set: say what an hour of waiting costs, or use "agbs"'
        raise ConfigError(text, code="value.hour")
    release, threshold = config.policy_settings.release_threshold, config.policy_settings.utilization_threshold
    if release is not None and release > threshold:
        raise refuse("policy.release_threshold", release, f"at most policy.utilization_threshold ({threshold:g})")
