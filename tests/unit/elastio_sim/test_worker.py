"""A simulated worker does a job at once and delivers its result later."""

from __future__ import annotations

import math

import pytest

from elastio.errors import InvariantError, TransientError
from elastio_sim.clock import SimClock, SimWorker
from elastio_sim.faults import FaultPlan
from elastio_sim.world import SimWorld
from tests.values import present


def worker_of(seconds: float, clock: SimClock, done: list[str]) -> SimWorker[str, str]:
    def execute(job: str) -> str:
        done.append(job)
        return f"{job} done"

    return SimWorker(execute, clock, lambda _: seconds, lost=lambda job, s: f"{job} lost after {s:g}")


def test_a_result_arrives_when_its_time_is_over_and_once() -> None:
    clock, done = SimClock(), list[str]()
    worker = worker_of(2.0, clock, done)
    worker.submit("a", 10.0)
    assert (worker.busy, worker.poll(), done, worker.next_event_at()) == (True, None, ["a"], clock.now() + 2.0)
    clock.advance(2.0)
    assert (worker.poll(), worker.poll(), worker.busy, worker.next_event_at()) == ("a done", None, False, None)


def test_a_job_that_takes_too_long_is_lost_at_its_time_out() -> None:
    clock, done = SimClock(), list[str]()
    worker = worker_of(math.inf, clock, done)
    worker.submit("a", 10.0)
    clock.advance(9.9)
    assert worker.poll() is None
    clock.advance(0.1)
    assert worker.poll() == "a lost after 10"
    assert done == ["a"]


def test_without_a_way_to_tell_a_lost_job_raises() -> None:
    clock = SimClock()
    worker: SimWorker[str, str] = SimWorker(str, clock, lambda _: math.inf)
    worker.submit("a", 1.0)
    clock.advance(1.0)
    with pytest.raises(TimeoutError):
        worker.poll()
    assert not worker.busy


def test_what_the_work_raised_comes_out_of_poll_in_time() -> None:
    clock = SimClock()

    def fail(job: str) -> str:
        raise TransientError(job)

    worker: SimWorker[str, str] = SimWorker(fail, clock, lambda _: 1.0)
    worker.submit("a", 5.0)
    assert worker.poll() is None
    clock.advance(1.0)
    with pytest.raises(TransientError):
        worker.poll()


def test_a_busy_worker_accepts_no_job_and_an_abandoned_one_drops_its_job() -> None:
    clock, done = SimClock(), list[str]()
    worker = worker_of(2.0, clock, done)
    worker.submit("a", 10.0)
    with pytest.raises(InvariantError):
        worker.submit("b", 10.0)
    worker.abandon()
    clock.advance(5.0)
    assert (worker.poll(), worker.busy, done) == (None, False, ["a"])


def test_a_job_takes_what_its_calls_take_together() -> None:
    world = SimWorld(faults=FaultPlan.parse("list_owned#2=hang"))

    def job(name: str) -> str:
        world.provider.list_owned()
        world.host.scan(())
        return name

    worker = world.worker(job, lost=lambda name, _: f"{name} lost")
    worker.submit("a", 10.0)
    due = present(worker.next_event_at())
    assert due - world.clock.now() == pytest.approx(world.provider.calls.seconds + world.host.calls.seconds)
    world.advance(1.0)
    assert worker.poll() == "a"
    worker.submit("b", 10.0)
    world.advance(10.0)
    assert worker.poll() == "b lost"
    worker.submit("c", 10.0)
    world.advance(1.0)
    assert worker.poll() == "c"
