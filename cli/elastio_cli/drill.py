"""`elastio boost --drill`: one boost from purchase to deletion, with the smallest cache, to prove that boosts work.

Theory of operation. The drill asks the running agent for everything that an operator could ask for: a boost, a flush, a
new list of its volumes. Only the file in between is its own. It begins when nothing is under way, so that every volume
that the cloud lists at the end is one that it left behind. Once a boost was asked for, the drill asks for a flush,
however it ends: a volume that is not flushed is paid for. What touches the filesystem runs in a child process, because
a device that hangs cannot be interrupted.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import click

from elastio.control.exit_codes import TimedOutError
from elastio.control.protocol import RefusedByAgentError
from elastio.control.status import CyclePart, SpendPart, Status, VolumePart
from elastio.core.cycle import Trigger
from elastio.core.model import Quote
from elastio.core.state import Phase
from elastio.errors import ElastioError
from elastio.units import agbs, format_duration, format_size
from elastio_cli import drill_file
from elastio_cli.app import App, describe
from elastio_cli.dry_run import BoostQuote, ask, config_of
from elastio_cli.gc import DELETED
from elastio_cli.terminal import busy, ended_by_signals, only_waiting

# A new ext4 writes its inode tables in the background after the first mount, which may start a boost of its own.
REST_S = 300.0
# Beside the agent's own time-out of an attach.
ATTACH_SLACK_S = 60.0
RELEASE_S = 900.0
LIST_S = 300.0
BUSY = "drill.busy"
# Each new list is a request to the cloud.
RELIST_POLLS = 4

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DrillCost:
    """What the drill cost. `cost` None: the price is not known. `is_estimate`: by the clock of this command."""

    agbs: float
    cost: float | None
    currency: str
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A drill that succeeded. `cycle` is as it was when the cache was attached; `took_s`: until the volume was gone.

    `has_later`: another boost has begun since. `is_compared` False: there is no filesystem for a file.
    """

    cycle: CyclePart
    took_s: float
    bill: DrillCost
    has_later: bool
    is_compared: bool


def obstacle(seen: Status) -> RefusedByAgentError | None:
    """Why no drill may begin: something is under way that it would disturb, or that would disturb it."""
    if seen.fault:
        return RefusedByAgentError(f"no drill: the agent is faulted: {seen.fault}", code="drill.fault")
    if not seen.recovered or seen.owned is None:
        why = seen.cloud_error or seen.waiting_for or "it has not seen kernel and cloud yet"
        return RefusedByAgentError(f"no drill: the agent is not ready: {why}", code="drill.not_ready")
    if seen.hold is not None:
        left = format_duration(seen.hold.left_s)
        return RefusedByAgentError(f"no drill: boosts are held ({seen.hold.reason}) for {left}", code="drill.held")
    if seen.cycle is not None or seen.phase != Phase.IDLE:
        return RefusedByAgentError(f"no drill: a boost is under way ({seen.phase})", code=BUSY)
    if seen.owned:
        names = ", ".join(volume.id for volume in seen.owned)
        text = f"no drill: volumes of this agent are left ({names}): see `elastio gc --dry-run`"
        return RefusedByAgentError(text, code="drill.volumes")
    return None


def bill(before: SpendPart, after: SpendPart, quote: Quote, seconds: float) -> DrillCost:
    """What the agent has billed between the two. Where that is not the drill alone, the quote for so many seconds.

    That is so if midnight fell into the drill, if another boost began, and if the ledger cannot be read.
    """
    if before.known and after.known and after.boosts == before.boosts + 1:
        is_priced = after.unpriced == before.unpriced
        return DrillCost(after.agbs - before.agbs, after.cost - before.cost if is_priced else None, quote.currency)
    billed_s = quote.billing.billed_s(seconds)
    cost = quote.price_per_hour * billed_s / 3600 if quote.price_known else None
    return DrillCost(agbs(quote.spec.bandwidth_mb_s, quote.spec.size_bytes, billed_s), cost, quote.currency, True)


def is_later(seen: Status, token: str) -> bool:
    """Whether another boost has begun since."""
    return seen.cycle is not None and seen.cycle.token != token


def left_over(seen: Status, token: str) -> tuple[VolumePart, ...]:
    """The volumes that the cloud still lists, without that of a later boost."""
    later = seen.cycle.volume_id if seen.cycle is not None and seen.cycle.token != token else None
    return tuple(volume for volume in seen.owned or () if volume.id != later)


