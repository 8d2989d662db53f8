"""`elastio boost` buys and attaches a cache, whatever the load; `expect` announces a burst, and it is bought before."""

from __future__ import annotations

import json
import time

import click

from elastio.control.protocol import MAX_HOLD_S, RefusedByAgentError
from elastio.errors import ElastioError
from elastio.host.systemd import NAME, next_elapse
from elastio.units import GIB, format_duration
from elastio_cli.app import App, describe
from elastio_cli.options import Finite, duration, size, wait_options
from elastio_cli.terminal import busy, only_waiting

# Longer than the default of policy.attach_timeout_s, 180 s.
WAIT_S = 300.0


@click.command()
@click.option(
    "--size",
    "size_gib",
    metavar="GIB",
    type=Finite(min=0.001, max=65536),
    help="Size of the cache  [default: the learned size]",
)
@click.option("--dry-run", is_flag=True, help="Show what it would buy and cost; buy nothing.")
@click.option("--drill", is_flag=True, help="Prove that boosts work: buy the smallest cache, use, flush and delete it.")
@click.option("--json", "as_json", is_flag=True, help="Print the result of --dry-run or --drill as one JSON document.")
@wait_options(WAIT_S)
@click.pass_obj
def boost(app: App, size_gib: float | None, dry_run: bool, drill: bool, as_json: bool, wait_s: float | None) -> None:
    """Buy a cache volume and attach it now, within the spending caps.

    The exit code is 5 if the agent refuses, for example because a cap is reached.
    """
    size_bytes = None if size_gib is None else int(size_gib * GIB)
    if drill and (dry_run or size_gib is not None or wait_s is not None):
        raise click.UsageError("--drill takes no other option than --json")
    if dry_run and wait_s is not None:
        raise click.UsageError("give --dry-run or --wait, not both")
    if as_json and not (dry_run or drill):
        raise click.UsageError("--json needs --dry-run or --drill")
    if dry_run:
        _show_quote(app, size_bytes, as_json)
        return
    if drill:
        from elastio_cli.drill import run  # noqa: PLC0415  a boost needs no provider

        run(app, as_json=as_json)
        return
    fields = {} if size_bytes is None else {"size_bytes": size_bytes}
    click.echo(app.client().ask("boost", **fields)["text"])
    if wait_s is not None:
        _wait(app, wait_s)


def _show_quote(app: App, size_bytes: int | None, as_json: bool) -> None:
    from elastio_cli import dry_run  # noqa: PLC0415  a boost needs no provider

    with busy("asking the provider for its price"):
        found = dry_run.ask(app, size_bytes, time.time())
    if as_json:
        click.echo(json.dumps(dry_run.to_dict(found), indent=2))
    else:
        for name, text in dry_run.rows(found):
            click.echo(f"{name:<14}{text}")
        click.echo("nothing was bought")
    if found.refused:
        raise RefusedByAgentError(f"the boost would be refused: {found.refused}")


@only_waiting("the agent goes on buying the cache; `elastio flush` gives it back")
def _wait(app: App, wait_s: float) -> None:
    for seen in app.watch(wait_s, lambda _: "the cache is not attached"):
        if seen.phase == "boosting":
            took = seen.cycle.boosted_after_s if seen.cycle else None
            click.echo("the cache is attached" + ("" if took is None else f" (after {format_duration(took)})"))
            return
        if seen.phase != "attaching":
            reasons = app.client().ask("why", count=1).get("decisions") or [{}]
            raise ElastioError(f"the boost failed: {reasons[-1].get('reason') or describe(seen)}")


def _timer(_context: click.Context, _option: click.Parameter, value: str | None) -> str | None:
    if value is not None and not NAME.fullmatch(value):
        raise click.BadParameter(f"{value} is not the name of a timer, such as backup.timer")
    return value


@click.command(short_help="Announce a burst, so that its cache is there before it.")
@click.option(
    "--in",
    "seconds",
    metavar="TIME",
    callback=duration(1, MAX_HOLD_S),
    help="Time until the burst begins, such as 90s, 5m or 2h; without a unit in seconds.",
)
@click.option("--timer", metavar="UNIT", callback=_timer, help="The burst begins when this systemd timer elapses.")
@click.option(
    "--size",
    "size_bytes",
    metavar="SIZE",
    callback=size,
    help="Amount that it writes, such as 4G; without a unit in GiB  [default: as learned]",
)
@click.option("--cancel", is_flag=True, help="Forget all announced bursts, and release a cache that waits for one.")
@click.pass_obj
def expect(app: App, seconds: float | None, timer: str | None, size_bytes: int | None, cancel: bool) -> None:
    """Announce a burst, for a scheduler, a timer or an application that knows when it will write.

    The agent buys the cache so early that it is attached by then, within the spending caps. If no load follows, it is
    flushed and deleted again. An announcement of a burst that is announced already replaces it.
    """
    if [seconds is not None, timer is not None, cancel].count(True) != 1 or (cancel and size_bytes is not None):
        raise click.UsageError("give either --in or --timer, with or without --size, or --cancel")
    if timer is not None:
        seconds = _until(app, timer)
        if seconds is None:
            return
    fields = {"seconds": None if seconds is None else round(seconds), "size_bytes": size_bytes}
    click.echo(
        app.client().ask("expect", **{name: value for name, value in fields.items() if value is not None})["text"]
    )


def _until(app: App, timer: str) -> float | None:
    """Seconds until the timer elapses; None, and a sentence, if that cannot be announced now."""
    at = next_elapse(timer, app.run)
    if at is None:
        click.echo(f"{timer} waits for nothing now: its service runs, or it is not started")
        return None
    seconds = at - app.clock.wall()
    if seconds < 1:
        click.echo(f"{timer} elapses now")
        return None
    if seconds > MAX_HOLD_S:
        click.echo(f"{timer} elapses in more than 7 days: too early to announce")
        return None
    return seconds
