"""`elastio recover`: bring a missing cache back in the right order, or, on an explicit order, go on without it."""

from __future__ import annotations

import re
import time

import click

from elastio.cli.app import App, standing
from elastio.control.status import MissingPart, Status
from elastio.errors import ElastioError, HostError
from elastio.host.sysfs import Sysfs
from elastio.units import format_duration, format_size

WAIT_S = 600.0
UMOUNT_S = 120.0
_OCTAL = re.compile(r"\\([0-7]{3})")


@click.command()
@click.option("--volume", metavar="ID", help="The volume, where the agent cannot know which it is.")
@click.option("--umount", is_flag=True, help="Unmount the adaptive device without asking.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Give up what only the missing cache holds, and start the device without it.",
)
@click.option("--yes", is_flag=True, help="Do not ask whether the loss is accepted.")
@click.option("--timeout", "wait_s", metavar="SECONDS", type=click.FloatRange(min=1), default=WAIT_S, show_default=True)
@click.pass_obj
def recover(app: App, volume: str | None, umount: bool, accept_data_loss: bool, yes: bool, wait_s: float) -> None:
    """Bring the missing cache volume back: unmount, attach, register, start, in this order.

    Without a missing cache nothing is changed (code 5). With --accept-data-loss the device is started without it; that
    is refused while the volume still exists in the cloud, unless it is named with --volume.
    """
    seen = app.client().status()
    for line in plan(seen):
        click.echo(line)
    if seen.missing is not None and seen.missing.waits_for_umount:
        _umount(app, seen.missing, umount)
    if accept_data_loss:
        _confirm(seen.missing, volume, yes)
        if seen.missing is not None and (seen.missing.waits_for_umount or seen.backing is None):
            _wait_for_backing(app, wait_s)
    fields: dict[str, object] = {"accepts_loss": int(accept_data_loss)}
    click.echo(app.client().ask("recover", **fields, **({"volume_id": volume} if volume else {}))["text"])
    _wait(app, wait_s)


def plan(seen: Status) -> list[str]:
    """What is missing, and the steps in their order."""
    missing = seen.missing
    if missing is None:
        return []
    if missing.may_lack_data:
        return _ways_out(missing, seen.wall)
    if missing.may_be_older:
        return _older_or_needed(missing, seen.wall)
    steps = ["attach the volume to this machine", "register it with bcache, which starts the device", "mount it"]
    if missing.waits_for_umount:
        steps.insert(0, f"stop the applications, unmount /dev/{missing.adaptive}, wait until it is gone")
    return [
        f"needed: volume {missing.volume_id or 'unknown'} ({missing.volume_state})",
        f"on it alone: {extent(missing, seen.wall)}",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
    ]


def _ways_out(missing: MissingPart, wall: float) -> list[str]:
    """There is nothing to bring back to this device: another one is needed, or a decision."""
    volume = missing.volume_id or "unknown"
    return [
        f"the backing device shows no cache, but volume {volume} ({missing.volume_state}) was one when last seen",
        f"on it alone: {extent(missing, wall)}",
        "either: this is an older copy; attach the right backing volume in its place, and the agent goes on by itself",
        f"or: this is the one you want; `elastio recover --accept-data-loss --volume {volume}` gives up that data",
    ]


def _older_or_needed(missing: MissingPart, wall: float) -> list[str]:
    """Nothing is brought back before somebody has said which of the two is newer."""
    volume = missing.volume_id or "unknown"
    return [
        f"the backing device was clean when its cache, volume {volume} ({missing.volume_state}), went",
        f"on it alone: {extent(missing, wall)}",
        "either: it failed while the device ran (`journalctl -k -b -1` says so), and is older than the device now:",
        f"  `elastio recover --accept-data-loss --volume {volume}` goes on without it",
        f"or: it was detached while the machine was off: `elastio recover --volume {volume}` brings it back",
    ]


def extent(missing: MissingPart, wall: float) -> str:
    """What is known about the data that only the missing cache holds."""
    if missing.seen_wall is None:
        return "nothing is known about how much"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(missing.seen_wall))
    ago = format_duration(max(0.0, wall - missing.seen_wall))
    peak = format_size(max(missing.peak_dirty_bytes, missing.dirty_bytes))
    return f"{format_size(missing.dirty_bytes)} of data when last seen ({when}, {ago} ago), {peak} at most until then"


# --- unmounting --------------------------------------------------------------------------------------------


def _umount(app: App, missing: MissingPart, is_agreed: bool) -> None:
    """The order matters: a cache that returns under the mount crashes the kernel at the next umount."""
    places = mounts_of(app.sysfs(), missing.adaptive)
    if places and not is_agreed:
        if not app.is_terminal():
            raise ElastioError(
                f"/dev/{missing.adaptive} is mounted at {', '.join(places)}: unmount it, or use --umount"
            )
        click.confirm(f"unmount {', '.join(places)}?", abort=True)
    for place in reversed(places):
        try:
            app.run(["umount", "--", place], timeout_s=UMOUNT_S)
        except HostError as error:
            raise HostError(f"{error}; stop what uses {place}, or reboot with both volumes attached") from error
        click.echo(f"unmounted {place}")


def mounts_of(sysfs: Sysfs, adaptive: str) -> list[str]:
    """Where the device is mounted, in the order in which that was done. Reads /proc, which takes no lock of bcache."""
    number = sysfs.read_or(f"sys/block/{adaptive}/dev", "")
    lines = (line.split() for line in sysfs.read_or("proc/self/mountinfo", "").splitlines())
    return [_plain(words[4]) for words in lines if number and len(words) > 4 and words[2] == number]


def _plain(place: str) -> str:
    """mountinfo writes blanks, tabs, newlines and backslashes as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), place)


# --- giving up ---------------------------------------------------------------------------------------------


def _confirm(missing: MissingPart | None, volume: str | None, is_agreed: bool) -> None:
    if is_agreed or missing is None:
        return
    name = volume or missing.volume_id or "unknown"
    typed = click.prompt(f"What only volume {name} holds is lost for good. Type its name to go on", default="")
    if typed != name:
        raise ElastioError("the name was not typed: nothing was changed")


def _wait_for_backing(app: App, wait_s: float) -> None:
    """After the umount the kernel lets go of the backing device for a moment, until the agent registers it again."""
    for seen in app.watch(wait_s, lambda _: "the backing device is not registered again"):
        if seen.backing is not None and not (seen.missing is not None and seen.missing.waits_for_umount):
            return


def _wait(app: App, wait_s: float) -> None:
    told = ""
    for seen in app.watch(wait_s, lambda _: "the device is not back"):
        if seen.phase != "faulted" and seen.missing is None:
            click.echo(f"the device is back: {standing(seen)}")
            return
        if seen.waiting_for and seen.waiting_for != told:
            told = seen.waiting_for
            click.echo(f"waiting for {told}")
