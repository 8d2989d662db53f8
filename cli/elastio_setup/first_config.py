"""The first configuration file, as `elastio init` and `elastio setup` write it: what is found out, chosen and noted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elastio import registry
from elastio.config.files import overlay, read_drop_ins
from elastio.config.schema import Config, parse
from elastio.config.text import render
from elastio.core.model import Identity, Quote, VolumeSpec
from elastio.errors import ConfigError, ElastioError
from elastio.host.blockdev import serial_of
from elastio.host.sysfs import Sysfs
from elastio.ports import TellsBandwidth, VolumeProvider
from elastio.units import format_size
from elastio_setup.candidates import Candidate

# One in five minutes, all day: more than the bursts of the published applications.
BOOSTS_A_DAY = 288
# Before the backing device is made.
UNKNOWN_UUID = "00000000-0000-0000-0000-000000000000"
# How much faster than the backing volume a cache is bought, where nobody says.
FASTER = 4.0


@dataclass(frozen=True, slots=True)
class Cloud:
    """The provider as it will be configured. `settings` are those of drop-ins that are there before the file."""

    name: str
    settings: Mapping[str, object]
    provider: VolumeProvider


@dataclass(frozen=True, slots=True)
class FirstConfig:
    """What is set in the file; everything else keeps its default. `identity` None: the cloud does not answer."""

    bandwidth_mb_s: float
    cache_mb_s: float
    provider: str
    identity: Identity | None = None
    max_cost_per_day: float | None = None
    written_by: str = "elastio init"
    beneath: Mapping[str, Any] = field(default_factory=dict)

    def keys(self, backing_uuid: str) -> dict[str, object]:
        """`section.key` and value of each setting."""
        return {
            "device.backing_uuid": backing_uuid,
            "device.bandwidth_mb_s": self.bandwidth_mb_s,
            "cache.bandwidth_mb_s": self.cache_mb_s,
            "caps.max_boosts_per_day": BOOSTS_A_DAY,
            "caps.max_cost_per_day": self.max_cost_per_day,
            "provider.name": self.provider,
        }

    def parsed(self, backing_uuid: str) -> Config:
        """The settings together with those of the drop-ins. Raises ConfigError if the agent would refuse them."""
        document: dict[str, Any] = {}
        for key, value in self.keys(backing_uuid).items():
            section, _, name = key.partition(".")
            if value is not None:
                document.setdefault(section, {})[name] = value
        return parse(overlay(document, dict(self.beneath)))

    def text(self, backing: Candidate) -> str:
        """The whole file, with notes at its top."""
        return render(self.keys(backing.uuid), self._notes(backing))

    def _notes(self, backing: Candidate) -> tuple[str, ...]:
        device = f"Backing device: /dev/{backing.device}, {format_size(backing.size_bytes)}."
        who = self.identity
        instance = (
            f"Instance: {who.instance_id} ({who.instance_type or 'type unknown'}) in {who.zone}, {who.cloud}."
            if who
            else ""
        )
        cap = (
            f"caps.max_boosts_per_day = {BOOSTS_A_DAY} is one boost in five minutes. It limits what a mistake can "
            "cost. Raise it for an application with more frequent bursts; without the key there is no limit."
        )
        written = f"Written by `{self.written_by}`. Commented keys show their defaults."
        return tuple(note for note in (written, instance, device, cap) if note)


def beyond_limit(wanted_mb_s: float, identity: Identity | None) -> str:
    """The warning about a cache that is faster than the instance; empty if it is not, or if its limit is unknown."""
    limit = identity.bandwidth_limit_mb_s if identity else None
    if limit is None or wanted_mb_s <= limit:
        return ""
    return (
        f"this instance is limited to {limit:g} MB/s for all its volumes: the purchase of a cache of "
        f"{wanted_mb_s:g} MB/s will be refused"
    )


def default_cache_mb_s(backing_mb_s: float, limit_mb_s: float | None) -> float:
    """Bandwidth of a cache for applications, in whole MB/s: four times the volume's, or what the instance leaves.

    The cache is bought with the volume's bandwidth in addition, to flush with. Raises ConfigError if the instance does
    not leave more than the volume has.
    """
    wanted = FASTER * backing_mb_s
    if limit_mb_s is not None:
        wanted = min(wanted, limit_mb_s - backing_mb_s)
    if math.floor(wanted) <= backing_mb_s:
        raise ConfigError(
            f"this instance is limited to {limit_mb_s:g} MB/s for all its volumes, which leaves no cache faster than "
            f"the backing volume's {backing_mb_s:g} MB/s: use a larger instance",
            code="setup.instance_limit",
        )
    return float(math.floor(wanted))


# --- what the cloud knows ----------------------------------------------------------------------------------


def open_cloud(config_path: Path, wanted: str | None, backing_uuid: str) -> Cloud:
    """The provider: the wanted one, else that of the drop-ins, else the detected one. Raises ConfigError."""
    table = read_drop_ins(config_path).get("provider", {})
    table = table if isinstance(table, dict) else {}
    name = wanted or table.get("name") or registry.detect_provider()
    if not isinstance(name, str):
        names = ", ".join(sorted(registry.providers()))
        raise ConfigError(
            f"no installed provider recognises this machine: give one with --provider ({names})", code="provider.name"
        )
    own = table.get(name, {})
    settings = own if isinstance(own, dict) else {}
    return Cloud(name, settings, registry.open_provider(name, settings, backing_uuid))


def find_bandwidth(provider: VolumeProvider, sysfs: Sysfs, disk: str) -> tuple[float | None, str]:
    """MB/s of the disk's volume as the cloud tells it; or None, and why not."""
    serial = serial_of(sysfs, disk)
    if not isinstance(provider, TellsBandwidth):
        return None, "the provider cannot tell it"
    if serial is None:
        return None, f"/dev/{disk} shows no serial"
    try:
        found = provider.bandwidth_of(serial)
    except ElastioError as error:
        return None, str(error)
    return found, "" if found is not None else f"the cloud does not tell that of {serial}"


def require_sold(provider: VolumeProvider, found: FirstConfig) -> Quote:
    """The quote of the first cache. Raises ConfigError if it is not sold, or if a cap on cost could not be kept."""
    policy = found.parsed(UNKNOWN_UUID).policy()
    spec = VolumeSpec(policy.initial_size_bytes, policy.bought_bandwidth_mb_s, policy.cache_iops)
    try:
        quote = provider.quote(spec)
    except ElastioError as error:
        text = f"a cache of {found.cache_mb_s:g} MB/s cannot be bought ({error}): give --cache-bandwidth"
        raise ConfigError(text, code="cache.bandwidth_mb_s") from error
    if policy.caps.needs_price and not quote.price_known:
        text = f"a cap on cost cannot be kept ({quote.price_source}): leave it out, or configure the price"
        raise ConfigError(text, code="caps.max_cost_per_day")
    return quote
