"""The account of time: every second is in one part, and each kind of waiting in its own."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from elastio.strategy.account import CLASSES, Account, Limit, Totals, account, cap_in, refine
from elastio.strategy.bandwidth import Curve, curves_of
from elastio.strategy.waits import NO_TIMES, Instant, ThreadTimes, Times, sample_of
from elastio.units import KIB, MB
from tests.unit.elastio.strategy.wait_runs import Stretch, alternating, moments, totals

COUNTS = st.integers(0, 5)
RATES = st.floats(0, 500)
STRETCHES = st.builds(
    Stretch,
    st.floats(0.1, 3),
    running=COUNTS,
    waiting=COUNTS,
    pending=COUNTS,
    unclear=COUNTS,
    mb_s=RATES,
    other_mb_s=RATES,
    request_bytes=st.sampled_from([4 * KIB, 64 * KIB, 1024 * KIB]),
    delayed=st.floats(0, 5),
)
CAPS = st.one_of(st.none(), st.floats(1, 500))


def of(*run: Stretch, cap_mb_s: float | None = 100.0) -> Account:
    return account(totals(_sampled(*run), cap_mb_s))


def _sampled(*run: Stretch) -> list[Instant]:
    """Without delay accounting."""
    return [replace(moment, delayed_s=None) for moment in moments(run)]


def parts(found: Account) -> tuple[float, ...]:
    """In shares, rounded to hundredths."""
    each = (found.computing_s, found.bandwidth_s, found.latency_s, found.elsewhere_s, found.unknown_s)
    return tuple(round(part / found.seconds, 2) for part in each)


@pytest.mark.parametrize(
    ("stretch", "expected"),
    [
        (Stretch(10, running=1), (1, 0, 0, 0, 0)),
        (Stretch(10, running=1, mb_s=100), (1, 0, 0, 0, 0)),
        (Stretch(10, waiting=1, mb_s=99), (0, 1, 0, 0, 0)),
        (Stretch(10, waiting=1, mb_s=80), (0, 0, 1, 0, 0)),
        (Stretch(10, waiting=1, other_mb_s=99), (0, 0, 0, 1, 0)),
        (Stretch(10, waiting=1), (0, 0, 0, 0, 1)),
        (Stretch(10), (0, 0, 0, 1, 0)),
        (Stretch(10, running=3, waiting=1, mb_s=99), (0.75, 0.25, 0, 0, 0)),
    ],
    ids=["computes", "computes while its writes flow", "at the limit", "below it", "another disk", "no disk", "sleeps",
         "one of four waits"],
)  # fmt: skip
def test_each_kind_of_time_is_in_its_own_part(stretch: Stretch, expected: tuple[float, ...]) -> None:
    found = of(replace(stretch, mb_s=stretch.mb_s * (4 if stretch.running == 3 else 1)), cap_mb_s=100.0)
    assert parts(found) == expected


def test_a_program_that_computes_and_writes_in_turn_is_split_where_it_changes() -> None:
    run = [Stretch(1.26, running=1), Stretch(0.74, waiting=1, mb_s=99)] * 10
    assert parts(of(*run)) == pytest.approx((0.63, 0.37, 0, 0, 0), abs=0.011)


@pytest.mark.parametrize(("request_bytes", "part"), [(4 * KIB, 2), (512 * KIB, 1)], ids=["latency", "bandwidth"])
def test_without_a_known_limit_the_size_of_requests_tells(request_bytes: int, part: int) -> None:
    found = of(Stretch(10, waiting=1, mb_s=30, request_bytes=request_bytes), cap_mb_s=None)
    assert parts(found)[part] == 1.0


def test_a_disk_that_is_busy_below_a_loop_device_is_not_another_one() -> None:
    assert parts(of(Stretch(10, waiting=1, mb_s=99, other_mb_s=99))) == (0, 1, 0, 0, 0)


@pytest.mark.parametrize(("mb_s", "part"), [(99, 1), (50, 3)], ids=["at its limit", "below it"])
def test_a_disk_at_its_limit_is_waited_for_however_busy_another_one_is(mb_s: float, part: int) -> None:
    """A cgroup's limit holds requests back before they reach the disk, which is busy for moments only."""
    found = of(Stretch(10, waiting=1, mb_s=mb_s, other_mb_s=99, busy_share=0.05), cap_mb_s=100.0)
    assert parts(found)[part] == 1.0


def test_several_tasks_give_two_bounds() -> None:
    found = totals(_sampled(Stretch(10, running=1, waiting=1, mb_s=99)), None)
    assert found.least.seconds == pytest.approx(0, abs=0.01)
    assert found.most.seconds == pytest.approx(10, abs=0.05)
    assert found.likely.seconds == pytest.approx(5, abs=0.05)


