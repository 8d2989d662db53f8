"""`elastio-testbed cloud openstack`: the laboratory's OpenStack on the command line."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from elastio.units import MIB
from elastio_testbed.console import click_errors, conclude, progress
from elastio_testbed.files import write_json
from elastio_testbed.options import suite_option


@click.group()
def openstack() -> None:
    """Run a one-node OpenStack on the loopback interface, in a root directory of its own."""


@openstack.command()
def up() -> None:
    """Install missing packages and start missing services."""
    from elastio_testbed.openstack.lab import open_lab  # noqa: PLC0415  the SDK takes a second to load

    began, say = time.monotonic(), progress()
    with click_errors():
        lab = open_lab(say)
        lab.up(say)
    click.echo(f"OpenStack is up after {time.monotonic() - began:.1f} s; logs in {lab.root}/var/log/lab")


@openstack.command()
@click.option("--remove", is_flag=True, help="Also delete packages, databases and volumes.")
def down(remove: bool) -> None:
    """Stop guests and services, and unmount their file systems."""
    from elastio_testbed.openstack.lab import find_lab, remove_lab  # noqa: PLC0415

    with click_errors():
        lab = find_lab()
        if lab is not None:
            lab.down()
        if remove:
            remove_lab()
    click.echo("OpenStack is down" + (" and removed" if remove else ""))


@openstack.command()
def status() -> None:
    """Show all services and their memory. Exit code 1 unless all of them run."""
    from elastio_testbed.openstack.lab import find_lab  # noqa: PLC0415

    lab = find_lab()
    if lab is None:
        raise click.ClickException("OpenStack is not installed; run `elastio-testbed cloud openstack up`")
    rows = lab.status()
    for row in rows:
        state = f"pid {row.pid:7d}  {row.memory_bytes / MIB:6.0f} MiB" if row.pid else "down"
        click.echo(f"{row.name:16s} {state}")
    click.echo(f"{'total':16s} {'':11s}  {sum(row.memory_bytes for row in rows) / MIB:6.0f} MiB")
    if any(row.pid is None for row in rows):
        sys.exit(1)


@openstack.command()
@click.option("--kind", "names", multiple=True, help="Kind of fault; may be repeated. Default: all kinds.")
@click.option("--list", "is_list", is_flag=True, help="Print the kinds and run nothing.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Seed of the records.")
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="File for the result, written every run.")
def faults(names: tuple[str, ...], is_list: bool, seed: int, suite: str | None, json_path: Path | None) -> None:
    """Take services, credential and quota away from a boosting guest, and count lost records and leaked volumes.

    Starts missing services. Exit code 1 if anything was lost or leaked, or did not happen as planned.
    """
    from elastio_testbed.openstack.faults import KINDS  # noqa: PLC0415

    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise click.ClickException(f"unknown fault {', '.join(unknown)}; the faults are {', '.join(KINDS)}")
    if is_list:
        for kind in KINDS.values():
            click.echo(f"{kind.name}: at {kind.trigger}")
        return
    with click_errors():
        document = _campaign(names or tuple(KINDS), seed, suite, json_path)
    conclude(document)


def _campaign(names: tuple[str, ...], seed: int, suite: str | None, json_path: Path | None) -> dict[str, object]:
    """The document of these runs; it is written before the next run begins."""
    from elastio_testbed.image import build_guest_image  # noqa: PLC0415
    from elastio_testbed.openstack.faults import KINDS, Runner, ServiceFaultResult, summary  # noqa: PLC0415
    from elastio_testbed.openstack.lab import open_lab  # noqa: PLC0415

    say = progress()
    lab = open_lab(say)
    lab.up(say)
    results: list[ServiceFaultResult] = []
    with Runner(lab, build_guest_image(suite=suite), seed, say) as runner:
        for result in runner.carry_out([KINDS[name] for name in names]):
            results.append(result)
            write_json(json_path, summary(results))
    return summary(results)
