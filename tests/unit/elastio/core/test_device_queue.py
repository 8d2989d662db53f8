"""How long a request may take before a queue stands at the device; what is drained is in `test_division`."""

from __future__ import annotations

from functools import partial

import pytest

from elastio.core.device_queue import LEAST_S, NO_QUEUE, REFILL, TURN_S, DeviceQueue

TURN = partial(DeviceQueue.turn, needed_s=0.0, is_limited=True, is_loose=False, is_full=True)


def after(*took_s: float) -> DeviceQueue:
    """After turns in which a request took so long."""
    queue = NO_QUEUE
    for request_s in took_s:
        queue = TURN(queue, request_s)
    return queue


def test_what_requests_took_when_they_took_least_is_forgotten_slowly() -> None:
    assert after(*(0.05,) * 10).is_there
    assert not after(*(0.05,) * 100).is_there
    assert after(*(0.05,) * 100, 0.001, 0.05).is_there


def test_a_queue_that_grows_at_a_device_that_gives_two_percent_less_is_not_taken_to_be_usual() -> None:
    """Each turn leaves 2 % of it at the device, until all that is in flight stands there, after a minute."""
    assert after(*(0.02 * TURN_S * turn for turn in range(40, 240)), *(1.2,) * 50).is_there


@pytest.mark.parametrize("before_s", [0.0, 0.000_001, LEAST_S])
def test_no_device_is_taken_to_be_faster_than_any_is(before_s: float) -> None:
    """A turn without requests says nothing."""
    assert not after(before_s, 2 * LEAST_S).is_there
    assert after(before_s, 2.1 * LEAST_S).is_there


def test_a_turn_without_requests_leaves_what_is_known_of_a_slow_device() -> None:
    assert not after(*(0.05,) * 100, 0.0, 0.05).is_there


@pytest.mark.parametrize(
    ("took_s", "is_loose", "drains"), [(0.03, True, REFILL), (0.03, False, 0.0), (0.05, True, 0.0), (0.05, False, 0.0)]
)
def test_under_loose_limits_only_a_queue_that_is_to_be_drained_keeps_limits_from_being_lower_later(
    took_s: float, drains: float, *, is_loose: bool
) -> None:
    assert TURN(DeviceQueue(drains=0.0), took_s, is_loose=is_loose).drains == drains


@pytest.mark.parametrize(("is_full", "is_there"), [(True, True), (False, False)])
def test_the_queue_of_a_load_that_nobody_limits_on_a_full_device_is_not_taken_to_be_usual(
    *, is_full: bool, is_there: bool
) -> None:
    queue = NO_QUEUE
    for _ in range(200):
        queue = TURN(queue, 0.05, is_limited=False, is_full=is_full)
    assert TURN(queue, 0.05).is_there is is_there