def test_seconds_are_counted_in_tenths_of_waiting() -> None:
    run = [Stretch(1, running=1), Stretch(1, waiting=1, mb_s=99), Stretch(0.54, running=1), Stretch(0.46, waiting=1)]
    classes = totals(_sampled(*run), 100.0).classes
    assert len(classes) == CLASSES
    assert [round(seconds) for seconds in classes] == [1, 0, 0, 0, 1, 0, 0, 0, 0, 1]


# --- waits that are shorter than what can be seen ----------------------------------------------------------


@settings(deadline=None, max_examples=40, derandomize=True, database=None)
@given(st.floats(0.05, 5), st.floats(0.1, 0.9), st.floats(2, 300), st.booleans(), st.integers(0, 999))
@example(0.05, 0.5, 8.0, True, 0)
@example(0.05, 0.3, 8.0, False, 1)
@example(5.0, 0.9, 8.0, True, 2)
def test_any_rhythm_of_waiting_at_the_limit_and_computing_has_the_same_account(
    period_s: float, waits: float, cap_mb_s: float, is_given: bool, seed: int
) -> None:
    """Also where the limit is not given, if waits are not rare."""
    found = alternating(period_s, waits if is_given else max(0.3, waits), cap_mb_s, seed=seed)
    sums = totals(found, cap_mb_s if is_given else None)
    made, seen = account(sums), curves_of(sums).likely
    truth = Curve(made.seconds - sums.moved_bytes / MB / cap_mb_s, 0, sums.moved_bytes / MB)
    assert made.computing_s == pytest.approx(truth.rest_s, abs=0.04 * made.seconds)
    assert made.bandwidth_s == pytest.approx(made.seconds - truth.rest_s, abs=0.04 * made.seconds)
    assert seen.inflection_mb_s() == pytest.approx(truth.inflection_mb_s(), rel=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_where_the_scheduler_counts_nothing_the_error_of_so_few_moments_is_allowed_for(seed: int) -> None:
    found = [replace(moment, times=NO_TIMES) for moment in alternating(0.05, 0.3, 8.0, seed=seed)]
    made = account(totals(found, 8.0))
    assert made.latency_s <= 0.02 * made.seconds


@pytest.mark.parametrize(("period_s", "background"), [(0.05, 0.0), (0.2, 0.0), (0.2, 0.5), (1.0, 0.0), (1.0, 0.5)])
@pytest.mark.parametrize(("rate", "part"), [(1.0, "bandwidth_s"), (0.4, "latency_s")])
def test_what_moves_in_the_background_is_not_what_is_waited_for(
    period_s: float, background: float, rate: float, part: str
) -> None:
    """Rare waits beside a disk that others keep busy at half its limit."""
    found = alternating(period_s, 0.2, 10.0, rate=rate, background=background)
    made = totals(found, 10.0)
    assert getattr(account(made), part) == pytest.approx(0.2 * found[-1].at, rel=0.2)
    refined, _ = refine(made)
    assert (refined.likely.moved_bytes + refined.latency_bytes) / MB == pytest.approx(
        10 * rate * 0.2 * found[-1].at, rel=0.2
    )


# --- requests of libaio and io_uring -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stretch", "expected"),
    [
        (Stretch(10, pending=1, mb_s=99), (0, 1, 0, 0, 0)),
        (Stretch(10, pending=1, mb_s=30), (0, 0, 1, 0, 0)),
        (Stretch(10, pending=1, running=1, mb_s=50), (0.5, 0.5, 0, 0, 0)),
        (Stretch(10, unclear=1, mb_s=99), (0, 1, 0, 0, 0)),
        (Stretch(10, unclear=1, mb_s=30), (0, 0, 0, 0, 1)),
        (Stretch(10, unclear=1), (0, 0, 0, 1, 0)),
        (Stretch(10, unclear=1, running=1, mb_s=99), (1, 0, 0, 0, 0)),
    ],
    ids=["at the limit", "below it", "beside one that computes", "perhaps, at the limit", "perhaps, below it",
         "nothing moves", "perhaps, beside one that computes"],
)  # fmt: skip
def test_a_task_that_sleeps_for_its_requests_waits_for_them(stretch: Stretch, expected: tuple[float, ...]) -> None:
    assert parts(of(stretch, cap_mb_s=50.0 if stretch.running and stretch.pending else 100.0)) == expected


def test_delay_accounting_does_not_correct_waits_that_it_does_not_count() -> None:
    run = [Stretch(0.5, waiting=1, mb_s=99, delayed=0.98), Stretch(0.5, pending=1, mb_s=99)] * 10
    found = account(totals(moments(run), 100.0))
    assert not found.by_delays
    assert found.bandwidth_s == pytest.approx(10, abs=0.1)


