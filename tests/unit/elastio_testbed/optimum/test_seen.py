"""What the simulated agent could know of its load."""

from __future__ import annotations

import math
from collections.abc import Iterable

from elastio.core.forecast import Burst
from elastio.core.hindsight import PastLoad
from elastio.core.model import Rates, Sample
from elastio.core.state import LoadWatch
from elastio.units import MB
from elastio_testbed.optimum.seen import FIRST_GUESS, Seen

QUIET, HIGH = 0.0, 100.0


def seen(samples: Iterable[tuple[float, float]], backing_mb_s: float = 100.0) -> Seen:
    """One sample each second: (MB/s written, MB/s that the device offers). Each is looked at twice."""
    found, written = Seen(backing_mb_s), 0
    above: float | None = None
    below: float | None = 0.0
    for at, (rate, offered) in enumerate(samples, 1):
        written += int(rate * MB)
        if rate >= 30:
            above, below = (at - 1.0 if above is None else above), None
        else:
            above, below = None, (at - 1.0 if below is None else below)
        for _ in range(2):
            found.note(LoadWatch(above, below), written, Sample(at, 1.0, Rates(0.0, rate)), offered)
    return found


def test_a_burst_is_noted_with_its_begin_end_and_bytes() -> None:
    found = seen([(0, 100), (0, 100), (100, 100), (100, 100), (100, 100), (0, 100), (0, 100)])
    assert found.bursts == [Burst(2.0, 5.0, 300 * MB)]


def test_a_gap_begins_when_the_last_burst_would_be_flushed() -> None:
    found = seen([(0, 50), *[(100, 50)] * 4, *[(0, 50)] * 20, (100, 50)], backing_mb_s=50)
    assert found.gaps_s == [12.0], "8 of 20 s are the flush of 400 MB"


def test_an_application_slower_than_the_device_has_a_rate_of_its_own() -> None:
    fast = [(100, 100)] * 4 + [(150, 400)] * 4
    assert seen([(0, 100), *fast, (0, 400)]).rates_mb_s == [150]
    assert seen([(0, 100), *[(100, 100)] * 4, *[(390, 400)] * 4, (0, 400)]).rates_mb_s == [math.inf]


def test_samples_in_which_the_cache_came_or_the_burst_ended_say_nothing_of_the_rate() -> None:
    assert seen([(0, 100), *[(100, 100)] * 4, (150, 400), (0, 400)]).rates_mb_s == [math.inf]
    assert seen([(0, 100), *[(100, 100)] * 4, (150, 400), (390, 400), (0, 400)]).rates_mb_s == [math.inf]


def test_the_last_pause_is_taken_as_the_median_one() -> None:
    assert seen([(0, 100)]).past() == FIRST_GUESS
    one = [(100, 100)] * 2
    found = seen([(0, 100), *one, *[(0, 100)] * 5, *one, *[(0, 100)] * 9, *one, (0, 100)])
    assert [p.pause_s for p in found.past()] == [5, 9, 7]
    assert found.past()[0] == PastLoad(200, math.inf, 5)
