"""`elastio gc`: releases orphaned volumes of this machine. The agent decides, from its journal and the kernel."""

from __future__ import annotations

import click

from elastio.control.status import Status, VolumePart
from elastio.core.model import VolumeTag
from elastio.errors import ElastioError
from elastio.units import format_size
from elastio_cli.app import App
from elastio_cli.options import seconds_option
from elastio_cli.terminal import only_waiting

WAIT_S = 300.0
DELETED = ("deleting", "gone")


@click.command(short_help="Release orphaned volumes of this agent now.", name="gc")
@click.option("--dry-run", is_flag=True, help="Print what would be released, and release nothing.")
@seconds_option("--timeout", "wait_s", WAIT_S, "Time to wait for the release.")
@click.pass_obj
def gc(app: App, dry_run: bool, wait_s: float) -> None:
    """Release orphaned volumes of this agent now, instead of at the next `policy.reconcile_interval_s`.

    An orphan that is not tagged clean is never released: it may hold the only copy of data.
    """
    seen = app.client().status()
    if not dry_run:
        click.echo(app.client().ask("gc")["text"])
        seen = _settled(app, wait_s)
    if seen.owned is None:
        raise ElastioError("the cloud has not listed this agent's volumes yet: try again in a moment")
    for volume in seen.owned:
        click.echo(f"{volume.id}  {format_size(volume.size_bytes)}  {volume.state}  {decision(volume, seen)}")
    if not seen.owned:
        click.echo("this agent has no volumes")


@only_waiting("the agent goes on releasing volumes")
def _settled(app: App, wait_s: float) -> Status:
    """The status once the list of volumes is new and has no orphan that would be released."""
    for seen in app.watch(wait_s, lambda _: "orphaned volumes are not released"):
        if seen.phase not in ("idle", "detaching"):
            return seen
        fresh = seen.owned is not None and seen.listed_ago_s is not None and seen.phase == "idle"
        if fresh and not any(is_orphan(v, seen) for v in seen.owned or ()):
            return seen
    raise AssertionError("unreachable: the watch ends with an error")


def is_orphan(volume: VolumePart, seen: Status) -> bool:
    """True if the agent releases the volume when it is idle."""
    of_cycle = seen.cycle is not None and seen.cycle.volume_id == volume.id
    is_ours = not of_cycle and not volume.backing_uuid and not volume.kept
    return is_ours and volume.state not in (*DELETED, "elsewhere")


def decision(volume: VolumePart, seen: Status) -> str:
    """What happens to the volume, and why."""
    if volume.state in DELETED:
        return "being deleted"
    if seen.cycle is not None and seen.cycle.volume_id == volume.id:
        return f"kept: it is the cache of the current boost ({seen.phase})"
    if volume.backing_uuid and not volume.kept:
        return f"left to the agent of backing device {volume.backing_uuid}"
    if volume.kept:
        return f"kept: {_why_kept(volume)}"
    if volume.state == "elsewhere":
        return "kept: it is attached to another instance"
    if seen.phase == "faulted":
        return "kept: the agent is faulted and releases nothing"
    return "would be released: it is an orphan; the kernel is checked once more before that"


def _why_kept(volume: VolumePart) -> str:
    if volume.backing_uuid:
        return f"it was bought for backing device {volume.backing_uuid}, which this agent does not drive"
    if volume.tag != VolumeTag.CLEAN:
        return f"it is an orphan tagged {volume.tag}, and may hold the only copy of data"
    return f"an operator accepted its loss (it is tagged {volume.tag}): delete it in the cloud"
