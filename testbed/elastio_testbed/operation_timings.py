"""The durations of the agent's operations in a guest, from its journal; input of the simulator. Pure.

Under emulation they are dominated by the guest's processor, so they do not scale with the experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from elastio_sim.host import HostTimes
from elastio_sim.kernel import KernelSettings


@dataclass(frozen=True, slots=True)
class OperationTimings:
    """`host` and `superblock_s` (an attachment behind a loaded backing disk); `call_s`, one call to the cloud."""

    host: HostTimes
    superblock_s: float
    call_s: tuple[float, float]


# Those of an undisturbed guest, for runs without a journal.
TYPICAL = OperationTimings(HostTimes(), KernelSettings().superblock_loaded_s, (0.15, 0.4))


def timings_of(journal: Iterable[Mapping[str, Any]]) -> OperationTimings:
    """The medians of the successful operations, from intent to outcome; typical values for all others."""
    durations = operations_s(journal)

    def of(default: float, *actions: str) -> float:
        seconds = [s for action in actions for s in durations.get(action, [])]
        return median(seconds) if seconds else default

    calls = durations.get("AttachVolume", [])
    # One operation of the agent is three of the simulated host: each gets its usual share.
    usual = TYPICAL.host.format + TYPICAL.host.register + TYPICAL.superblock_s
    slower = of(usual, "InstallCache") / usual
    host = replace(
        TYPICAL.host,
        tune=of(TYPICAL.host.tune, "TuneBacking"),
        format=TYPICAL.host.format * slower,
        register=TYPICAL.host.register * slower,
        phase=of(TYPICAL.host.phase, "EnterPhase1", "EnterPhase2", "BypassCache", "SetFlush"),
        detach=of(TYPICAL.host.detach, "DetachCacheSet"),
        release=of(TYPICAL.host.release, "ReleaseCacheDisk"),
    )
    call_s = (min(calls), max(calls)) if calls else TYPICAL.call_s
    return OperationTimings(host, TYPICAL.superblock_s * slower, call_s)


def operations_s(journal: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Seconds of every successful operation by action, in order."""
    begun: dict[str, float] = {}
    took: dict[str, list[float]] = {}
    for record in journal:
        action = str(record.get("action"))
        if record.get("kind") == "intent":
            begun[action] = float(record["now"])
        elif record.get("kind") == "outcome" and action in begun:
            seconds = float(record["now"]) - begun.pop(action)
            if record.get("verdict") == "done":
                took.setdefault(action, []).append(seconds)
    return took
