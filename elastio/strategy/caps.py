"""When the bill of a running cache would pass a cap. Pure.

Theory of operation. A cache is billed until its volume is deleted, so a boost that ends when a cap is reached ends too
late. What counts is the bill at the end of a release that begins now:

    spent + bill until (now + release time) > cap

The release takes a flush, and what recent detaches and deletions took. The flush is predicted at its slowest: as
if applications wrote all the time at the rate to which they are limited then, which leaves the rest of the backing
volume's bandwidth; a volume that has credits moves what they allow. Ending a boost somewhat early costs little; a cap
is there to be kept.

A cost runs in steps: the least billed time of a volume is owed at its purchase. Within it nothing more is owed, and a
boost goes on. Only what falls into the cap's own day or month counts. A bill in AGBs has no least time.

What was spent is read from the ledger from time to time (`Situation.spend`, at `spend_at`). The bill of the running
cache is computed here from its own cycle, so that neither an old value nor a ledger that cannot be written hides it.

Where several agents share the caps, the bill at the end of the release must be reserved (`Situation.spend.others`,
see `spending`). A cap that leaves no room for that ends the boost as one of its own. What the others have spent and
reserved is in the sum that a reservation has to fit into, and is not added here once more.

A boost that a cap has ended is remembered (`Memory.capped`) until the day or the month is over or the cap is
changed. Otherwise the rest below the cap would buy one cache after the other, each too short to be of use.

What was spent is unknown while the ledger cannot be read. No boost begins then. One that runs goes on for a few
minutes with the value that was read last, since it is the only one that spends; if none was read, or it is older, it
ends, since it may be any amount. Boosts may begin again as soon as the ledger can be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from elastio.core.model import Quote
from elastio.core.policy import LIMITED, Policy
from elastio.strategy.memory import Capped, Memory
from elastio.strategy.situation import CycleView, Situation
from elastio.strategy.spending import Bill, Caps, OfPeriod, Period, Spend, Spent
from elastio.units import GIB, MB, agbs, format_duration, format_size

# Measured times to release that are kept, and what is added to a prediction: the next one may take longer.
KEPT = 8
MARGIN = 1.1
# The key of what ends a boost where nothing more could be reserved under shared caps, see `spending`.
SHARED = "caps.shared"
# The key where what was spent is not known, and for how long the last value counts: only this cache is paid meanwhile.
UNKNOWN, UNKNOWN_S = "caps.unknown", 300.0
# Until the decision takes effect: a sample, a scan, and a write to sysfs.
SLACK_S = 2.0
# A cache takes writes at its full rate for so long, unseen, before they are limited.
UNSEEN_S = 1.0


@dataclass(frozen=True, slots=True)
class _Cap:
    """One cap, and what was spent under it when the ledger was read."""

    key: str
    most: float
    period: Period
    spent: float
    is_cost: bool


def release_s(memory: Memory, cycle: CycleView | None, policy: Policy) -> float:
    """Seconds from now to the deletion of the volume, if its release begins now. For the cycle as it was last seen."""
    dirty = 0.0
    if cycle is not None and cycle.times.boosted is not None:
        dirty = cycle.dirty_bytes + policy.cache_bandwidth_mb_s * MB * UNSEEN_S
    flush_s = _moving_s(dirty / (1 - LIMITED), memory, policy)
    rest_s = max(memory.release_s) if memory.release_s else policy.release_s
    return MARGIN * (flush_s + rest_s) + SLACK_S


def _moving_s(moved_bytes: float, memory: Memory, policy: Policy) -> float:
    """Seconds in which the backing volume moves so many bytes; one that has credits is slower when they are used up."""
    bucket = policy.backing_credits
    if bucket is None:
        return moved_bytes / (policy.backing_bandwidth_mb_s * MB)
    return bucket.least_s(0.0 if memory.credits is None else memory.credits.balance_bytes, moved_bytes)


def least_s(memory: Memory, policy: Policy) -> float:
    """Seconds for which the next volume exists at the least: attached, once inactive, and released."""
    return memory.lead_s(policy.lead_s) + policy.inactivity_delay_s + release_s(memory, None, policy)


def with_release_time(memory: Memory, cycle: CycleView) -> Memory:
    """The memory with the time that the release of this cycle took, from the clean cache to the deletion."""
    times = cycle.times
    if times.clean is None or times.deleted is None or times.deleted < times.clean:
        return memory
    return replace(memory, release_s=(*memory.release_s, times.deleted - times.clean)[-KEPT:])


def reached(memory: Memory, at: Situation, policy: Policy) -> Capped | None:
    """The cap that ends the boost; None: none would be passed, or caps end no boost."""
    return passed(memory, at, policy) if policy.caps.ends_boosts else None


def passed(memory: Memory, at: Situation, policy: Policy) -> Capped | None:
    """The cap that the bill of the running cache would pass, or may, until its release; None: none."""
    cycle, spend = at.cycle, at.spend
    if cycle is None or cycle.opened_wall is None:
        return None
    until = cycle.wall_at(at.now + release_s(memory, cycle, policy))
    for cap in _caps(policy.caps, spend):
        if not spend.known and at.now - at.spend_at > UNKNOWN_S:
            return Capped(UNKNOWN, 0.0, spend.day)
        bill = _bill(cycle, is_cost=cap.is_cost)
        if bill is None or _passes(cap, bill, cycle.wall_at(at.spend_at), cycle.wall_at(at.now), until):
            return Capped(cap.key, cap.most, cap.period, has_price=bill is not None)
    others = spend.others
    if others is not None and others.granted_until_wall is None and others.trouble:
        return Capped(SHARED, 0.0, spend.day)  # since a start nothing could be reserved: nobody knows the bill
    if others is None or others.granted_until_wall is None or until <= others.granted_until_wall:
        return None
    full = next((cap for cap in _caps(policy.caps, spend) if cap.key == others.full), None)
    return Capped(SHARED, 0.0, spend.day) if full is None else Capped(full.key, full.most, full.period)


def _caps(caps: Caps, spend: Spend) -> Iterator[_Cap]:
    """Every cap in AGBs or currency that is set. The number of boosts does not grow while one runs."""
    today = Spent(spend.boosts, spend.agbs, spend.currency)
    for name, period, (_, max_agbs, max_cost), spent in (
        ("day", spend.day, caps.day, today),
        ("month", spend.this_month, caps.month, spend.month),
    ):
        if max_agbs is not None:
            yield _Cap(f"caps.max_agbs_per_{name}", max_agbs, period, spent.agbs, is_cost=False)
        if max_cost is not None:
            yield _Cap(f"caps.max_cost_per_{name}", max_cost, period, spent.currency, is_cost=True)


def _bill(cycle: CycleView, *, is_cost: bool) -> Bill | None:
    """The bill of the cycle's volume; None: its price is not known."""
    opened = cycle.started_wall if cycle.opened_wall is None else cycle.opened_wall
    sold, quote = cycle.provisioned, cycle.quote
    if not is_cost:
        return Bill(opened, agbs(sold.bandwidth_mb_s, sold.size_bytes, 1.0))
    if quote is None or not quote.price_known:
        return None
    return Bill(opened, quote.price_per_hour / 3600, quote.billing)