# --- limits of cgroups -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "known", "limits", "expected"),
    [
        (1.0, None, [], None),
        (1.0, 100.0, [], 100.0),
        (1.0, None, [Limit("a", math.inf, 8.0)], 8.0),
        (1.0, 5.0, [Limit("a", math.inf, 8.0)], 5.0),
        (0.0, 100.0, [Limit("a", math.inf, 8.0)], 100.0),
        (0.5, 100.0, [Limit("a", 8.0, 8.0)], 8.0),
        (1.0, 100.0, [Limit("a/b", math.inf, 8.0), Limit("a", math.inf, 4.0)], 4.0),
    ],
    ids=["none", "the disk's", "a cgroup's", "the lower one", "of writes, for reads", "of both", "of a parent"],
)
def test_the_lowest_limit_is_in_force(
    written: float, known: float | None, limits: list[Limit], expected: float | None
) -> None:
    found = sample_of(_sampled(Stretch(1, waiting=1, mb_s=8)))
    assert found is not None
    sample = replace(found, written_bytes=int(written * found.moved_bytes))
    assert cap_in(sample, known, limits) == (expected if expected is None else pytest.approx(expected, rel=1e-6))


# --- delay accounting --------------------------------------------------------------------------------------


def test_delay_accounting_refines_what_the_samples_show() -> None:
    run = [Stretch(0.5, running=1), Stretch(0.5, waiting=1, mb_s=99, delayed=0.9)] * 10
    found = account(totals(moments(run), 100.0))
    assert found.by_delays
    assert found.bandwidth_s == pytest.approx(4.5, abs=0.12)
    assert found.computing_s == pytest.approx(5.5, abs=0.12)


def test_waits_that_delay_accounting_does_not_count_stay() -> None:
    """An fsync that waits for the journal: in state D, and nothing is counted."""
    run = [Stretch(0.1, running=1), Stretch(0.9, waiting=1, mb_s=1, request_bytes=4 * KIB, delayed=0.06)] * 10
    found = account(totals(moments(run), 100.0))
    assert not found.by_delays
    assert found.latency_s == pytest.approx(9, abs=0.15)
    assert found.uncounted_s == pytest.approx(9 - 0.54, abs=0.15)


def test_waits_that_only_delay_accounting_counts_are_told() -> None:
    """A task that sleeps for io_uring."""
    run = [Stretch(0.1, waiting=1, mb_s=99, delayed=1), Stretch(0.9, mb_s=99, delayed=1)] * 10
    found = account(totals(moments(run), 100.0))
    assert not found.by_delays
    assert found.uncounted_s == pytest.approx(-9, abs=0.15)


# --- the scheduler's times ---------------------------------------------------------------------------------


def test_waits_that_reading_cuts_short_are_as_long_as_the_scheduler_knows() -> None:
    """The samples show 36 % of waiting; the thread was on a processor for 43 % of its time."""
    found = _sampled(*[Stretch(0.64, running=1), Stretch(0.36, waiting=1, mb_s=1, request_bytes=4 * KIB)] * 10)
    sampled = ThreadTimes(ran_s=6.4, waited_s=3.6)
    found[-1] = replace(found[-1], times=Times(sampled, sampled.with_run(4.3)))
    made = account(totals(found, 100.0))
    assert made.computing_s == pytest.approx(4.3, abs=0.2)
    assert made.latency_s == pytest.approx(5.7, abs=0.2)
    assert refine(totals(found, 100.0))[0].latency_bytes / MB == pytest.approx(5.7, abs=0.2)


def test_a_parent_that_sleeps_meanwhile_changes_nothing() -> None:
    found = _sampled(*[Stretch(0.64, running=1), Stretch(0.36, waiting=1, mb_s=99)] * 10)
    child, parent = ThreadTimes(ran_s=6.4, waited_s=3.6), ThreadTimes(slept_s=10)
    times = Times(child, child.with_run(4.3)).plus(Times(parent, parent.with_run(0)))
    found[-1] = replace(found[-1], times=times)
    assert account(totals(found, None)).bandwidth_s == pytest.approx(5.7, abs=0.2)


@pytest.mark.parametrize(
    ("sampled", "ran_s", "expected"),
    [
        (ThreadTimes(6, 3, 1), 2, ThreadTimes(2, 6, 2)),
        (ThreadTimes(6, 3, 1), 12, ThreadTimes(10, 0, 0)),
        (ThreadTimes(6, 0, 0), 2, ThreadTimes(6, 0, 0)),
        (ThreadTimes(0, 0, 4), 0, ThreadTimes(0, 0, 4)),
    ],
    ids=["divided as sampled", "not more than its life", "never seen off a processor", "asleep"],
)
def test_what_a_thread_did_not_run_is_divided_as_its_samples_are(
    sampled: ThreadTimes, ran_s: float, expected: ThreadTimes
) -> None:
    assert sampled.with_run(ran_s) == expected


