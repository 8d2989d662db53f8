"""The load, with two thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.boosting import situation_of
from elastio.core.model import BackingView, Rates, Sample
from elastio.core.state import AgentState, Observation, Phase
from elastio.strategy.load import as_load, is_load_high, is_quiet, utilization, watch_load
from elastio.strategy.memory import LoadWatch, Memory
from elastio.strategy.review import review
from tests.values import HIGH, NOW, POLICY, WALL, backing, host


def sample(mb_s: float, at: float = 10.0, read_mb_s: float = 0.0) -> Sample:
    return Sample(at, 1.0, Rates(read_mb_s, mb_s))


def watched(*mb_s: float) -> LoadWatch:
    load = LoadWatch()
    for second, rate in enumerate(mb_s, start=1):
        load = watch_load(load, sample(rate, float(second)), POLICY)
    return load


def test_reads_and_writes_use_the_same_bandwidth() -> None:
    assert utilization(sample(4, read_mb_s=6), POLICY) == pytest.approx(0.5)


def test_a_load_that_does_not_count_is_no_load_and_is_remembered_only_beside_one_that_does() -> None:
    backup = replace(sample(15), counted=Rates(0.5, 1.0))
    beside = replace(sample(15, read_mb_s=3), counted=Rates(3, 6))
    assert utilization(backup, POLICY) == pytest.approx(0.075)
    assert as_load(backup, POLICY).adaptive == Rates(0.5, 1.0)
    assert as_load(beside, POLICY) == beside
    assert as_load(sample(15), POLICY) == sample(15)
    assert watch_load(LoadWatch(), backup, POLICY).above_since is None


def test_load_at_the_threshold_counts_from_the_beginning_of_its_sample() -> None:
    assert watched(0, 6, 6).above_since == 1.0


def test_load_between_the_thresholds_is_what_it_was() -> None:
    rising, falling = watched(0, 5.5), watched(10, 5.5)
    assert (rising.above_since, rising.below_since) == (None, 0.0)
    assert (falling.above_since, falling.below_since) == (0.0, None)


def test_one_sample_below_the_release_threshold_ends_a_load() -> None:
    assert watched(10, 4.9).above_since is None
    assert watched(10, 4.9, 10).above_since == 2.0


def test_a_late_sample_begins_no_load_and_continues_one() -> None:
    late = replace(sample(10, 90.0), seconds=80.0, is_late=True)
    quiet, busy = watch_load(watched(0), late, POLICY), watch_load(watched(10), late, POLICY)
    assert (quiet.above_since, quiet.below_since, quiet.utilization) == (None, 0.0, 0.5)
    assert busy.above_since == 0.0
    assert watch_load(quiet, sample(10, 91.0), POLICY).above_since == 90.0


@pytest.mark.parametrize(("trigger_delay_s", "is_high"), [(0, True), (3, True), (4, False)])
def test_the_load_must_last_for_the_trigger_delay(trigger_delay_s: float, is_high: bool) -> None:
    assert is_load_high(LoadWatch(above_since=7.0), 10.0, replace(POLICY, trigger_delay_s=trigger_delay_s)) is is_high


def test_quiet_is_the_inactivity_delay_without_load() -> None:
    load = LoadWatch(below_since=10.0)
    assert not is_quiet(load, 39.9, POLICY)
    assert is_quiet(load, 40.0, POLICY)
    assert not is_quiet(LoadWatch(above_since=10.0), 100.0, POLICY)


@pytest.mark.parametrize(
    ("view", "load"), [(None, LoadWatch()), (backing(running=False), LoadWatch()), (backing(), HIGH)]
)
def test_a_device_that_does_not_run_has_no_load(view: BackingView | None, load: LoadWatch) -> None:
    before = AgentState(phase=Phase.FAULTED, memory=Memory(load=HIGH))
    seen = Observation(now=NOW, wall=WALL, host=host(view))
    assert review(before.memory, situation_of(before, seen, POLICY))[0].load == load
