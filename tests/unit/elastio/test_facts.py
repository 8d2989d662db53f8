"""What was seen, folded into the state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.facts import fold
from elastio.governor import NOTHING
from elastio.model import Rates, Sample
from elastio.observation import Observation
from elastio.state import AgentState, Cycle, Phase

from .values import NOW, POLICY, backing, cached, cycle, disk, host

MB = 10**6


def folded(before: Cycle, view: object, sample: Sample | None = None, phase: Phase = Phase.BOOSTING) -> Cycle:
    state = AgentState(phase=phase, cycle=before, recovered=True)
    seen = Observation(now=NOW, wall=NOW, host=host(view, disk()), sample=sample)  # type: ignore[arg-type]
    after = fold(state, seen, POLICY).cycle
    assert after is not None
    return after


def test_what_overflowed_before_the_cycle_is_not_its_own() -> None:
    attaching = folded(cycle(), backing(overflow_bytes=100), phase=Phase.ATTACHING)
    boosted = folded(attaching, cached(overflow_bytes=130))
    assert boosted.evicted_bytes == 30


def test_a_counter_that_begins_anew_after_a_reboot_counts_from_zero() -> None:
    before = folded(cycle(), backing(overflow_bytes=100), phase=Phase.ATTACHING)
    rebooted = folded(before, cached(overflow_bytes=7))
    assert (rebooted.overflow_base, rebooted.evicted_bytes) == (0, 7)


def test_a_kernel_that_cannot_tell_says_nothing_of_overflow() -> None:
    assert folded(cycle(), cached(overflow_bytes=None)).evicted_bytes == 0


@pytest.mark.parametrize(("available", "pressed"), [(31, 30 * MB), (60, 0)], ids=["nearly full", "room enough"])
def test_what_is_flushed_while_the_cache_is_nearly_full_was_missing(available: int, pressed: int) -> None:
    busy = Sample(NOW, 2.0, Rates(0, 100), backing=Rates(0, 15), cache=Rates(15, 100))
    after = folded(cycle(), cached(available_percent=available, cutoff_percent=70), busy)
    assert after.pressed_bytes == pressed


def test_what_is_flushed_while_the_application_rests_was_not_missing() -> None:
    idle = Sample(NOW, 2.0, Rates(0, 0), backing=Rates(0, 15), cache=Rates(15, 0))
    full = cached(available_percent=20, cutoff_percent=70)
    assert folded(cycle(), full, idle).pressed_bytes == 0


def test_the_pace_of_flushing_follows_the_last_sample() -> None:
    state = AgentState(phase=Phase.BOOSTING, cycle=cycle(), recovered=True)
    idle, busy = Sample(NOW, 1.0, Rates()), Sample(NOW, 1.0, Rates(0, 1e6), cache=Rates(0, 1e6))
    resting = fold(state, Observation(now=NOW, wall=NOW, sample=idle), POLICY)
    assert resting.flush_mb_s is None
    assert fold(resting, Observation(now=NOW, wall=NOW), POLICY).flush_mb_s is None
    assert fold(replace(resting), Observation(now=NOW, wall=NOW, sample=busy), POLICY).flush_mb_s == NOTHING
