"""`elastio pause` and `resume`: disable and enable boosts; `quiesce` and `unquiesce`: a consistent backing volume."""

from __future__ import annotations

import time

import click

from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import MAX_HOLD_S, RefusedByAgentError
from elastio.core.state import InhibitionReason
from elastio.errors import ElastioError
from elastio.units import format_duration, format_size
from elastio_cli import consent
from elastio_cli.app import App, describe
from elastio_cli.options import seconds_option
from elastio_cli.terminal import ended_by_signals, only_waiting
from elastio_cli.which_device import all_devices

WAIT_S = 3600.0
QUIESCED_S = 600.0


@click.command(short_help="Make the backing volume consistent for a snapshot.")
@seconds_option("--timeout", "wait_s", WAIT_S, "Time to wait for the flush.", MAX_HOLD_S / 2)
@seconds_option("--hold", "quiesced_s", QUIESCED_S, "Minimum time to inhibit boosts after the flush.", MAX_HOLD_S / 2)
@click.pass_obj
def quiesce(app: App, wait_s: float, quiesced_s: float) -> None:
    """Flush and release the cache and inhibit boosts, so that a snapshot of the backing volume is consistent.

    The exit code is 0 once the volume is consistent; it stays so for at least --hold seconds. On any other exit code
    this command leaves no inhibition; an existing one remains, possibly extended. With --all this holds for all devices
    together, and --timeout is that of all.
    """
    devices, begun = all_devices(app), list[App]()
    until = time.monotonic() + wait_s
    with ended_by_signals(), only_waiting("the agent goes on with a flush that has begun; take no snapshot"):
        try:
            for device in devices:
                _begin(device, int(wait_s + quiesced_s), begun)
            for device in devices:
                _wait(device, max(0.0, until - time.monotonic()))
            for device in devices[:-1]:  # while others were flushed, somebody may have ended its inhibition
                _wait(device, 0.0)
        except BaseException:  # also Ctrl-C and signals: nobody would end the inhibition
            for device in begun:
                _end_inhibition(device)
            raise
    what = "backing volume is" if len(devices) == 1 else f"{len(devices)} backing volumes are"
    stay = "stays" if len(devices) == 1 else "stay"
    click.echo(f"the {what} consistent, and {stay} so for at least {format_duration(quiesced_s)}")


def _begin(app: App, seconds: int, begun: list[App]) -> None:
    """Ask for the inhibition. One that this command began is in `begun`, also if its answer does not come."""
    client = app.client()
    hold = client.status().hold
    if hold is None or hold.reason != InhibitionReason.SNAPSHOT:
        begun.append(app)
    try:
        client.ask("quiesce", seconds=seconds)
    except RefusedByAgentError:
        begun[:] = [device for device in begun if device is not app]
        raise


def _end_inhibition(app: App) -> None:
    """End the inhibition. Errors are only printed, because the first error decides the exit code."""
    try:
        app.client().ask("unquiesce")
    except RefusedByAgentError as refusal:
        click.echo(f"elastio: {refusal}", err=True)
    except ElastioError as error:
        click.echo(f"elastio: the inhibition could not be ended and lasts until its time is over: {error}", err=True)


def _wait(app: App, wait_s: float) -> None:
    for seen in app.watch(wait_s, lambda s: f"{format_size(s.dirty_bytes)} are dirty"):
        if seen.phase == "faulted":
            raise ElastioError(describe(seen))
        if seen.hold is None:
            raise TimedOutError("the inhibition was ended before the cache was flushed")
        if seen.hold.safe:
            return


@click.command()
@click.pass_obj
def unquiesce(app: App) -> None:
    """Allow boosts again.

    The exit code is 5 if boosts were no longer inhibited: a snapshot made meanwhile may be inconsistent.
    """
    click.echo(app.client().ask("unquiesce")["text"])


LOSS = "accept the loss"


@click.command(short_help="Disable boosts, and flush and release an attached cache.")
@click.pass_obj
def pause(app: App) -> None:
    """Disable boosts until `elastio resume`, and flush and release an attached cache."""
    click.echo(app.client().ask("pause")["text"])


@click.command(short_help="Enable boosts again, and end a fault whose cause is gone.")
@click.option(
    "--accept-data-loss", is_flag=True, help="Go on although the device may lack data, or older data returns."
)
@click.option("--yes", is_flag=True, help="Accept the loss of data without confirmation.")
@click.pass_obj
def resume(app: App, accept_data_loss: bool, yes: bool) -> None:
    """Enable automatic boosts again, and end a fault whose cause is gone.

    A device that was started by force without its cache, or a cache that missed writes and is back, needs
    --accept-data-loss: check the filesystem before. Only root may use it.
    """
    if accept_data_loss and not yes:
        answer = consent.typed(f"Older data may return, or data may be missing. Type `{LOSS}` to continue")
        if answer != LOSS:
            raise ElastioError("that was not typed: nothing was changed")
    fields = {"accepts_loss": 1} if accept_data_loss else {}
    click.echo(app.client().ask("resume", **fields)["text"])