def _passes(cap: _Cap, bill: Bill, read: float, now: float, until: float) -> bool:
    """The cap would be passed at `until`, and the bill still grows. Times are those of the cycle's clock.

    `read` is when the ledger was read. It may lack the running cache, whose own bill is then the least that was spent.
    """
    end = cap.period.clip(until)
    spent = max(
        cap.spent + bill.between(cap.period.clip(read), end), bill.between(cap.period.clip(bill.opened_wall), end)
    )
    return spent > cap.most and bill.between(cap.period.clip(now), end) > 0


def sentence(capped: Capped) -> str:
    """What the cap does to a running boost, for people."""
    return f"{what_ends(capped)}: {'the boost ends here' if capped.has_price else 'it is released'}"


def what_ends(capped: Capped) -> str:
    """Why the cap ends a boost, or a hold, for people."""
    if not capped.has_price:
        return f"the price of this cache is not known, and a cap limits the cost ({capped.key})"
    if capped.key == UNKNOWN:
        return f"the ledger cannot be read, so what was spent is not known, and [caps] limits it ({UNKNOWN})"
    if capped.key == SHARED:
        return f"the caps that several devices share leave no more for this cache, or cannot be read ({SHARED})"
    return f"the cap of {capped.most:g} ({capped.key}) would be passed by what this cache costs until it is released"


