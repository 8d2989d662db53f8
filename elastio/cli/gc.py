"""`elastio gc`: this machine's forgotten volumes, judged with the kernel's word and the agent's memory."""

from __future__ import annotations

import click

from elastio.cli.app import App
from elastio.control.status import Status, VolumePart
from elastio.core.model import VolumeTag
from elastio.errors import ElastioError
from elastio.units import format_size

WAIT_S = 300.0
LEAVING = ("deleting", "gone")


@click.command(name="gc")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--timeout", "wait_s", metavar="SECONDS", type=click.FloatRange(min=1), default=WAIT_S, show_default=True)
@click.pass_obj
def gc(app: App, dry_run: bool, wait_s: float) -> None:
    """Release this agent's volumes that no cycle knows; it does so by itself too, every `policy.reconcile_interval_s`.

    A volume that is not tagged clean and that no cycle knows is never released: it may hold the only copy of data.
    """
    seen = app.client().status()
    if not dry_run:
        click.echo(app.client().ask("gc")["text"])
        seen = _settled(app, wait_s)
    if seen.owned is None:
        raise ElastioError("the cloud has not listed this agent's volumes yet: ask again in a moment")
    for volume in seen.owned:
        click.echo(f"{volume.id}  {format_size(volume.size_bytes)}  {volume.state}  {verdict(volume, seen)}")
    if not seen.owned:
        click.echo("this agent has no volumes")


def _settled(app: App, wait_s: float) -> Status:
    """Once the list is new and nothing is left that would be released."""
    for seen in app.watch(wait_s, lambda _: "forgotten volumes are not released"):
        if seen.phase not in ("idle", "detaching"):
            return seen
        fresh = seen.owned is not None and seen.listed_ago_s is not None and seen.phase == "idle"
        if fresh and not any(is_forgotten(v, seen) for v in seen.owned or ()):
            return seen
    raise AssertionError("unreachable: the watch ends with an error")


def is_forgotten(volume: VolumePart, seen: Status) -> bool:
    """It would be released as soon as the agent is idle."""
    of_cycle = seen.cycle is not None and seen.cycle.volume_id == volume.id
    return not of_cycle and not volume.kept and volume.state not in (*LEAVING, "elsewhere")


def verdict(volume: VolumePart, seen: Status) -> str:
    """What becomes of the volume, and why."""
    if volume.state in LEAVING:
        return "leaving"
    if seen.cycle is not None and seen.cycle.volume_id == volume.id:
        return f"kept: it is the cache of the cycle under way ({seen.phase})"
    if volume.kept:
        return f"kept: {_why_kept(volume)}"
    if volume.state == "elsewhere":
        return "kept: it is attached to another instance"
    if seen.phase == "faulted":
        return "kept: the agent is faulted and releases nothing"
    return "would be released: no cycle knows it, and the kernel is asked once more before"


def _why_kept(volume: VolumePart) -> str:
    if volume.backing_uuid:
        return f"it was bought for backing device {volume.backing_uuid}, which this agent does not drive"
    if volume.tag != VolumeTag.CLEAN:
        return f"it is tagged {volume.tag} and no cycle knows it; it may hold the only copy of data"
    return f"an operator gave it up by name (it is tagged {volume.tag}): only you delete it"
