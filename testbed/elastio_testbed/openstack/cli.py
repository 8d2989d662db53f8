"""`elastio-testbed cloud openstack`: the laboratory's OpenStack from the command line."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from elastio_testbed.options import suite_option

MIB = 2**20


@click.group()
def openstack() -> None:
    """A real one-node OpenStack in a root directory of its own, on loopback."""


@openstack.command()
def up() -> None:
    """Install what is missing, start what does not run. Repeating does nothing."""
    from elastio_testbed.openstack.lab import open_lab  # noqa: PLC0415  the SDK takes a second to load

    began = time.monotonic()
    with _told():
        lab = open_lab(_say)
        installed_s = time.monotonic() - began
        if installed_s > 1:
            _say(f"packages installed in {installed_s:.0f} s: {lab.root}")
        lab.up(_say)
    click.echo(f"OpenStack is up after {time.monotonic() - began:.1f} s; logs in {lab.root}/var/log/lab")


@openstack.command()
@click.option("--remove", is_flag=True, help="Also remove packages, databases and volumes.")
def down(remove: bool) -> None:
    """Stop guests and services, and unmount."""
    from elastio_testbed.openstack.lab import find_lab, remove_lab  # noqa: PLC0415

    with _told():
        lab = find_lab()
        if lab is not None:
            lab.down()
        if remove:
            remove_lab()
    click.echo("OpenStack is down" + (" and removed" if remove else ""))


@openstack.command()
def status() -> None:
    """What runs, with its memory; exit code 1 when anything does not."""
    from elastio_testbed.openstack.lab import find_lab  # noqa: PLC0415

    lab = find_lab()
    if lab is None:
        raise click.ClickException("there is no OpenStack yet; `elastio-testbed cloud openstack up` makes it")
    rows = lab.status()
    for row in rows:
        state = f"pid {row.pid:7d}  {row.memory_bytes / MIB:6.0f} MiB" if row.pid else "down"
        click.echo(f"{row.name:16s} {state}")
    click.echo(f"{'together':16s} {'':11s}  {sum(row.memory_bytes for row in rows) / MIB:6.0f} MiB")
    if any(row.pid is None for row in rows):
        raise SystemExit(1)


@openstack.command()
@click.option("--kind", "names", multiple=True, help="Only these; else all. May be given more than once.")
@click.option("--list", "is_list", is_flag=True, help="Print the kinds and run nothing.")
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=1, show_default=True, help="Of the records.")
@suite_option
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here, after every run.")
def faults(names: tuple[str, ...], is_list: bool, seed: int, suite: str | None, json_path: Path | None) -> None:
    """Take services, credential and quota away from a guest that boosts, and count what was lost and left.

    Starts what does not run. Exit code 1 when anything was lost or left, or did not happen as planned.
    """
    from elastio_testbed.openstack.faults import KINDS  # noqa: PLC0415

    unknown = sorted(set(names) - set(KINDS))
    if unknown:
        raise click.ClickException(f"no such fault: {', '.join(unknown)}; known are {', '.join(KINDS)}")
    if is_list:
        for kind in KINDS.values():
            click.echo(f"{kind.name}: at {kind.moment}")
        return
    with _told():
        document = _carried_out(names or tuple(KINDS), seed, suite, json_path)
    click.echo(json.dumps({name: value for name, value in document.items() if name != "stories"}, indent=2))
    if not document["sound"]:
        sys.exit(1)


def _carried_out(names: tuple[str, ...], seed: int, suite: str | None, json_path: Path | None) -> dict[str, object]:
    """The document of these runs. What is done is on the disk before the next run begins."""
    from elastio_testbed.files import write_text  # noqa: PLC0415
    from elastio_testbed.image import build_guest_image  # noqa: PLC0415
    from elastio_testbed.openstack.faults import KINDS, Runner, Story, summary  # noqa: PLC0415
    from elastio_testbed.openstack.lab import open_lab  # noqa: PLC0415

    began = time.monotonic()

    def say(text: str) -> None:
        _say(f"[{time.monotonic() - began:7.1f} s] {text}")

    lab = open_lab(say)
    lab.up(say)
    stories: list[Story] = []
    with Runner(lab, build_guest_image(suite=suite), seed, say) as runner:
        for story in runner.carry_out([KINDS[name] for name in names]):
            stories.append(story)
            if json_path is not None:
                write_text(json_path, json.dumps(summary(stories), indent=2) + "\n")
    return summary(stories)


def _say(text: str) -> None:
    click.echo(text, err=True)


class _told:
    """Turns LabError, and what else goes wrong with guests and images, into one sentence and exit code 1."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from elastio_testbed.hypervisor import HypervisorError  # noqa: PLC0415
        from elastio_testbed.image import ImageError  # noqa: PLC0415
        from elastio_testbed.openstack.errors import LabError  # noqa: PLC0415

        if isinstance(error, HypervisorError | ImageError | LabError):
            raise click.ClickException(str(error)) from error
