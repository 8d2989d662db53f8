"""What the agent's operations took in a guest, from its journal: the simulator is given these, and nothing else of it.

Under emulation they are mostly the guest's processor, which no scale of the experiment changes. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from elastio.sim.host import HostTimes
from elastio.sim.kernel import KernelSettings


@dataclass(frozen=True, slots=True)
class OperationTimings:
    """`host` and `superblock_s` (an attachment behind a loaded backing disk); `call_s`, one call to the cloud."""

    host: HostTimes
    superblock_s: float
    call_s: tuple[float, float]


# Of a guest that nothing else disturbs; used where a run has no journal.
TYPICAL = OperationTimings(HostTimes(), KernelSettings().superblock_loaded_s, (0.15, 0.4))


def timings_of(journal: Iterable[Mapping[str, Any]]) -> OperationTimings:
    """The medians of what was done, from its intent to its outcome as the loop saw both; else what is typical."""
    took = operations_s(journal)

    def of(default: float, *actions: str) -> float:
        seconds = [s for action in actions for s in took.get(action, [])]
        return median(seconds) if seconds else default

    calls = took.get("AttachVolume", [])
    # One operation of the agent, three of the simulated host: each takes its usual share of the whole.
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
    """Seconds of every operation that was done, by action, in order."""
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
