"""A journal's state with every field set, and how a test writes and remembers it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from elastio.agent.journal import Journal, Owner, read
from elastio.agent.memory import Memory, remember
from elastio.core.actions import CreateVolume
from elastio.core.cycle import Backoff, Cycle, Failure, FailureKind, Timestamps, Trigger
from elastio.core.model import CacheSetUuid, Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.core.state import AgentState, Phase

SPEC = VolumeSpec(10 * 2**30, 128.0, 3000)
VOLUME = Volume(VolumeId("vol-1"), Serial("vol1"), VolumeState.ATTACHED, 10 * 2**30, 125.0, "token", "uuid", 1000.5)
QUOTE = Quote(SPEC, "USD", 0.1, 60.0, "list of 2026")
TIMES = Timestamps(*(100.0 + n for n in range(len(dataclasses.fields(Timestamps)))))
FULL = Cycle(
    token="token",
    trigger=Trigger.OPERATOR,
    spec=SPEC,
    started_at=99.0,
    started_wall=1099.0,
    volume_id=VolumeId("vol-1"),
    serial=Serial("vol1"),
    backing_serial=Serial("vol0"),
    cache_set=CacheSetUuid("cf27dac6"),
    volume=VOLUME,
    quote=QUOTE,
    unready_at=100.5,
    seen=True,
    create_unconfirmed_at=101.0,
    chance_until=300.0,
    forced=True,
    opened_wall=1101.0,
    closed_wall=1201.0,
    times=TIMES,
    backoffs={"CreateVolume": Backoff(2, 130.0, "throttled")},
    peak_dirty_bytes=1,
    peak_in_use_percent=2,
    written_through_bytes=3,
    moved_bytes=30,
    gained_bytes=31,
    bare=0.5,
    longest_s=32.0,
    forced_writeback_bytes=5,
    overflow_base=6,
    flush_started_dirty_bytes=4,
    cutoff_percent=5,
    dirty_bytes=7,
    dirty_wall=1109.0,
    dirty_boot="boot-1",
    is_index_dirty=True,
    may_lack_data=True,
    operator_confirmed=True,
    tag=VolumeTag.CLEAN,
    failure=Failure(FailureKind.TIMED_OUT, "no luck"),
)
OWNER = Owner("uuid-1", "i-1")
STATE = AgentState(phase=Phase.BOOSTING, cycle=FULL, paused=True)
CREATE = CreateVolume("token", SPEC, SPEC.size_bytes)
BOOT = {"now": 110.0, "wall": 1110.0, "boot_id": "boot-1"}


def decide(journal: Journal, state: AgentState = STATE, reason: str = "because", now: float = 110.0) -> None:
    journal.decision(Phase.IDLE, state, reason, now=now, wall=now + 1000.0)


def recall(path: Path, **changes: Any) -> Memory:
    return remember(path, **{**BOOT, **changes})


def reasons(path: Path) -> list[str]:
    return [record["reason"] for record in read(path)]
