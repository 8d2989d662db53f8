"""The ledger as the loop sees it: cycles recorded, sizes learned, spend since midnight."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from elastio.accounting.history_store import HistoryLimits, HistoryWriter
from elastio.accounting.ledger import Ledger
from elastio.accounting.report import day_start
from elastio.accounting.zone import local_zone
from elastio.core.cycle import Cycle
from elastio.core.model import Sample, Spend
from elastio.core.state import AgentState
from elastio.errors import LedgerError

TOUCH_EVERY_S = 60.0

_log = logging.getLogger(__name__)


class CostRecorder:
    """`Recorder` on a Ledger. A ledger that fails is reported and never stops the guarding of data."""

    def __init__(self, ledger: Ledger, backing_uuid: str, limits: HistoryLimits | None = None) -> None:
        self._ledger, self._uuid, self._zone = ledger, backing_uuid, local_zone()
        self._history = HistoryWriter(ledger.file, backing_uuid, limits or HistoryLimits())
        self._touched = float("-inf")
        self._spend = Spend(known=False)

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        self._touched = float("-inf")  # the device was there all the way up to this moment
        try:
            self._ledger.record(cycle, cycle.quote, wall - now)
        except LedgerError as error:
            _log.error("cycle %s is not in the ledger: %s", cycle.token, error)

    def learned(self, size_bytes: int) -> None:
        try:
            self._ledger.set_learned_size(self._uuid, size_bytes)
        except LedgerError as error:
            _log.error("the learned size is not in the ledger: %s", error)

    def listed(self, tokens: frozenset[str], *, wall: float) -> None:
        try:
            for token in self._ledger.close_unlisted(self._uuid, tokens, wall):
                _log.warning("cycle %s has no volume any more: its bill is closed", token)
        except LedgerError as error:
            _log.error("open bills were not checked: %s", error)

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        try:
            self._history.sampled(sample, state, now=now, wall=wall)
        except LedgerError as error:
            _log.error("the history waits: %s", error)

    def flush(self, *, wall: float) -> None:
        """Before a stop: write what still waits."""
        try:
            self._history.flush(wall)
        except LedgerError as error:
            _log.error("the last minute is not in the history: %s", error)

    def learned_size(self) -> int | None:
        """None where it cannot be read: the next cache is of the first size."""
        try:
            return self._ledger.learned_size(self._uuid)
        except LedgerError as error:
            _log.error("the learned size is not known: %s", error)
            return None

    def spend(self, *, wall: float) -> Spend:
        """Since local midnight. While the ledger cannot be read, what was known last, marked as not known."""
        try:
            self._spend = self._ledger.spend_since(day_start(wall, self._zone), wall)
        except LedgerError as error:
            _log.error("today's spend is not known: %s", error)
            self._spend = replace(self._spend, known=False)
        return self._spend

    def touch_device(self, size_bytes: int, backing_mb_s: float, cache_mb_s: float, *, wall: float) -> None:
        """Note once a minute that the device was there: what a static volume would have cost runs over that time."""
        if wall - self._touched < TOUCH_EVERY_S:
            return
        self._touched = wall
        try:
            self._ledger.touch_device(self._uuid, size_bytes, backing_mb_s, cache_mb_s, wall)
        except LedgerError as error:
            _log.error("the device is not in the ledger: %s", error)


class NullRecorder:
    """`Recorder` where the ledger cannot be opened: nothing is recorded, and what was spent is not known.

    Caps by the day then let no boost begin; a cache that is there is flushed, guarded and released all the same.
    """

    def record_cycle(self, cycle: Cycle, *, now: float, wall: float) -> None:
        _log.error("cycle %s is not in the ledger: it could not be opened", cycle.token)

    def learned(self, size_bytes: int) -> None:
        """The agent remembers it until it ends."""

    def listed(self, tokens: frozenset[str], *, wall: float) -> None:
        """There are no bills."""

    def sampled(self, sample: Sample, state: AgentState, *, now: float, wall: float) -> None:
        """There is no history."""

    def flush(self, *, wall: float) -> None:
        """Nothing waits."""

    def learned_size(self) -> int | None:
        return None

    def spend(self, *, wall: float) -> Spend:
        return Spend(known=False)

    def touch_device(self, size_bytes: int, backing_mb_s: float, cache_mb_s: float, *, wall: float) -> None:
        """There is no record of devices."""


@contextmanager
def open_recorder(path: Path, backing_uuid: str, limits: HistoryLimits) -> Iterator[CostRecorder | NullRecorder]:
    """The recorder of this file; none, with an error in the log, where it cannot be opened. Closed at the end."""
    recorder: CostRecorder | NullRecorder
    with ExitStack() as stack:
        try:
            recorder = CostRecorder(stack.enter_context(Ledger(path)), backing_uuid, limits)
        except LedgerError as error:
            way = "update elastio or move the file away, then restart elastiod"
            _log.error("running without a ledger: %s; %s", error, way)
            recorder = NullRecorder()
        yield recorder
