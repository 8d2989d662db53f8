"""Bursts that the ledger knows from before the run, so that another one is expected in it."""

from __future__ import annotations

from elastio.accounting.ledger import Ledger
from elastio.core.cycle import Cycle, Failure, FailureKind, Trigger
from elastio.core.model import VolumeSpec
from elastio.units import GIB, MB

# Between the begins of two bursts.
PERIOD_S = 600.0


def remember_bursts(ledger: Ledger, next_wall: float) -> None:
    """Three bursts of 9 s, a period apart, that were refused their volumes: the next one begins at `next_wall`."""
    for nth in (3, 2, 1):
        begun = next_wall - nth * PERIOD_S
        failure = Failure(FailureKind.ERROR, "the quota of volume storage is reached")
        refused = Cycle(f"past-{nth}", Trigger.LOAD, VolumeSpec(GIB, 80), 0.0, begun, failure=failure)
        ledger.record(refused, begun)
        with ledger.file.write() as db:
            db.execute("INSERT INTO loads VALUES (?, 0, ?, ?, ?)", (refused.token, 540 * MB, begun, begun + 9.0))
