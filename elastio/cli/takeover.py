"""`elastio recover --foreign`: the cache of a machine that is gone is taken over, flushed and released.

The agent does it all; this command asks, shows what is awaited, and says how it ended. It can be ended and given again
at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import click

from elastio.cli import flush
from elastio.cli.app import App, describe
from elastio.control.protocol import RefusedByAgentError
from elastio.control.status import MissingPart, Status
from elastio.core.state import FaultKind
from elastio.errors import ElastioError

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
        _confirm(order.volume)
    if seen.missing is not None and seen.missing.waits_for_umount:
        umount(seen.missing)
    fields = {"is_foreign": 1, "accepts_loss": int(order.accepts_loss), "volume_id": order.volume}
    click.echo(app.client().ask("recover", **fields)["text"])
    if _wait_for_device(app, order.volume, wait_s).cycle is not None:
        flush.wait_for_release(app, flush.WAIT_S)
    click.echo(f"all data of volume {order.volume} is on the backing device, and the volume is deleted")


def _confirm(volume: str) -> None:
    click.echo(
        "if the cache failed before its machine died, it is older than the device, and the filesystem may be damaged: "
        "take snapshots of both volumes first"
    )
    typed = click.prompt(f"Type the name of volume {volume} to use it nevertheless", default="")
    if typed != volume:
        raise ElastioError("the name does not match: nothing was changed")


def _wait_for_device(app: App, volume: str, wait_s: float) -> Status:
    """The first status in which the kernel has assembled the device, or all is done."""
    shown = ""
    for seen in app.watch(wait_s, lambda _: "the device is not back; the agent goes on, and so does the same command"):
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
