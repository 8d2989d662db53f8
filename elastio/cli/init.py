"""`elastio init`: detects what it can and writes the configuration file."""

from __future__ import annotations

import click

from elastio import registry
from elastio.cli.app import App
from elastio.cli.busy import busy
from elastio.config.doubts import doubts
from elastio.config.schema import Config, parse
from elastio.config.text import exists, render, write
from elastio.core.model import Identity
from elastio.errors import ConfigError, ElastioError, HostError
from elastio.setup.candidates import Candidate, candidates, choose
from elastio.setup.subprocess_timeout import call_with_timeout
from elastio.units import format_size

KERNEL_S = 15.0
# One in five minutes, all day: more than the bursts of the published applications.
BOOSTS_A_DAY = 288
MB_S = click.FloatRange(min=0, min_open=True)
MISSING = {
    "provider.name": "no installed provider recognises this machine: give one with --provider ({})",
    "device.bandwidth_mb_s": "the bandwidth of the backing volume is unknown: give --bandwidth",
    "cache.bandwidth_mb_s": "the bandwidth to buy is not set: give --cache-bandwidth",
}


@click.command()
@click.option("--device", metavar="UUID|PATH", help="Backing device  [default: the only registered one]")
@click.option("--bandwidth", "bandwidth_mb_s", metavar="MB/S", type=MB_S, help="Bandwidth of the backing volume.")
@click.option(
    "--cache-bandwidth", "cache_bandwidth_mb_s", metavar="MB/S", type=MB_S, help="Bandwidth to buy for a cache."
)
@click.option("--provider", metavar="NAME", help="Name of the cloud provider  [default: the detected one]")
@click.option("--print", "print_only", is_flag=True, help="Print the configuration instead of writing it.")
@click.option("--force", is_flag=True, help="Replace an existing configuration file.")
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
    """Detect cloud, instance and backing device, and write the configuration file.

    On a terminal, missing values are prompted for. Otherwise the exit code is 3, and stderr names every missing option.
    """
    if app.config_path.exists() and not (force or print_only):
        raise exists(app.config_path)
    if app.is_terminal():
        bandwidth_mb_s = bandwidth_mb_s or click.prompt("Bandwidth of the backing volume (MB/s)", type=MB_S)
        cache_bandwidth_mb_s = cache_bandwidth_mb_s or click.prompt("Bandwidth to buy for a cache (MB/s)", type=MB_S)
    found, missing = _find_device(app, device)
    chosen: dict[str, object] = {
        "device.backing_uuid": found and found.uuid,
        "device.bandwidth_mb_s": bandwidth_mb_s,
        "cache.bandwidth_mb_s": cache_bandwidth_mb_s,
        "caps.max_boosts_per_day": BOOSTS_A_DAY,
        "provider.name": provider or registry.detect_provider(),
    }
    names = ", ".join(sorted(registry.providers()))
    missing += [text.format(names) for key, text in MISSING.items() if chosen[key] is None]
    if found is None or missing:
        raise ConfigError("; ".join(missing), code="init.missing")
    doubtful = doubts(_validated(chosen))
    identity = _identify(chosen)
    text = render(chosen, _notes(found, identity))
    _warn(chosen, identity, doubtful)
    if print_only:
        click.echo(text, nl=False)
        return
    write(app.config_path, text, replace=force)
    click.echo(f"wrote {app.config_path} for backing device {found}")
    click.echo("next steps:\n  elastio doctor\n  systemctl enable --now elastiod")


def _find_device(app: App, wanted: str | None) -> tuple[Candidate | None, list[str]]:
    """The backing device, or why it cannot be chosen."""
    try:
        return choose(call_with_timeout(lambda: candidates(app.sysfs()), KERNEL_S), wanted), []
    except (ConfigError, HostError) as error:
        return None, [str(error)]


def _validated(chosen: dict[str, object]) -> Config:
    """The configuration. Raises ConfigError if the agent would refuse the settings."""
    document: dict[str, dict[str, object]] = {}
    for key, value in chosen.items():
        section, _, name = key.partition(".")
        document.setdefault(section, {})[name] = value
    return parse(document)


def _identify(chosen: dict[str, object]) -> Identity | None:
    """The identity of this instance; None with a warning if the cloud does not answer: only the agent needs it."""
    try:
        provider = registry.open_provider(str(chosen["provider.name"]), {}, str(chosen["device.backing_uuid"]))
        with busy("asking the cloud which machine this is"):
            return provider.identify()
    except ElastioError as error:
        click.echo(f"elastio: the instance cannot be identified: {error}", err=True)
        return None


def _notes(found: Candidate, identity: Identity | None) -> tuple[str, ...]:
    backing = f"Backing device: /dev/{found.device}, {format_size(found.size_bytes)}."
    instance = (
        f"Instance: {identity.instance_id} ({identity.instance_type or 'type unknown'}) in {identity.zone}, "
        f"{identity.cloud}."
        if identity
        else ""
    )
    cap = (
        f"caps.max_boosts_per_day = {BOOSTS_A_DAY} is one boost in five minutes. It limits what a mistake can cost. "
        "Raise it for an application with more frequent bursts; without the key there is no limit."
    )
    written = "Written by `elastio init`. Commented keys show their defaults."
    return tuple(note for note in (written, instance, backing, cap) if note)


def _warn(chosen: dict[str, object], identity: Identity | None, doubtful: tuple[str, ...]) -> None:
    for doubt in doubtful:
        click.echo(f"elastio: {doubt}", err=True)
    limit = identity.bandwidth_limit_mb_s if identity else None
    wanted = chosen["cache.bandwidth_mb_s"]
    if limit is not None and isinstance(wanted, int | float) and wanted > limit:
        click.echo(
            f"elastio: this instance is limited to {limit:g} MB/s for all its volumes: the purchase of a cache of "
            f"{wanted:g} MB/s will be refused",
            err=True,
        )