# --- the drill ---------------------------------------------------------------------------------------------


def run(app: App, *, as_json: bool = False) -> None:
    """Carry out the drill, and print each step. Raises ElastioError; then no boost of the drill goes on.

    `as_json`: the steps on stderr, and the result as one document on stdout.
    """
    result = carry_out(app, functools.partial(click.echo, err=as_json))
    if as_json:
        click.echo(json.dumps(to_dict(result), indent=2))
        return
    for line in summary(result.cycle, result.bill, has_later=result.has_later):
        click.echo(line)


def carry_out(app: App, say: Say) -> Result:
    """The whole drill; `say` gets a sentence for each step. Raises as `run`."""
    before = _at_rest(app, say)
    config = config_of(app, before)
    policy = config.policy()
    with busy("asking the provider for its price"):
        found = ask(app, policy.min_size_bytes, time.time())
    if found.refused:
        raise RefusedByAgentError(f"the boost would be refused: {found.refused}", code="drill.cap")
    place = drill_file.place_of(app, config.device.backing_uuid, say, is_simulated=before.agent.cloud == "sim")
    blocks = drill_file.blocks_for(policy, config.agent.sample_interval_s)
    say(_offer(found))
    with ended_by_signals(), drill_file.removed(place, blocks) as file:
        limit_s = policy.attach_timeout_s + policy.start_jitter_s + ATTACH_SLACK_S
        before, cycle = _boosted_after_others(app, policy.min_size_bytes, limit_s, file, say, before)
        took_s = _released(app, cycle)
        say(f"the cache is flushed and its volume deleted (after {format_duration(took_s)})")
        if file is not None:
            file.compare()
            say("read the file back from the backing volume: it is what was written")
    after = _listed(app, cycle.token)
    spent = bill(before.spend, after.spend, found.quote, took_s)
    return Result(cycle, took_s, spent, is_later(after, cycle.token), file is not None)


def _at_rest(app: App, say: Say) -> Status:
    """The status once nothing hinders the drill. A boost that is under way ends by itself: it is waited for."""
    is_told = False
    for seen in app.watch(REST_S, lambda _: "no drill: a boost is under way"):
        hindrance = obstacle(seen)
        if hindrance is None:
            return seen
        if hindrance.code != BUSY:
            raise hindrance
        if not is_told:
            say(f"a boost is under way ({seen.phase}): the drill begins when it has ended")
            is_told = True
    raise AssertionError("unreachable: the watch ends with an error")


def _offer(found: BoostQuote) -> str:
    quote = found.quote
    what = f"a cache of {format_size(quote.spec.size_bytes)} at {quote.spec.bandwidth_mb_s:.0f} MB/s"
    if not quote.price_known:
        return f"{what}, price unknown: {quote.price_source}"
    return f"{what}, {found.cost(3600.0):.4f} {quote.currency} an hour"


def _boosted_after_others(
    app: App, size_bytes: int, limit_s: float, file: drill_file.DrillFile | None, say: Say, before: Status
) -> tuple[Status, CyclePart]:
    """Boost as `_boosted` does. A load's boost may begin between look and request: then wait again, and repeat.

    The status before the drill's own boost, and the cycle of that. For REST_S in all: a device that is never at rest
    gets no drill.
    """
    end = time.monotonic() + REST_S
    while True:
        try:
            return before, _boosted(app, size_bytes, limit_s, file, say)
        except RefusedByAgentError as error:
            if error.code != BUSY or time.monotonic() >= end:
                raise
        before = _at_rest(app, say)


def _boosted(app: App, size_bytes: int, limit_s: float, file: drill_file.DrillFile | None, say: Say) -> CyclePart:
    """Boost, write the file and ask for the flush. The cycle as it was when the cache was attached."""
    try:
        # A request whose answer does not come may have been carried out.
        say(app.client().ask("boost", size_bytes=size_bytes)["text"])
        cycle = _attached(app, limit_s, say)
        if file is not None:
            file.write()
            say(f"wrote {file.blocks} MiB to {file.path}")
        app.client().ask("flush")
    except RefusedByAgentError:
        raise  # another boost is not the drill's to flush
    except BaseException:  # also Ctrl-C and signals
        _flush_after_all(app)
        raise
    return cycle