def test_a_task_that_is_never_met_on_a_processor_computes_as_long_as_the_scheduler_knows() -> None:
    found = _sampled(Stretch(10, waiting=1, mb_s=99))
    sampled = ThreadTimes(waited_s=10)
    found[-1] = replace(found[-1], times=Times(sampled, sampled.with_run(1.0), queued_s=0.8))
    made = account(totals(found, None))
    assert made.bandwidth_s == pytest.approx(9, abs=0.1)
    assert made.computing_s == pytest.approx(0.2, abs=0.02)


def test_a_second_in_which_a_program_begins_is_not_below_the_limit_because_earlier_ones_are_corrected_in_it() -> None:
    """It computes for a quarter of it, and the scheduler shows more waiting of the time before."""
    found = _sampled(Stretch(0.26, running=1), Stretch(0.74, waiting=1, mb_s=99))
    times = Times(ThreadTimes(ran_s=0.26, waited_s=0.74), ThreadTimes(ran_s=0.26, waited_s=1.3))
    found[-1] = replace(found[-1], times=times)
    assert account(totals(found, 100.0)).latency_s == 0


def test_time_in_the_run_queue_is_none_of_computing() -> None:
    found = _sampled(Stretch(10, running=1))
    found[-1] = replace(found[-1], times=Times(ThreadTimes(ran_s=10), ThreadTimes(ran_s=10), queued_s=9.1))
    made = account(totals(found, 100.0))
    assert made.queue_s == pytest.approx(9.1, abs=0.1)
    assert made.computing_s == pytest.approx(0.9, abs=0.1)


# --- always ------------------------------------------------------------------------------------------------


SPENT = st.builds(ThreadTimes, st.floats(0, 5), st.floats(0, 5), st.floats(0, 5))


@given(st.lists(STRETCHES, min_size=1, max_size=8), CAPS, st.booleans(), SPENT, st.floats(0, 9))
@example([Stretch(1, waiting=1, mb_s=9)], None, True, ThreadTimes(5e-324, 5, 5), 9)
@example([Stretch(1, waiting=1, mb_s=9)], None, True, ThreadTimes(5, 5e-324, 0), 1)
def test_the_parts_are_all_of_the_time(
    run: list[Stretch], cap_mb_s: float | None, is_on: bool, sampled: ThreadTimes, ran_s: float
) -> None:
    found = moments(run) if is_on else _sampled(*run)
    found[-1] = replace(found[-1], times=Times(sampled, sampled.with_run(ran_s)))
    sums = totals(found, cap_mb_s)
    made = account(sums)
    every = (
        made.computing_s, made.queue_s, made.bandwidth_s, made.latency_s, made.elsewhere_s, made.unknown_s,
    )  # fmt: skip
    assert min(every) >= 0
    assert sum(every) == pytest.approx(made.seconds, rel=1e-6, abs=1e-9)
    assert sum(sums.classes) == pytest.approx(sums.seconds)
    assert made.asleep_s <= made.elsewhere_s + 1e-9


@given(st.lists(STRETCHES, min_size=1, max_size=8))
def test_the_likely_waiting_is_between_its_bounds(run: list[Stretch]) -> None:
    sample = sample_of(moments(run))
    assert sample is not None
    least, likely, most, asleep, unclear = sample.spent
    assert least <= likely + 1e-9 <= most + 2e-9
    assert most + asleep + unclear <= sample.seconds + 1e-9
    assert max(sample.rates) * sample.waits_share * sample.seconds <= sample.moved_bytes + 1


@given(st.lists(STRETCHES, min_size=1, max_size=8), CAPS)
def test_one_task_leaves_no_bounds_open(run: list[Stretch], cap_mb_s: float | None) -> None:
    single = [replace(s, running=int(not s.waiting % 2), waiting=s.waiting % 2, pending=0, unclear=0) for s in run]
    sample = sample_of(moments(single))
    assert sample is not None
    assert sample.spent.least == pytest.approx(sample.spent.likely) == pytest.approx(sample.spent.most)


def test_counters_that_begin_again_are_not_negative() -> None:
    found = _sampled(Stretch(1, waiting=1, mb_s=99))
    back = [*found, replace(found[0], at=found[-1].at + 0.02)]
    sample = sample_of(back)
    assert sample is not None
    assert sample.moved_bytes == 0
    assert min(sample.rates) >= 0
    assert sample.spent.likely == pytest.approx(sample.seconds)


def test_nothing_is_an_account_too() -> None:
    assert sample_of([]) is None
    assert sample_of(moments([Stretch(0.02)])) is None
    assert account(Totals()).seconds == 0