def standing(memory: Memory, wall: float, policy: Policy) -> str:
    """Why no boost begins after one that a cap has ended; empty: the day or month is over, or the cap was changed."""
    capped = memory.capped
    if capped is None or not capped.period.has(wall) or (capped.key, capped.most) not in _in_force(policy.caps):
        return ""
    left = format_duration(capped.period.until_wall - wall)
    return f"the cap of {capped.most:g} ({capped.key}) has ended a boost; the next one may begin in {left}"


def why_ended(memory: Memory, at: Situation, policy: Policy) -> str:
    """Why a boost that is being flushed may not go on; empty: it may."""
    capped = reached(memory, at, policy)
    return standing(memory, at.wall, policy) or ("" if capped is None else what_ends(capped))


def _in_force(caps: Caps) -> frozenset[tuple[str, float]]:
    return frozenset((cap.key, cap.most) for cap in _caps(caps, Spend()))


def refusal(size_bytes: int, memory: Memory, at: Situation, policy: Policy) -> str:
    """Why a cap forbids a boost of this size now; empty: none does."""
    least = least_s(memory, policy)
    return standing(memory, at.wall, policy) or spending_refusal(size_bytes, at.spend, policy, least)


def spending_refusal(size_bytes: int, spend: Spend, policy: Policy, least_s: float | None = None) -> str:
    """Why a cap forbids a boost of this size now; empty: none does.

    `least_s`: for how long its volume exists at the least; None: `Policy.least_boost_s`.
    """
    caps = policy.caps
    if size_bytes > caps.max_size_bytes:
        return (
            f"a cache of {size_bytes / GIB:.1f} GiB is larger than the cap of "
            f"{caps.max_size_bytes / GIB:.1f} GiB (cache.max_size_gib)"
        )
    if not spend.known and caps.limits_spending:
        return "the ledger cannot be read, so what was spent today is not known, and [caps] limits it"
    if spend.others is not None and spend.others.trouble and caps.limits_spending:
        return f"what other devices have spent under the shared caps is not known: {spend.others.trouble}"
    seconds = policy.least_boost_s if least_s is None else least_s
    least = agbs(policy.bought_bandwidth_mb_s, size_bytes, seconds)
    today, month = spend.under_caps_today, spend.under_caps_this_month
    return _refusal("day", caps.day, today, least) or _refusal("month", caps.month, month, least)


def _refusal(period: str, limits: OfPeriod, spent: Spent, least_agbs: float) -> str:
    """Why the caps of a period forbid a boost that costs `least_agbs` or more."""
    max_boosts, max_agbs, max_cost = limits
    if max_boosts is not None and spent.boosts >= max_boosts:
        return f"the cap of {max_boosts} boosts a {period} is reached (caps.max_boosts_per_{period})"
    if max_agbs is not None and spent.agbs + least_agbs > max_agbs:
        return f"the cap of {max_agbs:.0f} AGBs a {period} would be exceeded (caps.max_agbs_per_{period})"
    if max_cost is not None and spent.currency >= max_cost:
        return f"the cap of {max_cost} a {period} is reached (caps.max_cost_per_{period})"
    return ""


def quote_refusal(
    quote: Quote, *, needs_price: bool, most_cost: float | None, least_s: float, max_size_bytes: int
) -> tuple[str, str]:
    """Why the caps forbid a volume at this quote, as a code for programs and a sentence; both empty: they do not.

    `most_cost` is what the caps on cost leave (None: no limit), `least_s` for how long the volume exists at the least.
    """
    if needs_price and not quote.price_known:
        text = (
            f"a cap in currency (caps.max_cost_per_day, caps.max_cost_per_month) cannot be kept: {quote.price_source}"
        )
        return "caps.max_cost_per_day", text
    least = quote.price_per_hour * quote.billing.billed_s(least_s) / 3600
    if most_cost is not None and least > most_cost:
        text = f"this volume costs at least {least:.4f} {quote.currency}, more than the caps leave"
        return "caps.max_cost", f"{text} (caps.max_cost_per_day, caps.max_cost_per_month)"
    if quote.spec.size_bytes > max_size_bytes:
        provisioned, cap = format_size(quote.spec.size_bytes), format_size(max_size_bytes)
        text = f"the smallest suitable volume has {provisioned}, above the cap of {cap} (cache.max_size_gib)"
        return "cache.max_size_gib", text
    return "", ""
