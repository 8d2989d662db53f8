"""`elastio recover`: brings a missing cache back in the right order or, on an explicit order, gives it up.

`elastio recover --foreign`: the cache of a machine that is gone is taken over, flushed and released. The agent does it
all; the command asks, shows what is awaited, and says how it ended. It can be ended and given again at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from elastio.control.protocol import RefusedByAgentError
from elastio.control.status import MissingPart, Status
from elastio.core.state import FaultKind
from elastio.errors import DeviceBusyError, ElastioError, HostError
from elastio.host.usage import UseKind, in_use, mounted_at
from elastio.units import format_duration, format_size
from elastio_cli import consent, flush
from elastio_cli.app import App, describe
from elastio_cli.options import seconds_option, volume_id
from elastio_cli.terminal import busy, only_waiting

WAIT_S = 600.0
UMOUNT_S = 120.0
GOES_ON = "the agent goes on, and so does the same command"


@click.command(short_help="Bring a missing cache volume back, or give it up.")
@click.option(
    "--volume", metavar="ID", callback=volume_id, help="Cache volume, if the agent cannot tell which one it is."
)
@click.option(
    "--foreign",
    metavar="ID",
    callback=volume_id,
    help="Cache volume of a machine that is gone: take it over, flush, release.",
)
@click.option("--umount", is_flag=True, help="Unmount the adaptive device without confirmation.")
@click.option(
    "--accept-data-loss",
    is_flag=True,
    help="Give up the dirty data of the missing cache, and start the device without it.",
)
@click.option(
    "--bring-back", is_flag=True, help="Attach the cache of --volume although it may be older than the device."
)
@click.option("--yes", is_flag=True, help="Accept the loss of data without confirmation.")
@seconds_option("--timeout", "wait_s", WAIT_S, "Time to wait for the device.")
@click.pass_obj
def recover(
    app: App,
    volume: str | None,
    foreign: str | None,
    umount: bool,
    accept_data_loss: bool,
    bring_back: bool,
    yes: bool,
    wait_s: float,
) -> None:
    """Bring a missing cache volume back: unmount the device, attach the volume, register it, start the device.

    With --accept-data-loss the device starts without its cache. That is refused while the volume still exists in the
    cloud, unless --volume names it. If no cache is missing, nothing is changed and the exit code is 5.

    With --bring-back and --accept-data-loss the named volume is attached although its content may be older.

    With --foreign the cache is a volume that another machine bought, which is gone and whose backing volume is here
    now. It is taken over, flushed and deleted; refused unless the cloud proves that the machine is gone. If the device
    was clean when it lost its cache, --accept-data-loss is needed. The same command goes on after a failure.
    """
    if foreign is not None:
        if volume is not None:
            raise click.UsageError("give --foreign or --volume")
        take_over(app, Order(foreign, accept_data_loss, yes), wait_s, lambda missing: _umount(app, missing, umount))
        return
    if bring_back and not (volume and accept_data_loss):
        raise click.UsageError("--bring-back needs --volume and --accept-data-loss")
    seen = app.client().status()
    for line in plan(seen):
        click.echo(line)
    if seen.missing is not None and seen.missing.waits_for_umount:
        _umount(app, seen.missing, umount)
    if accept_data_loss:
        _confirm(seen.missing, volume, yes, BACK if bring_back else LOST)
        if not bring_back and seen.missing is not None and (seen.missing.waits_for_umount or seen.backing is None):
            _wait_for_backing(app, wait_s)
    fields = {**({"brings_back": 1} if bring_back else {}), **({"volume_id": volume} if volume else {})}
    click.echo(app.client().ask("recover", accepts_loss=int(accept_data_loss), **fields)["text"])
    _wait(app, wait_s)


def plan(seen: Status) -> list[str]:
    """The missing volume and the steps that bring it back, as lines to print."""
    missing = seen.missing
    if missing is None:
        return []
    if missing.may_lack_data:
        return _older_copy(missing, seen.wall)
    if missing.may_be_older:
        return _older_cache(missing, seen.wall)
    steps = ["attach the volume to this machine", "register it with bcache, which starts the device", "mount it"]
    if missing.waits_for_umount:
        steps.insert(0, f"stop the applications, unmount /dev/{missing.adaptive} and wait until it is gone")
    return [
        f"missing cache volume: {missing.volume_id or 'unknown'} ({missing.volume_state})",
        f"dirty data only on this volume: {extent(missing, seen.wall)}",
        *(f"{number}. {step}" for number, step in enumerate(steps, 1)),
    ]


def _older_copy(missing: MissingPart, wall: float) -> list[str]:
    """The attached backing device names no cache: it may be an older copy, so the operator decides."""
    volume = missing.volume_id or "unknown"
    return [
        f"the backing device has no cache, but volume {volume} ({missing.volume_state}) was its cache when last seen",
        f"dirty data only on this volume: {extent(missing, wall)}",
        "if the backing device is an older copy: attach the right backing volume instead; the agent then continues",
        f"if it is the right one: `elastio recover --accept-data-loss --volume {volume}` gives up that data",
    ]


def _older_cache(missing: MissingPart, wall: float) -> list[str]:
    """The cache may be older than the backing device, so the operator decides."""
    volume = missing.volume_id or "unknown"
    return [
        f"the backing device was clean when its cache, volume {volume} ({missing.volume_state}), was lost",
        f"dirty data only on this volume: {extent(missing, wall)}",
        "if the cache failed while the device ran (see `journalctl -k -b -1`), it is older than the device:",
        f"  `elastio recover --accept-data-loss --volume {volume}` continues without it",
        "if it was detached while the machine was off:",
        f"  `elastio recover --bring-back --accept-data-loss --volume {volume}` brings it back",
        "if you do not know: take snapshots of both volumes, bring it back, check the filesystem, compare",
    ]


def extent(missing: MissingPart, wall: float) -> str:
    """The amount of data that only the missing cache holds, as far as known."""
    if missing.seen_wall is None:
        return "unknown amount"
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(missing.seen_wall))
    ago = format_duration(max(0.0, wall - missing.seen_wall))
    peak = format_size(max(missing.peak_dirty_bytes, missing.dirty_bytes))
    return f"{format_size(missing.dirty_bytes)} when last seen ({when}, {ago} ago), at most {peak} before"


# --- unmounting --------------------------------------------------------------------------------------------


def _umount(app: App, missing: MissingPart, is_agreed: bool) -> None:
    """Unmount first: if the cache returns while the device is mounted, the next umount crashes the kernel.

    Raises DeviceBusyError if it is in use after that, by whomever: the kernel keeps the device until then.
    """
    if app.is_simulated:
        return  # a device of this machine may have its name
    sysfs = app.sysfs()
    places = mounted_at(sysfs, missing.adaptive)
    if places and not is_agreed:
        if not app.is_terminal():
            raise ElastioError(
                f"/dev/{missing.adaptive} is mounted at {', '.join(places)}: unmount it, or give --umount"
            )
        consent.confirm(f"unmount {', '.join(places)}?", instead="--umount")
    for place in reversed(places):
        try:
            with busy(f"unmounting {place}"):
                app.run(["umount", "--", place], timeout_s=UMOUNT_S)
        except HostError as error:
            raise HostError(f"{error}: stop what uses {place}, or reboot with both volumes attached") from error
        click.echo(f"unmounted {place}")
    left = [use for use in in_use(sysfs, missing.adaptive) if use.kind is not UseKind.PARTITION]
    if left:
        shown = f"/dev/{missing.adaptive} {' and '.join(map(str, left))}"
        raise DeviceBusyError(
            f"{shown}: the cache must not return before that has ended (umount, swapoff, vgchange -an, "
            "cryptsetup close, mdadm --stop, zpool export)",
            code="recover.in_use",
        )


# --- data loss ---------------------------------------------------------------------------------------------


LOST = "The dirty data on volume {} will be lost"
BACK = "Volume {} may be older than the device, and blocks may be read as they were before"


def _confirm(missing: MissingPart | None, volume: str | None, is_agreed: bool, what: str) -> None:
    name = volume or (missing.volume_id or "unknown" if missing else "")
    if is_agreed or not name:
        return
    answer = consent.typed(f"{what.format(name)}. Type the name of the volume to continue")
    if answer != name:
        raise ElastioError("the name does not match: nothing was changed")


@only_waiting("nothing was given up, and the same command goes on")
def _wait_for_backing(app: App, wait_s: float) -> None:
    """After the umount the kernel drops the backing device until the agent registers it again."""
    for seen in app.watch(wait_s, lambda _: "the backing device is not registered again"):
        if seen.backing is not None and not (seen.missing is not None and seen.missing.waits_for_umount):
            return


@only_waiting(GOES_ON)
def _wait(app: App, wait_s: float) -> None:
    shown = ""
    for seen in app.watch(wait_s, lambda _: "the device is not back"):
        if seen.phase != "faulted" and seen.missing is None:
            click.echo(f"the device is back: {describe(seen)}")
            return
        if seen.waiting_for and seen.waiting_for != shown:
            shown = seen.waiting_for
            click.echo(f"waiting for {shown}")


# What the order itself cures; every other fault needs an operator first.
CURED = (FaultKind.CACHE_MISSING, FaultKind.FOREIGN_CACHE, FaultKind.CACHE_FAILED)


@dataclass(frozen=True, slots=True)
class Order:
    """What was asked for. `accepts_loss`: also if the cache may be older than the device; `is_agreed`: do not ask."""

    volume: str
    accepts_loss: bool
    is_agreed: bool


def take_over(app: App, order: Order, wait_s: float, umount: Callable[[MissingPart], None]) -> None:
    """Raises RefusedByAgentError if the volume is not taken over, TimedOutError after `wait_s` without the device."""
    seen = app.client().status()
    if order.accepts_loss and not order.is_agreed:
        _confirm_foreign(order.volume)
    if seen.missing is not None and seen.missing.waits_for_umount:
        umount(seen.missing)
    fields = {"is_foreign": 1, "accepts_loss": int(order.accepts_loss), "volume_id": order.volume}
    click.echo(app.client().ask("recover", **fields)["text"])
    if _wait_for_device(app, order.volume, wait_s).cycle is not None:
        flush.wait_for_release(app, flush.WAIT_S)
    click.echo(f"all data of volume {order.volume} is on the backing device, and the volume is deleted")


def _confirm_foreign(volume: str) -> None:
    click.echo(
        "if the cache failed before its machine died, it is older than the device, and the filesystem may be damaged: "
        "take snapshots of both volumes first"
    )
    answer = consent.typed(f"Type the name of volume {volume} to use it nevertheless")
    if answer != volume:
        raise ElastioError("the name does not match: nothing was changed")


@only_waiting(GOES_ON)
def _wait_for_device(app: App, volume: str, wait_s: float) -> Status:
    """The first status in which the kernel has assembled the device, or all is done."""
    shown = ""
    for seen in app.watch(wait_s, lambda _: f"the device is not back; {GOES_ON}"):
        if seen.take_over is not None and seen.take_over.refused and seen.take_over.volume_id == volume:
            raise RefusedByAgentError(seen.take_over.refused, code=seen.take_over.code)
        if seen.phase != "faulted":
            click.echo(f"the device is back: {describe(seen)}")
            return seen
        if seen.fault_kind not in CURED:
            raise ElastioError(describe(seen))
        if seen.waiting_for and seen.waiting_for != shown:
            shown = seen.waiting_for
            click.echo(f"waiting for {shown}")
    raise AssertionError("`watch` raises TimedOutError at its end")
