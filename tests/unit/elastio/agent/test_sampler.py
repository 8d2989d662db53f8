"""Throughput from cumulative counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from elastio.agent.sampler import Sampler
from elastio.core.model import HostView, Rates, Sample
from tests.values import present

MB = 10**6


class Scripted:
    """Counters that show one prepared reading after the other."""

    def __init__(self, *readings: Mapping[str, tuple[int, int]]) -> None:
        self._readings = list(readings)

    def follow(self, view: HostView) -> None:
        """Names are fixed."""

    def read(self) -> Mapping[str, tuple[int, int]]:
        return self._readings.pop(0)


def test_a_sample_is_the_difference_of_two_readings() -> None:
    sampler = Sampler(
        Scripted(
            {"adaptive": (1 * MB, 10 * MB), "backing": (0, 0), "cache": (5 * MB, 5 * MB)},
            {"adaptive": (2 * MB, 70 * MB), "backing": (4 * MB, 2 * MB), "cache": (5 * MB, 65 * MB)},
        ),
        1.0,
    )
    assert sampler.take(10.0) is None
    plain = Sample(12.0, 2.0, Rates(0.5, 30.0), Rates(2.0, 1.0), Rates(0.0, 30.0))
    assert sampler.take(12.0) == replace(plain, recent=plain)


def test_the_recent_past_is_three_seconds() -> None:
    written = (0, 9, 10, 12, 15)
    sampler = Sampler(Scripted(*({"adaptive": (0, n * MB), "requests": (n, 2 * n)} for n in written)), 1.0)
    found = [sampler.take(float(second)) for second in range(len(written))]
    recent = present(present(found[-1]).recent)
    assert (recent.seconds, recent.adaptive) == (3.0, Rates(0.0, 2.0))
    assert recent.cache_iops == pytest.approx((2.0, 4.0))
    assert present(found[-1]).cache_iops == pytest.approx((3.0, 6.0))


@pytest.mark.parametrize(
    ("requests", "seconds"),
    [((4, 4, 4, 4), 3.0), ((4, 4, 4, 5), 3.0), ((4, 4, 4, 7), 1.0), ((4, 4, 7, 7), 2.0), ((9, 9, 4, 4), 2.0)],
)
def test_the_recent_past_is_of_one_kind_of_load(requests: tuple[int, ...], seconds: float) -> None:
    """By requests for a MB of applications, which move as much in each second."""
    seen = [sum(requests[:count]) for count in range(len(requests) + 1)]
    readings = [{"adaptive": (0, n * MB), "requests": (0, count)} for n, count in enumerate(seen)]
    sampler = Sampler(Scripted(*readings), 1.0)
    found = [sampler.take(float(second)) for second in range(len(readings))]
    assert present(present(found[-1]).recent).seconds == seconds


def test_a_quiet_second_is_of_any_kind() -> None:
    readings = [{"adaptive": (0, n * MB), "requests": (0, 4 * n + (n > 0))} for n in (0, 0, 1, 2)]
    sampler = Sampler(Scripted(*readings), 1.0)
    found = [sampler.take(float(second)) for second in range(len(readings))]
    assert present(present(found[-1]).recent).seconds == 3.0


def test_the_recent_past_of_a_new_cache_disk_begins_with_its_second_reading() -> None:
    readings = [{"adaptive": (0, 0)}, {"adaptive": (0, 8 * MB)}]
    readings += [{"adaptive": (0, n * MB), "cache": (0, 500 + n * MB)} for n in (9, 11, 12, 13)]
    sampler = Sampler(Scripted(*readings), 1.0)
    found = [sampler.take(float(second)) for second in range(len(readings))]
    seconds = [None if each is None or each.recent is None else each.recent.seconds for each in found]
    assert seconds == [None, 1.0, None, 1.0, 2.0, 3.0]


def test_what_counts_is_shown_from_its_second_reading_on() -> None:
    readings = [{"adaptive": (0, 9 * MB)}, {"adaptive": (0, 18 * MB), "counted": (0, 5 * MB)}]
    readings += [{"adaptive": (2 * MB, 30 * MB), "counted": (1 * MB, 7 * MB)}, {"adaptive": (2 * MB, 31 * MB)}]
    sampler = Sampler(Scripted(*readings), 1.0)
    found = [sampler.take(float(second)) for second in range(4)]
    assert [None if sample is None else sample.counted for sample in found] == [None, None, Rates(1.0, 2.0), None]


def test_a_counter_that_went_back_gives_no_sample_and_then_goes_on() -> None:
    """The device stopped and started again: its counters started again from zero."""
    readings = [{"adaptive": (0, n * MB)} for n in (100, 3, 5)]
    sampler = Sampler(Scripted(*readings), 1.0)
    assert [sampler.take(t) for t in (1.0, 2.0)] == [None, None]
    sample = present(sampler.take(3.0))
    assert sample.adaptive == Rates(0.0, 2.0)


def test_a_new_cache_disk_counts_from_its_second_reading() -> None:
    sampler = Sampler(
        Scripted(
            {"adaptive": (0, 0)},
            {"adaptive": (0, 8 * MB), "cache": (0, 500 * MB)},
            {"adaptive": (0, 16 * MB), "cache": (0, 507 * MB)},
        ),
        1.0,
    )
    sampler.take(1.0)
    first, second = sampler.take(2.0), sampler.take(3.0)
    assert first is not None
    assert (first.adaptive.write_mb_s, first.cache) == (8.0, Rates())
    assert present(second).cache == Rates(0.0, 7.0)


def test_another_cache_disk_under_the_same_role_spoils_only_its_own_rate() -> None:
    sampler = Sampler(Scripted({"adaptive": (0, 0), "cache": (0, 900)}, {"adaptive": (0, MB), "cache": (0, 10)}), 1.0)
    sampler.take(1.0)
    sample = present(sampler.take(2.0))
    assert (sample.adaptive, sample.cache) == (Rates(0.0, 1.0), Rates())


def test_without_the_adaptive_device_there_is_no_sample() -> None:
    sampler = Sampler(Scripted({"backing": (0, 0)}, {"backing": (0, MB)}, {}, {"adaptive": (0, 0)}), 1.0)
    assert [sampler.take(float(t)) for t in range(4)] == [None] * 4


def test_two_readings_at_one_time_give_no_rate() -> None:
    sampler = Sampler(Scripted({"adaptive": (0, 0)}, {"adaptive": (0, MB)}), 1.0)
    sampler.take(1.0)
    assert sampler.take(1.0) is None


@pytest.mark.parametrize(
    ("interval_s", "seconds", "is_late"), [(1.0, 5.0, False), (1.0, 5.1, True), (60.0, 299.0, False)]
)
def test_a_sample_over_many_intervals_is_late(interval_s: float, seconds: float, *, is_late: bool) -> None:
    sampler = Sampler(Scripted({"adaptive": (0, 0)}, {"adaptive": (0, MB)}), interval_s)
    sampler.take(10.0)
    assert present(sampler.take(10.0 + seconds)).is_late is is_late
