"""What an event changes in the cycle, besides the phase. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from elastio.core.cycle import Cycle, Failure, FailureKind
from elastio.core.detection import Detection, Event
from elastio.core.observation import Observation


def stamped(cycle: Cycle, detected: Detection, obs: Observation, *, is_forced: bool) -> Cycle:
    """The cycle with what the event changes in it."""
    match detected.event:
        case Event.WENT_QUIET | Event.CAP_REACHED | Event.FILLED_UP:
            dirty = obs.host.backing.dirty_bytes if obs.host and obs.host.backing else 0
            times = replace(cycle.times, quiet=obs.now, clean=None)
            return replace(cycle, times=times, forced=is_forced, flush_started_dirty_bytes=dirty)
        case Event.LOAD_RETURNED:
            return replace(cycle, forced=False, failure=None, times=replace(cycle.times, detaching=None))
        case Event.DRAINED:
            return cycle.stamped(clean=obs.now)
        case Event.CACHE_LEFT:
            return cycle.stamped(detached=obs.now)
        case Event.BOOST_ABANDONED | Event.BOOST_WITHDRAWN:
            kind = detected.failure or FailureKind.UNKNOWN
            return replace(cycle, failure=Failure(kind, detected.reason))
        case Event.DIRTIED:
            return replace(cycle, times=replace(cycle.times, clean=None), dirtied=cycle.dirtied + 1)
        case Event.CACHE_ATTACHED | Event.REPAIRED:
            return cycle  # what the scan shows is enough
        case (
            Event.BOOST_WANTED
            | Event.BOOST_CAPPED
            | Event.BOOST_DECLINED
            | Event.BOOST_REFUSED
            | Event.ORPHAN_FOUND
            | Event.RELEASED
            | Event.ENDANGERED
        ):
            return cycle  # `machine` handles them
        case _:
            assert_never(detected.event)
