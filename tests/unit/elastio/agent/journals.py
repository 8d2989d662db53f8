"""A journal's state with every time set, and how a test writes and remembers it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from elastio.agent.journal import Journal, Owner, read
from elastio.agent.memory import Remembered, remember
from elastio.core.actions import CreateVolume
from elastio.core.cycle import Backoff, CacheUse, Failure, FailureKind, Timestamps
from elastio.core.model import VolumeSpec
from elastio.core.state import AgentState, Phase
from elastio.strategy.memory import Boost, Memory
from tests.values import cycle

SPEC = VolumeSpec(10 * 2**30, 128.0, 3000)
TIMES = Timestamps(*(100.0 + n for n in range(len(dataclasses.fields(Timestamps)))))
FULL = cycle(
    started_at=99.0,
    started_wall=1099.0,
    unready_at=100.5,
    create_unconfirmed_at=101.0,
    opened_wall=1101.0,
    closed_wall=1201.0,
    times=TIMES,
    backoffs={"CreateVolume": Backoff(2, 130.0, "throttled")},
    use=CacheUse(9, 60, 70, 5, 3, 2),
    dirty_bytes=7,
    dirty_boot="boot-1",
    failure=Failure(FailureKind.TIMED_OUT, "no luck"),
)
OWNER = Owner("uuid-1", "i-1")
BOOST = Boost(chance_until=300.0, clean_since=105.0, moved_bytes=9, bare=0.4, longest_s=3.0)
STATE = AgentState(phase=Phase.BOOSTING, cycle=FULL, paused=True, memory=Memory(boost=BOOST))
CREATE = CreateVolume("token", SPEC, SPEC.size_bytes)
BOOT = {"now": 110.0, "wall": 1110.0, "boot_id": "boot-1"}


def decide(journal: Journal, state: AgentState = STATE, reason: str = "because", now: float = 110.0) -> None:
    journal.decision(Phase.IDLE, state, reason, now=now, wall=now + 1000.0)


def recall(path: Path, **changes: Any) -> Remembered:
    return remember(path, **{**BOOT, **changes})


def reasons(path: Path) -> list[str]:
    return [record["reason"] for record in read(path)]
