"""`elastio init`: detects what it can and writes the configuration file."""

from __future__ import annotations

from dataclasses import replace

import click

from elastio.config.files import read_drop_ins
from elastio.config.paths import name_of, unit_of
from elastio.config.text import exists, write
from elastio.core.model import Identity
from elastio.errors import ConfigError, ElastioError, HostError
from elastio_cli.app import App
from elastio_cli.options import ABOVE_0
from elastio_cli.terminal import busy
from elastio_setup.candidates import Candidate, all_candidates, choose
from elastio_setup.first_config import Cloud, FirstConfig, beyond_limit, find_bandwidth, open_cloud
from elastio_setup.subprocess_timeout import call_with_timeout

KERNEL_S = 15.0
NO_BANDWIDTH = "the bandwidth of the backing volume is unknown: give --bandwidth"
NO_CACHE_BANDWIDTH = "the bandwidth to buy is not set: give --cache-bandwidth"


@click.command(short_help="Detect cloud and device, and write the configuration file.")
@click.option(
    "--device", metavar="UUID|PATH", help="Backing device: its UUID, node or mount point  [default: the only one]"
)
@click.option(
    "--bandwidth",
    "bandwidth_mb_s",
    metavar="MB/S",
    type=ABOVE_0,
    help="Bandwidth of the backing volume  [default: as the cloud tells]",
)
@click.option(
    "--cache-bandwidth", "cache_bandwidth_mb_s", metavar="MB/S", type=ABOVE_0, help="Bandwidth to buy for a cache."
)
@click.option("--provider", metavar="NAME", help="Name of the cloud provider  [default: the detected one]")
@click.option("--name", metavar="NAME", help="Name of a further device of this VM: its file is NAME.toml.")
@click.option("--print", "print_only", is_flag=True, help="Print the configuration instead of writing it.")
@click.option("--force", is_flag=True, help="Replace an existing configuration file.")
@click.pass_obj
def init(
    app: App,
    device: str | None,
    bandwidth_mb_s: float | None,
    cache_bandwidth_mb_s: float | None,
    provider: str | None,
    name: str | None,
    print_only: bool,
    force: bool,
) -> None:
    """Detect cloud, instance and backing device, and write the configuration file.

    On a terminal, missing values are prompted for. Otherwise the exit code is 3, and stderr names every missing option.
    """
    app = app.named(name)
    if app.config_path.exists() and not (force or print_only):
        raise exists(app.config_path)
    found, missing = _find_device(app, device)
    cloud, unknown = _open_cloud(app, provider, found)
    bandwidth_mb_s = bandwidth_mb_s or _told(app, cloud, found)
    if app.is_terminal():
        bandwidth_mb_s = bandwidth_mb_s or click.prompt("Bandwidth of the backing volume (MB/s)", type=ABOVE_0)
        cache_bandwidth_mb_s = cache_bandwidth_mb_s or click.prompt("Bandwidth to buy for a cache (MB/s)", type=ABOVE_0)
    if found is None or cloud is None or bandwidth_mb_s is None or cache_bandwidth_mb_s is None:
        missing += [*unknown, *([] if bandwidth_mb_s else [NO_BANDWIDTH])]
        missing += [] if cache_bandwidth_mb_s else [NO_CACHE_BANDWIDTH]
        raise ConfigError("; ".join(missing), code="init.missing")
    first = FirstConfig(bandwidth_mb_s, cache_bandwidth_mb_s, cloud.name, beneath=read_drop_ins(app.config_path))
    for doubt in first.parsed(found.uuid).doubts:
        click.echo(f"elastio: {doubt}", err=True)
    text = _text(first, cloud, found)
    if print_only:
        click.echo(text, nl=False)
        return
    write(app.config_path, text, replace=force)
    click.echo(f"wrote {app.config_path} for backing device {found}")
    click.echo("\n  ".join(("next steps:", *_next_steps(name or name_of(app.config_path)))))


def _next_steps(name: str) -> tuple[str, ...]:
    """With a name: the agents that run already have to learn of the new device."""
    unit = unit_of(name).removesuffix(".service")
    reload = (f"systemctl reload {unit_of('').removesuffix('.service')}",) if name else ()
    return f"elastio doctor{f' --device {name}' if name else ''}", f"systemctl enable --now {unit}", *reload


def _told(app: App, cloud: Cloud | None, found: Candidate | None) -> float | None:
    """The bandwidth of the backing volume, if the cloud tells it."""
    if cloud is None or found is None:
        return None
    with busy("asking the cloud for the bandwidth of the volume"):
        return find_bandwidth(cloud.provider, app.sysfs(), found.device)[0]


def _text(first: FirstConfig, cloud: Cloud, found: Candidate) -> str:
    """The file. Warns if the instance is slower than the cache."""
    first = replace(first, identity=_identify(cloud))
    if warning := beyond_limit(first.cache_mb_s, first.identity):
        click.echo(f"elastio: {warning}", err=True)
    return first.text(found)


def _find_device(app: App, wanted: str | None) -> tuple[Candidate | None, list[str]]:
    """The backing device, or why it cannot be chosen."""
    try:
        sysfs = app.sysfs()
        return call_with_timeout(lambda: choose(all_candidates(sysfs), wanted, sysfs), KERNEL_S), []
    except (ConfigError, HostError) as error:
        return None, [str(error)]


def _open_cloud(app: App, wanted: str | None, found: Candidate | None) -> tuple[Cloud | None, list[str]]:
    """The provider, or why there is none."""
    try:
        return open_cloud(app.config_path, wanted, found.uuid if found else ""), []
    except ConfigError as error:
        return None, [str(error)]


def _identify(cloud: Cloud) -> Identity | None:
    """The identity of this instance; None with a warning if the cloud does not answer: only the agent needs it."""
    try:
        with busy("asking the cloud which machine this is"):
            return cloud.provider.identify()
    except ElastioError as error:
        click.echo(f"elastio: the instance cannot be identified: {error}", err=True)
        return None
