"""The bursts that the agent watches: when they begin and end, and that what was seen is all in one account."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastio.strategy.account import CLASSES, PARTS, Totals, account, seconds_of
from elastio.strategy.bandwidth import curves_of
from elastio.strategy.waits import sample_of
from elastio.strategy.watched_bursts import Load, Thresholds, WatchedBurst, with_load
from tests.unit.elastio.strategy.wait_runs import Stretch, moments, totals

LIMITS = Thresholds(0.3, 0.25, 30.0)
COUNTS = st.integers(0, 4)
STRETCHES = st.builds(
    Stretch, st.floats(0.1, 1), running=COUNTS, waiting=COUNTS, mb_s=st.floats(0, 200), pending=COUNTS, unclear=COUNTS
)
CAP_MB_S = 100.0
BANDWIDTHS = (CAP_MB_S / 10, CAP_MB_S, 10 * CAP_MB_S)
ONE = totals(moments([Stretch(2, waiting=1, mb_s=99)]), CAP_MB_S)


def numbers(value: Any) -> list[float]:
    if isinstance(value, Totals):
        value = tuple(getattr(value, f.name) for f in fields(value))
    return [number for each in value for number in numbers(each)] if isinstance(value, tuple) else [value or 0.0]


def close_to(found: Totals, expected: Totals) -> bool:
    return numbers(found) == pytest.approx(numbers(expected), rel=1e-6, abs=1e-6)


def run(
    *loads: tuple[float, float], burst: WatchedBurst | None = None
) -> tuple[WatchedBurst | None, list[WatchedBurst]]:
    """One sample of a second for each of these (end, use); a cgroup was seen in each second of a burst."""
    ended = []
    for at, used in loads:
        if burst is not None:
            burst = burst.plus({"a": ONE})
        burst, over = with_load(burst, Load(at, 1.0, used), LIMITS)
        ended += [over] if over else []
    return burst, ended


def test_a_burst_begins_with_the_sample_that_reaches_the_threshold() -> None:
    assert run((1, 0.29))[0] is None
    burst, _ = run((1, 0.29), (2, 0.3))
    assert burst is not None
    assert (burst.begun_at, burst.loaded_until) == (1, 2)


def test_a_pause_belongs_to_the_burst_and_the_quiet_after_it_does_not() -> None:
    loads = [(1, 0.9), *((at, 0.0) for at in range(2, 20)), (20, 0.25), *((at, 0.1) for at in range(21, 50))]
    burst, ended = run(*loads)
    assert burst is not None
    assert not ended
    assert burst.loaded_until == 20
    assert burst.counted["a"].seconds == pytest.approx(19 * ONE.seconds)
    burst, ended = run((50, 0.0), burst=burst)
    assert burst is None
    assert [over.loaded_until for over in ended] == [20]
    assert ended[0].counted["a"].seconds == pytest.approx(19 * ONE.seconds)


def test_time_that_nobody_saw_ends_a_burst() -> None:
    burst, _ = run((1, 0.9), (2, 0.9))
    burst, ended = run((63.5, 0.9), burst=burst)
    assert burst is not None
    assert burst.begun_at == 62.5
    assert [over.loaded_until for over in ended] == [2]


def test_what_was_seen_after_the_last_load_counts_only_once_the_load_is_back() -> None:
    burst = WatchedBurst(0, 1, 1).plus({"a": ONE, "b": ONE}).plus({"a": ONE})
    assert burst.counted == {}
    back, _ = with_load(burst, Load(2, 1, 0.9), LIMITS)
    assert back is not None
    assert {name: each.seconds for name, each in back.counted.items()} == {
        "a": 2 * ONE.seconds,
        "b": ONE.seconds,
    }
    assert back.since == {}


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.25, 0.29, 0.3, 1.0]), max_size=80), st.integers(0, 5))
def test_what_bursts_count_is_all_from_their_begin_to_their_last_load(uses: list[float], quiet_s: int) -> None:
    """Against the definition, for samples of a second and one look in each."""
    limits = Thresholds(0.3, 0.25, quiet_s)
    burst, ended = None, []
    for at, used in enumerate([*uses, *[0.0] * (quiet_s + 1)], 1):
        burst = burst.plus({"a": ONE}) if burst else None
        burst, over = with_load(burst, Load(at, 1.0, used, moved_bytes=7), limits)
        ended += [over] if over else []
    assert burst is None
    assert [(each.begun_at, each.loaded_until) for each in ended] == defined(uses, quiet_s)
    for each in ended:
        assert each.loaded_bytes == 7 * (each.loaded_until - each.begun_at)
        seconds = sum(totals.seconds for totals in each.counted.values())
        assert seconds == pytest.approx((each.loaded_until - each.begun_at - 1) * ONE.seconds)


def defined(uses: list[float], quiet_s: int) -> list[tuple[int, int]]:
    """The bursts by their definition: a load, and every later one before which it was not quiet for so long."""
    found: list[tuple[int, int]] = []
    loaded = [at for at, used in enumerate(uses, 1) if used >= 0.25]
    last = 0
    for at in loaded:
        goes_on = bool(found) and last == found[-1][1] and at - last <= max(1, quiet_s)
        if goes_on:
            found[-1] = (found[-1][0], at)
        elif uses[at - 1] >= 0.3:
            found.append((at - 1, at))
        last = at
    return found


@settings(deadline=None)
@given(st.lists(STRETCHES, min_size=1, max_size=4), st.lists(st.integers(0, 10), max_size=4))
def test_any_split_of_a_burst_gives_the_same_account(parts: list[Stretch], cuts: list[int]) -> None:
    seconds = [sample for each in parts if (sample := sample_of(moments([each]))) is not None]
    whole = Totals()
    for second in seconds:
        whole = whole.added(second, CAP_MB_S)
    borders = sorted({0, len(seconds), *(min(cut, len(seconds)) for cut in cuts)})
    split = Totals()
    for begin, end in pairwise(borders):
        piece = Totals()
        for second in seconds[begin:end]:
            piece = piece.added(second, CAP_MB_S)
        split = split.plus(piece)
    assert close_to(split, whole)
    assert [seconds_of(account(split), p) for p in PARTS] == pytest.approx(
        [seconds_of(account(whole), p) for p in PARTS], abs=1e-6
    )


@settings(deadline=None)
@given(st.lists(STRETCHES, min_size=1, max_size=4), st.floats(0.1, 1e6))
@example([Stretch(0.109, running=4, waiting=1, mb_s=99)], 0.7)
def test_parts_and_deciles_are_the_length_that_the_sums_stand_for(run: list[Stretch], seconds: float) -> None:
    seen = totals(moments(run), CAP_MB_S)
    if seen.seconds <= 0:
        return
    whole = seen.standing_for(seconds)
    found = account(whole)
    assert sum(seconds_of(found, part) for part in PARTS) == pytest.approx(seconds)
    assert sum(whole.classes) == pytest.approx(seconds)
    assert len(whole.classes) == CLASSES
    assert whole.instants == seen.instants
    likely, before = curves_of(whole).likely, curves_of(seen).likely
    # Where the curve becomes flat may be decided by the last bit, so times are compared and not the inflection.
    times, longer = [[curve.time_s(mb_s) for mb_s in BANDWIDTHS] for curve in (likely, before)], seconds / seen.seconds
    assert times[0] == pytest.approx([time_s * longer for time_s in times[1]])
    assert likely.waited_s + likely.rest_s == pytest.approx(seconds)
    assert likely.moved_mb == pytest.approx(before.moved_mb * seconds / seen.seconds)


def test_delays_that_are_not_known_of_a_part_are_not_known_of_the_whole() -> None:
    without = totals([moment for moment in moments([Stretch(2, waiting=1)])], None)
    assert Totals(delayed_s=None).plus(without).delayed_s is None
    assert without.plus(Totals(delayed_s=None)).delayed_s is None