def _attached(app: App, limit_s: float, say: Say) -> CyclePart:
    for seen in app.watch(limit_s, lambda _: "the cache is not attached"):
        cycle = seen.cycle
        if cycle is not None and cycle.trigger != Trigger.OPERATOR:
            raise RefusedByAgentError(f"a boost for {cycle.trigger} began before the drill's", code=BUSY)
        if seen.phase == Phase.BOOSTING and cycle is not None:
            took = "" if cycle.boosted_after_s is None else f" (after {format_duration(cycle.boosted_after_s)})"
            say(f"the cache is attached{took}: volume {cycle.volume_id}")
            return cycle
        if seen.phase != Phase.ATTACHING:
            raise ElastioError(f"the boost failed: {_reason(app, seen)}", code="drill.boost_failed")
    raise AssertionError("unreachable: the watch ends with an error")


def _reason(app: App, seen: Status) -> str:
    decisions = app.client().ask("why", count=1).get("decisions") or [{}]
    return str(decisions[-1].get("reason") or describe(seen))


def _flush_after_all(app: App) -> None:
    """The first error decides the exit code; this one is only printed."""
    try:
        click.echo(f"elastio: the drill ends early: {app.client().ask('flush')['text']}", err=True)
    except ElastioError as error:
        click.echo(f"elastio: the drill ends early, and the cache may stay attached: {error}", err=True)


@only_waiting("the agent goes on flushing, and deletes the volume then")
def _released(app: App, cycle: CyclePart) -> float:
    """Wait until the agent has seen the volume gone. Seconds since the decision to buy it."""
    for seen in app.watch(RELEASE_S, lambda _: "the volume is not deleted"):
        if seen.phase == Phase.FAULTED:
            raise ElastioError(describe(seen), code="drill.fault")
        if seen.cycle is None or seen.cycle.token != cycle.token:
            return max(0.0, seen.wall - cycle.started_wall)
    raise AssertionError("unreachable: the watch ends with an error")


@only_waiting("the volume of the drill was deleted, and no list of the cloud has shown it yet")
def _listed(app: App, token: str) -> Status:
    """The status once the cloud lists no volume of the drill, by a list that is newer than the deletion.

    While a later boost is under way the agent asks for no list. Then it counts that it has seen the volume gone.
    """
    deadline = time.monotonic() + LIST_S
    while True:
        app.client().ask("gc")
        for seen in app.watch(max(0.0, deadline - time.monotonic()), _not_listed):
            if (seen.listed_ago_s is not None and seen.owned is not None) or is_later(seen, token):
                break
        left = left_over(seen, token)
        if not left:
            return seen
        if any(volume.state not in DELETED for volume in left) or time.monotonic() >= deadline:
            shown = ", ".join(f"{volume.id} ({volume.state})" for volume in left)
            raise TimedOutError(f"the cloud still lists {shown}: see `elastio gc --dry-run`", code="drill.volumes_left")
        time.sleep(RELIST_POLLS * app.poll_s)


def _not_listed(seen: Status) -> str:
    return f"the cloud has not listed the volumes{f' ({seen.cloud_error})' if seen.cloud_error else ''}"


def summary(cycle: CyclePart, spent: DrillCost, *, has_later: bool) -> list[str]:
    """The result, one figure a line."""
    first = "unknown" if cycle.boosted_after_s is None else format_duration(cycle.boosted_after_s)
    money = "price unknown" if spent.cost is None else f"{spent.cost:.4f} {spent.currency}"
    about = "about " if spent.is_estimate else ""
    left = "0 volumes left" + (", beside that of a boost that has begun since" if has_later else "")
    rows = (("first boost", first), ("cost", f"{about}{money}, {spent.agbs:.0f} AGBs"), ("left", left))
    return [f"{name:<13}{text}" for name, text in rows]


def to_dict(result: Result) -> dict[str, object]:
    """The result as JSON values. `cost` is null if the price is not known."""
    cycle, spent = result.cycle, result.bill
    return {
        "volume_id": cycle.volume_id,
        "size_bytes": cycle.size_bytes,
        "bandwidth_mb_s": cycle.bandwidth_mb_s,
        "attached_after_s": cycle.boosted_after_s,
        "deleted_after_s": result.took_s,
        "agbs": spent.agbs,
        "cost": spent.cost,
        "currency": spent.currency,
        "is_estimate": spent.is_estimate,
        "is_compared": result.is_compared,
        "volumes_left": 0,
        "has_later_boost": result.has_later,
    }
