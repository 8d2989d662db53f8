"""What the governor made of a boost, from rates that were recorded beside the agent."""

from __future__ import annotations

from elastio_testbed.governed import Governed, governed, intervals_of, mean, sampling_s

SECONDS = [float(t) for t in range(100)]
# A boost from 10 on, a dump that ends at 20, phase 2 from 30 on, clean at 50.
APPLICATION = [(t, 64.0 if 10 < t <= 20 else 4.0) for t in SECONDS]
BACKING = [(t, 15.0 if 20 < t <= 30 else 16.5 if 30 < t <= 50 else 1.0) for t in SECONDS]
INTERVALS = [(5.0, 10.0, "attaching"), (10.0, 30.0, "boosting"), (30.0, 50.0, "flushing"), (50.0, 52.0, "detaching")]
DUMPS = [{"began": 4.0, "ended": 20.0}]


def test_a_boost_is_measured_in_its_three_parts() -> None:
    found = governed(APPLICATION, BACKING, INTERVALS, DUMPS, 16.5)
    assert found == {10.0: Governed(burst_mb_s=64.0, resting_share=round(15 / 16.5, 3), flushing_share=1.0)}


def test_a_boost_without_the_end_of_a_dump_says_nothing_of_it() -> None:
    found = governed(APPLICATION, BACKING, INTERVALS, [], 16.5)
    assert found[10.0] == Governed(None, None, 1.0)


def test_a_boost_that_was_not_flushed_says_nothing_of_phase_2() -> None:
    found = governed(APPLICATION, BACKING, INTERVALS[:2], DUMPS, 16.5)
    assert found[10.0].flushing_share is None


def test_too_few_samples_are_no_mean() -> None:
    assert mean(APPLICATION, 10.0, 12.0) == 64.0
    assert mean(APPLICATION, 10.0, 11.0) is None


def test_phases_last_until_the_next_one() -> None:
    decisions = [
        {"from": "idle", "to": "attaching", "wall": 1.0},
        {"from": "attaching", "to": "attaching", "wall": 2.0},
        {"from": "attaching", "to": "boosting", "wall": 3.0},
    ]
    assert intervals_of(decisions, 9.0) == [(1.0, 3.0, "attaching"), (3.0, 9.0, "boosting")]


# Samples that end at 1, 2, 3 ... s; the load begins within the one that ends at 12.
LOADED = [(t, 16.5 if t >= 12 else 0.4) for t in SECONDS]


def test_sampling_takes_from_the_first_sample_of_the_load_to_the_decision() -> None:
    assert sampling_s(LOADED, 13.25, 16.5) == 2.25
    assert sampling_s(LOADED, 11.5, 16.5) == 0.5


def test_an_earlier_load_is_not_the_one_that_was_decided_for() -> None:
    earlier = [(t, 16.5 if t <= 5 or t >= 12 else 0.4) for t in SECONDS]
    assert sampling_s(earlier, 13.25, 16.5) == 2.25


def test_a_decision_without_a_load_was_not_sampled_for() -> None:
    assert sampling_s(LOADED, 9.5, 16.5) is None
    assert sampling_s([], 9.5, 16.5) is None


def test_a_boost_knows_what_sampling_took_before_it() -> None:
    found = governed(LOADED, BACKING, [(13.25, 16.0, "attaching"), (16.0, 30.0, "boosting")], DUMPS, 16.5)
    assert found[16.0].sampling_s == 2.25
