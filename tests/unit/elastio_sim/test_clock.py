"""Simulated time."""

from __future__ import annotations

import pytest

from elastio_sim.clock import SimClock


def test_time_moves_only_when_advanced_and_the_time_of_day_may_step() -> None:
    clock = SimClock(now=5.0, wall=100.0)
    clock.advance(2.5)
    assert (clock.now(), clock.wall(), clock.elapsed()) == (7.5, 102.5, 2.5)
    clock.jump_wall(-50.0)
    assert (clock.now(), clock.wall(), clock.elapsed()) == (7.5, 52.5, 2.5)


def test_a_reboot_starts_now_again_and_leaves_elapsed_alone() -> None:
    clock = SimClock()
    clock.advance(300.0)
    clock.reboot(now=10.0)
    clock.advance(1.0)
    assert (clock.now(), clock.elapsed()) == (11.0, 301.0)


def test_time_never_goes_back() -> None:
    clock = SimClock()
    clock.advance(2.0)
    with pytest.raises(ValueError, match=r"1\.0"):
        clock.advance(-1.0)
    with pytest.raises(ValueError, match=r"1\.0"):
        clock.advance_to(1.0)
