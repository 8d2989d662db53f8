"""The cost recorder of the loop: it records cycles and learned sizes, and returns what was spent since midnight."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from elastio.accounting.burst_accounts import AccountRow, Moves
from elastio.accounting.database import NOT_OPEN, local_zone
from elastio.accounting.history import PAST_S, SampleRun, past_of
from elastio.accounting.history_store import (
    HistoryLimits,
    HistoryWriter,
    close_accounts,
    read_last_samples,
    read_loads,
    write_accounts,
)
from elastio.accounting.ledger import DAY_S, LateLedger, Ledger
from elastio.accounting.report import periods
from elastio.accounting.rows import CycleRow, DevicePrices, MonthToDate, row_of
from elastio.core.cycle import Cycle
from elastio.core.model import Quote, Sample, VolumeSpec
from elastio.core.moved import Moved
from elastio.core.state import AgentState
from elastio.errors import LedgerError
from elastio.strategy.learned import Past
from elastio.strategy.spending import Spend

TOUCH_EVERY_S = 60.0
# Of rows of accounts that cannot be written, the oldest are lost.
MOST_WAITING = 1000

_log = logging.getLogger(__name__)


@contextmanager
def _logged(consequence: str) -> Iterator[None]:
    try:
        yield
    except LedgerError as error:
        if error.code != NOT_OPEN:
            _log.error("%s: %s", consequence, error)


class CostRecorder:
    """`ports.Recorder` on a ledger. A failing ledger is logged; it never stops the protection of data.

    What could not be written is kept, counts as spent, and is written as soon as the ledger can be written again.
    `price_of` is what a volume costs by the price list, None if that is not known: for one that was found or taken
    over, and whose purchase nobody saw. Its cost counts under caps like that of any other.
    """

    price_of: Callable[[VolumeSpec], Quote | None] = staticmethod(lambda spec: None)

    def __init__(self, ledger: Ledger, backing_uuid: str, limits: HistoryLimits | None = None) -> None:
        self._ledger, self._uuid, self._zone = ledger, backing_uuid, local_zone()
        self._limits = limits or HistoryLimits()
        self._history = HistoryWriter(ledger.file, backing_uuid, self._limits)
        with _logged("a burst that a kill has cut off is not counted before the next start"):
            close_accounts(ledger.file, backing_uuid)
        self._accounts: dict[tuple[float, str], AccountRow] = {}  # what is not written yet, by burst and cgroup
        self._moves: dict[tuple[str, str], Moved] = {}  # what is not written yet, by token and cgroup
        self._touched = float("-inf")
        self._spend = Spend(known=False)
        self._unrecorded: dict[str, tuple[Cycle, float]] = {}  # by token; with wall clock minus CLOCK_BOOTTIME
        self._is_compared = True  # with the ledger, whose rows may know more than the journal did
        self._tried_wall = float("-inf")
        self._month = MonthToDate(lambda since, until: ledger.spent_between(since, until, self._newer()))
        self._past: tuple[int, Past] | None = None  # with the number of batches that it was read after

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        self._touched = float("-inf")  # the device was there until this moment
        self._unrecorded[cycle.token] = cycle, wall - now
        with _logged(f"cycle {cycle.token} is not in the ledger yet"):
            self._record(wall)
        self._month.recorded(cycle)
        self._past = None

    def recall(self, bought: Iterable[tuple[Cycle, float]]) -> None:
        """At a start: what the agent knew of these cycles, each with wall clock minus CLOCK_BOOTTIME then, counts.

        They are those of the journal; the ledger may have been unwritable when they were bought, or ended.
        """
        self._unrecorded = {cycle.token: (cycle, offset_s) for cycle, offset_s in bought}
        self._is_compared = not self._unrecorded
        with _logged("which cycles are not in the ledger is not known"):
            self._compare()

    def _compare(self) -> None:
        """Forget the cycles that the ledger knows as well. Raises LedgerError, and then it is to be done again."""
        if self._is_compared:
            return
        since = min(cycle.started_wall for cycle, _ in self._unrecorded.values())
        for row in self._ledger.cycles(since, float("inf"), with_steps=False):
            known = self._unrecorded.get(row.token)
            if known is not None and _ends(row) >= _ends(known[0]):
                del self._unrecorded[row.token]
        self._is_compared = True

    @property
    def unrecorded(self) -> int:
        """How many cycles are not in the ledger as they are known."""
        return len(self._unrecorded)

    def _record(self, wall: float) -> None:
        """Write what is not written yet. Raises LedgerError at the first that cannot be."""
        self._tried_wall = wall
        self._compare()
        for token, (cycle, offset_s) in tuple(self._unrecorded.items()):
            self._ledger.record(self._priced(cycle), offset_s)
            del self._unrecorded[token]

    def _newer(self) -> tuple[CycleRow, ...]:
        return tuple(row_of(self._priced(cycle)) for cycle, _ in self._unrecorded.values())

    def _priced(self, cycle: Cycle) -> Cycle:
        """The cycle with a price, for the ledger only: what is decided about it knows what it knew."""
        if cycle.quote is not None or cycle.volume is None:
            return cycle
        try:
            is_priced = self._ledger.is_priced(cycle)
        except LedgerError:
            is_priced = True  # nobody knows, and the price of a purchase is better than that of a list
        return cycle if is_priced else replace(cycle, quote=self.price_of(cycle.provisioned))

    def learned(self, size_bytes: int) -> None:
        with _logged("the learned size is not in the ledger"):
            self._ledger.set_learned_size(self._uuid, size_bytes)

    def listed(self, names: frozenset[str], *, wall: float, others: Iterable[tuple[Cycle, float]] = ()) -> None:
        with _logged("open bills were not checked"):
            for cycle, offset_s in others:
                self._unrecorded.setdefault(cycle.token, (cycle, offset_s))
            self._record(wall)  # a bill that was left open must not be opened again later
            for token in self._ledger.close_unlisted(self._uuid, names, wall):
                _log.warning("cycle %s has no volume any more: its bill is closed", token)
                self._past = None

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        with _logged("the history is not written yet"):
            self._history.sampled(sample, state, now=now, wall=wall)

    def keep_accounts(self, rows: Collection[AccountRow], moves: Moves) -> None:
        """Write the rows of a burst, again if it goes on, and what cgroups have moved in boosts since the last call.

        With them goes what could not be written before.
        """
        self._accounts |= {(row.begun_wall, row.cgroup): row for row in rows}
        self._accounts = dict(tuple(self._accounts.items())[-MOST_WAITING:])
        self._moves |= {key: moved.plus(self._moves.get(key, Moved())) for key, moved in moves.items()}
        self._moves = dict(tuple(self._moves.items())[-MOST_WAITING:])
        oldest = max((row.ended_wall for row in rows), default=float("-inf")) - self._limits.days * DAY_S
        with _logged("the account of a burst is not in the ledger yet"):
            write_accounts(self._ledger.file, self._accounts.values(), self._moves, oldest)
            self._accounts, self._moves = {}, {}

    def flush(self, *, wall: float) -> None:
        """Write the unfinished batch of the history, before a stop."""
        with _logged("the last minute is not in the history"):
            self._history.flush(wall)

    def last_samples(self, most: int) -> tuple[SampleRun, ...]:
        """The last runs of the device, oldest first; none if they cannot be read."""
        with _logged("the past bursts are not known"):
            return read_last_samples(self._ledger.file, self._uuid, most)
        return ()

    def learned_size(self) -> int | None:
        """Bytes; None if it cannot be read: the next cache then has the initial size."""
        with _logged("the learned size is not known"):
            return self._ledger.learned_size(self._uuid)
        return None

    def spend(self, *, wall: float) -> Spend:
        """Since local midnight, and in the month. While the ledger cannot be read, the last known value, with `known`
        False."""
        day, month = periods(wall, self._zone)
        first, today = month.since_wall, day.since_wall
        if self._unrecorded and not 0 <= wall - self._tried_wall < TOUCH_EVERY_S:
            with _logged(f"not in the ledger yet: {self.unrecorded} cycles"):
                self._record(wall)
        self._spend = replace(self._spend, known=False)
        with _logged("today's spend is not known"):
            spent = self._ledger.spend_since(today, wall, self._newer())
            self._spend = self._month.with_month(spent, first, today)
        self._spend = replace(self._spend, day=day, this_month=month)
        return self._spend

    def past(self, wall: float) -> Past:
        """The bursts of the last 30 days, and what their caches cost. Raises LedgerError.

        The ledger is read again only after it has changed: a forecaster asks every few seconds.
        """
        written = self._history.loads_written
        if self._past is None or self._past[0] != written:
            since = wall - PAST_S
            rows = self._ledger.cycles(since, wall + DAY_S)
            self._past = written, past_of(rows, read_loads(self._ledger.file, since), self._uuid)
        return self._past[1]

    def touch_device(
        self,
        size_bytes: int,
        backing_mb_s: float,
        cache_mb_s: float,
        *,
        wall: float,
        prices: Callable[[], DevicePrices | None] = lambda: None,
    ) -> None:
        """Record once a minute that the device was there: the cost of a static volume is computed over that time.

        `prices` is called only then; None: not determined yet.
        """
        if wall - self._touched < TOUCH_EVERY_S:
            return
        self._touched = wall
        with _logged("the device is not in the ledger"):
            self._ledger.touch_device(self._uuid, size_bytes, backing_mb_s, cache_mb_s, wall, prices())


def _ends(bill: Cycle | CycleRow) -> int:
    """How many ends of the bill are known."""
    return (bill.opened_wall is not None) + (bill.closed_wall is not None)


@contextmanager
def open_recorder(
    path: Path, backing_uuid: str, limits: HistoryLimits, clock: Callable[[], float] = time.monotonic
) -> Iterator[CostRecorder]:
    """The recorder of this file, which is closed at the end.

    If it cannot be opened, that is logged, and it is tried again about once a minute. Until then what was spent is not
    known: with daily caps no boost begins. A cache that exists is still flushed and released.
    """
    with LateLedger(path, clock) as ledger:
        yield CostRecorder(ledger, backing_uuid, limits)
