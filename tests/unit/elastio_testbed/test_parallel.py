from __future__ import annotations

import threading

import pytest

from elastio_testbed.parallel import CancelledError, Job, run_in_parallel
from elastio_testbed.polling import until

LONG_S = 60.0


class BootError(Exception):
    """What a job raises."""


def until_cancelled(ended: list[str]) -> Job:
    def run(cancelled: threading.Event) -> None:
        if cancelled.wait(LONG_S):
            ended.append("cancelled")
            raise CancelledError

    return Job(0.0, run)


def test_all_jobs_run_at_the_same_time_and_to_their_end() -> None:
    meeting = threading.Barrier(2)
    met: list[int] = []
    run_in_parallel([Job(0.0, lambda _: met.append(meeting.wait(LONG_S))) for _ in range(2)], LONG_S, LONG_S)
    assert sorted(met) == [0, 1]


def test_the_first_failure_cancels_the_others_and_is_raised_and_no_job_starts_after_it() -> None:
    ended: list[str] = []

    def fail(_: threading.Event) -> None:
        raise BootError

    late = Job(LONG_S, lambda _: ended.append("late"))
    with pytest.raises(BootError):
        run_in_parallel([until_cancelled(ended), late, Job(0.0, fail)], LONG_S, LONG_S)
    assert ended == ["cancelled"]


def test_a_timeout_is_an_error_and_cancels() -> None:
    ended: list[str] = []
    with pytest.raises(TimeoutError):
        run_in_parallel([until_cancelled(ended)], 0.01, LONG_S)
    assert ended == ["cancelled"]


def test_a_poll_ends_with_its_condition_or_after_its_timeout() -> None:
    answers = iter([False, False, True])
    assert until(lambda: next(answers), LONG_S, 0.001)
    assert list(answers) == []
    assert not until(lambda: False, 0.0, 0.001)
