"""`elastio init`: find out what can be found out and write the configuration."""

from __future__ import annotations

from dataclasses import dataclass

import click

from elastio import registry
from elastio.cli.app import App
from elastio.config.schema import parse
from elastio.config.text import render, write
from elastio.core.model import Identity
from elastio.errors import ConfigError, ElastioError, HostError
from elastio.setup.candidates import Candidate, candidates, choose
from elastio.setup.subprocess_timeout import call_with_timeout
from elastio.units import format_size

KERNEL_S = 15.0
# One in five minutes, all day and night: more often than the bursts of the published applications come.
BOOSTS_A_DAY = 288
MB_S = click.FloatRange(min=0, min_open=True)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the operator gave; None: to be found out."""

    device: str | None
    bandwidth_mb_s: float | None
    cache_bandwidth_mb_s: float | None
    provider: str | None


@click.command()
@click.option("--device", metavar="UUID|PATH", help="Backing device  [default: the only one that is registered]")
@click.option("--bandwidth", "bandwidth_mb_s", metavar="MB/S", type=MB_S, help="Reserved for the backing volume.")
@click.option("--cache-bandwidth", "cache_bandwidth_mb_s", metavar="MB/S", type=MB_S, help="To buy for a cache.")
@click.option("--provider", help="Cloud  [default: as detected]")
@click.option("--print", "print_only", is_flag=True, help="Write nothing, print the file.")
@click.option("--force", is_flag=True, help="Replace a configuration that is there.")
@click.pass_obj
def init(
    app: App,
    device: str | None,
    bandwidth_mb_s: float | None,
    cache_bandwidth_mb_s: float | None,
    provider: str | None,
    print_only: bool,
    force: bool,
) -> None:
    """Detect cloud, instance and backing device and write the configuration file.

    What cannot be found out is asked for on a terminal, and named as missing otherwise.
    """
    if app.config_path.exists() and not (force or print_only):
        raise ConfigError(f"{app.config_path} is there already: use --force to replace it, or --print")
    asked = Asked(device, bandwidth_mb_s, cache_bandwidth_mb_s, provider)
    if app.is_terminal():
        asked = _ask_for_missing(asked)
    chosen, found = _find_out(asked, app)
    who = _identify(chosen)
    text = render(chosen, _notes(found, who))
    _warn_beyond_limit(chosen, who)
    if print_only:
        click.echo(text, nl=False)
        return
    write(app.config_path, text, replace=force)
    click.echo(f"{app.config_path} is written for backing device {found}")
    click.echo("next steps:\n  elastio doctor\n  systemctl enable --now elastiod")


def _ask_for_missing(asked: Asked) -> Asked:
    bandwidth = asked.bandwidth_mb_s or click.prompt("Bandwidth of the backing volume (MB/s)", type=MB_S)
    cache = asked.cache_bandwidth_mb_s or click.prompt("Bandwidth to buy for a cache (MB/s)", type=MB_S)
    return Asked(asked.device, bandwidth, cache, asked.provider)


def _find_out(asked: Asked, app: App) -> tuple[dict[str, object], Candidate]:
    """The settings and the backing device. Raises ConfigError naming everything that is missing, not only the first."""
    missing: list[str] = []
    found: Candidate | None = None
    try:
        found = choose(call_with_timeout(lambda: candidates(app.sysfs()), KERNEL_S), asked.device)
    except (ConfigError, HostError) as error:
        missing.append(str(error))
    provider = asked.provider or registry.detect_provider()
    if provider is None:
        names = ", ".join(sorted(registry.providers()))
        missing.append(f"no installed provider recognises this machine, name one with --provider ({names})")
    if asked.bandwidth_mb_s is None:
        missing.append("the bandwidth of the backing volume cannot be found out, give --bandwidth")
    if asked.cache_bandwidth_mb_s is None:
        missing.append("the bandwidth to buy is yours to choose, give --cache-bandwidth")
    if found is None or missing:
        raise ConfigError("; ".join(missing))
    chosen: dict[str, object] = {
        "device.backing_uuid": found.uuid,
        "device.bandwidth_mb_s": asked.bandwidth_mb_s,
        "cache.bandwidth_mb_s": asked.cache_bandwidth_mb_s,
        "caps.max_boosts_per_day": BOOSTS_A_DAY,
        "provider.name": provider,
    }
    _require_valid(chosen)
    return chosen, found


def _require_valid(chosen: dict[str, object]) -> None:
    """What `init` writes must be what the agent reads."""
    document: dict[str, dict[str, object]] = {}
    for key, value in chosen.items():
        section, _, name = key.partition(".")
        document.setdefault(section, {})[name] = value
    parse(document)


def _identify(chosen: dict[str, object]) -> Identity | None:
    """Who this machine is. Not knowing does not stop `init`, but is said: the agent will need to know."""
    try:
        provider = registry.open_provider(str(chosen["provider.name"]), {}, str(chosen["device.backing_uuid"]))
        return provider.identify()
    except ElastioError as error:
        click.echo(f"not found out, which instance this is: {error}", err=True)
        return None


def _notes(found: Candidate, who: Identity | None) -> tuple[str, ...]:
    backing = f"Backing device: /dev/{found.device}, {format_size(found.size_bytes)}."
    instance = (
        f"Instance: {who.instance_id} ({who.instance_type or 'type unknown'}) in {who.zone}, {who.cloud}."
        if who
        else ""
    )
    cap = (
        f"caps.max_boosts_per_day = {BOOSTS_A_DAY} is one boost in five minutes: a bound on what a mistake costs. "
        "Raise it for an application whose bursts come more often; without the key nothing is limited."
    )
    written = "Written by `elastio init`. Keys that are commented out show their defaults."
    return tuple(note for note in (written, instance, backing, cap) if note)


def _warn_beyond_limit(chosen: dict[str, object], who: Identity | None) -> None:
    limit = who.bandwidth_limit_mb_s if who else None
    wanted = chosen["cache.bandwidth_mb_s"]
    if limit is not None and isinstance(wanted, int | float) and wanted > limit:
        click.echo(
            f"this instance carries {limit:g} MB/s to all its volumes: a cache of {wanted:g} MB/s "
            "is refused when the agent wants to buy it",
            err=True,
        )
