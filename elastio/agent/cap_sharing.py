"""States what this agent has spent and reserved under shared caps, and observes what the others have.

`strategy.statements` says what is promised, `accounting.shared_caps` how it is kept. While a boost runs,
its reservation is extended in steps, when less than half of one is left; where the cap has no room for a long step, in
shorter ones. Where none fits any more, `strategy.caps` ends the boost before its release is not covered.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.accounting.shared_caps import Change, SharedCaps
from elastio.core.boosting import cycle_view
from elastio.core.cycle import Cycle
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.errors import LedgerError
from elastio.strategy import caps, learning, money
from elastio.strategy.spending import Others, Reservation, Spend, Spent, Statement, total
from elastio.units import agbs

LOOK_EVERY_S = 5.0
# Steps of a reservation beyond the end of a release that begins now, and what is left when the next one is tried.
STEPS_S = (60.0, 15.0, 3.0)
# What a release costs is stated whatever the caps leave. If the boost goes on after all, it keeps no more than that.
RELEASE_STEPS_S = (15.0,)
AGAIN = 0.5
RELEASING = frozenset({Phase.FLUSHING, Phase.DETACHING, Phase.FAULTED})


class CapSharing:
    """`ports.Sharing` of one agent."""

    def __init__(self, account: SharedCaps) -> None:
        self._account = account
        self._others = Others()
        self._looked_at = float("-inf")
        self._stated: tuple[object, ...] | None = None  # what the last statement said
        self._granted: float | None = None
        self._has_left = False

    def shared(
        self, spend: Spend, spend_at: float, state: AgentState, policy: Policy, *, now: float, wall: float
    ) -> Spend:
        """See `ports.Sharing`."""
        if not policy.caps.shared:
            return self._left(spend)
        self._has_left = False
        policy = learning.in_force(policy, state.memory)
        policy = policy if state.cycle is None else money.in_force(policy, state.cycle.choice)
        wall = wall if state.cycle is None else state.cycle.wall_at(now)
        trouble, full = "", ""
        try:
            full = self._state(spend, wall - (now - spend_at) if spend.known else wall, state, policy, wall)
        except LedgerError as error:
            trouble = "" if error.code == "shared.locked" else str(error)
        if full or trouble or now - self._looked_at >= LOOK_EVERY_S:
            self._look(spend, wall, trouble)
            self._looked_at = now
        is_open = state.cycle is not None and state.cycle.opened_wall is not None
        granted = self._granted if is_open else None
        return replace(spend, others=replace(self._others, granted_until_wall=granted, full=full))

    def _left(self, spend: Spend) -> Spend:
        if not self._has_left:
            try:
                self._account.withdraw()
            except LedgerError:
                return spend  # tried again at the next sample
            self._has_left, self._stated, self._granted = True, None, None
        return spend

    def _look(self, spend: Spend, wall: float, trouble: str) -> None:
        try:
            today, month = total(self._account.others(), spend.day, spend.this_month, wall)
        except LedgerError as error:
            self._others = replace(self._others, trouble=str(error))
            return
        self._others = Others(today, month, trouble)

    # --- the own statement -------------------------------------------------------------------------------------

    def _state(self, spend: Spend, read_wall: float, state: AgentState, policy: Policy, wall: float) -> str:
        """State what is new, and extend the reservation. The key of the cap that has no room for a longer step, or "".

        Raises LedgerError.
        """
        cycle = state.cycle
        said = _said(spend, cycle)
        if said != self._stated:
            self._put(spend, read_wall, cycle, None, wall)
            self._stated = said
        if cycle is None or cycle.opened_wall is None or cycle.closed_wall is not None:
            return ""
        needed = wall + caps.release_s(state.memory, cycle_view(cycle), policy)
        limits = policy.caps.shared_limits if policy.caps.ends_boosts and state.phase not in RELEASING else None
        full = ""
        for step in RELEASE_STEPS_S if state.phase in RELEASING else STEPS_S:
            if self._granted is not None and self._granted >= needed + AGAIN * step:
                return full  # the next sample may need more than a short step
            until = needed + step
            change = _change(self._account.device, spend, read_wall, cycle, until)
            full = self._account.put(change, limits, wall, renews=_is_whole(spend, cycle))
            if not full:
                self._granted = until
                return ""
        return full

    def _put(self, spend: Spend, read_wall: float, cycle: Cycle | None, until: float | None, wall: float) -> None:
        """State it as a fact: nothing more is reserved by it."""
        change = _change(self._account.device, spend, read_wall, cycle, until)
        self._account.put(change, None, wall, renews=_is_whole(spend, cycle))
        own = self._account.own()
        self._granted = own.reserved.until_wall if own is not None and own.reserved is not None else None


def _is_whole(spend: Spend, cycle: Cycle | None) -> bool:
    """Ledger and cycle say all that a statement has: none is needed that was written before."""
    return spend.known and (cycle is None or cycle.opened_wall is not None)


def _said(spend: Spend, cycle: Cycle | None) -> tuple[object, ...]:
    """What a new statement is due for. The bill of a running boost is not: it follows from its rate."""
    if cycle is not None:
        return cycle.token, cycle.opened_wall, cycle.closed_wall, cycle.quote, cycle.provisioned
    return spend.known, spend.day, spend.this_month, spend.boosts, spend.agbs, spend.currency, spend.month


def _change(device: str, spend: Spend, read_wall: float, cycle: Cycle | None, until: float | None) -> Change:
    """Makes the statement from the one before it, whose reservation may be newer than what this agent knows."""

    def change(own: Statement | None) -> Statement:
        before = own.reserved if own is not None and cycle is not None else None
        if before is not None and cycle is not None and before.token != cycle.token:
            before = None
        if not spend.known and own is not None:
            known = own  # what was spent is not known now: what was stated holds
        else:
            today = Spent(spend.boosts, spend.agbs, spend.currency)
            known = Statement(device, read_wall, spend.day, spend.this_month, today, spend.month)
        counted = known.counted if cycle is None or not spend.known else cycle.token
        return replace(known, counted=counted, reserved=_reservation(cycle, before, until))

    return change


def _reservation(cycle: Cycle | None, before: Reservation | None, until: float | None) -> Reservation | None:
    """The bill of the cycle's volume; what was reserved for it, as long as nobody knows whether it was bought."""
    if cycle is None or cycle.closed_wall is not None:
        return None
    if cycle.opened_wall is None:
        return before
    sold, quote = cycle.provisioned, cycle.quote
    is_priced = quote is not None and quote.price_known
    return Reservation(
        token=cycle.token,
        opened_wall=cycle.opened_wall,
        agbs_per_s=agbs(sold.bandwidth_mb_s, sold.size_bytes, 1.0),
        cost_per_s=quote.price_per_hour / 3600 if quote is not None and is_priced else 0.0,
        minimum_s=quote.minimum_s if quote is not None else 0.0,
        until_wall=max(until or cycle.opened_wall, before.until_wall if before is not None else cycle.opened_wall),
        is_bought=True,
        step_s=quote.step_s if quote is not None else 0.0,
    )
