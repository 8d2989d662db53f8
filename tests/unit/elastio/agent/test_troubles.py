"""What fails now, and when that is over."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pytest

from elastio.agent.troubles import PATIENCE, Troubles, no_longer_needed
from elastio.core.cycle import Backoff
from elastio.core.state import AgentState, Decision, Phase
from tests.values import cycle, present


@dataclass
class Heard:
    """A reporter that keeps what it hears."""

    said: list[tuple[str, str]] = field(default_factory=list)

    def decided(self, before: AgentState, decision: Decision, *, now: float, wall: float) -> None:
        raise AssertionError(decision)

    def failed(self, text: str, *, wall: float) -> None:
        self.said.append(("failed", text))

    def works_again(self, text: str, *, wall: float) -> None:
        self.said.append(("works", text))


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def troubles(heard: Heard) -> Troubles:
    ticks = count(100)
    return Troubles(lambda: float(next(ticks)), lambda: heard)


def test_an_error_is_told_once_and_its_end_once(troubles: Troubles, heard: Heard) -> None:
    for _ in range(3):
        troubles.failed("AttachVolume", "throttled")
    since = present(troubles.last).since_wall
    troubles.works("AttachVolume", "scan")
    troubles.works("AttachVolume")
    assert heard.said == [("failed", "throttled"), ("works", "throttled")]
    assert (since, troubles.last) == (100.0, None)


def test_another_reason_is_told_again(troubles: Troubles, heard: Heard) -> None:
    troubles.failed("scan", "one")
    troubles.failed("scan", "two")
    assert heard.said == [("failed", "one"), ("failed", "two")]


def test_the_last_of_several_is_shown_and_then_the_one_that_is_left(troubles: Troubles) -> None:
    troubles.failed("scan", "one")
    troubles.failed("journal", "two")
    assert present(troubles.last).text == "two"
    troubles.failed("scan", "one")
    assert present(troubles.last).text == "one"
    troubles.works("scan")
    assert present(troubles.last).text == "two"


def test_what_only_has_to_find_its_instant_is_an_error_when_it_does_not(troubles: Troubles, heard: Heard) -> None:
    for number in range(PATIENCE - 1):
        troubles.failed("BypassCache", f"busy for {number} s", "device.not_drained")
    assert (troubles.last, heard.said) == (None, [])
    troubles.works("BypassCache")
    assert heard.said == []
    for _ in range(PATIENCE + 2):
        troubles.failed("BypassCache", "busy", "device.not_drained")
    assert heard.said == [("failed", "busy")]


IDLE = AgentState(phase=Phase.IDLE, recovered=True)
SOURCES = ("CreateVolume", "DeleteVolume", "ListVolumes", "scan", "LimitWrites")


@pytest.mark.parametrize(
    ("state", "is_running", "over"),
    [
        (IDLE, True, ("DeleteVolume", "LimitWrites")),
        (AgentState(phase=Phase.IDLE, recovered=True, backoffs={"LimitWrites": Backoff(1)}), True, ("DeleteVolume",)),
        (IDLE, False, ()),
        (AgentState(), True, ()),
        (AgentState(phase=Phase.DETACHING, recovered=True, cycle=cycle()), True, ()),
        (AgentState(phase=Phase.BOOSTING, recovered=True, cycle=cycle()), True, ("CreateVolume",)),
    ],
)
def test_an_error_of_what_is_not_needed_is_over(state: AgentState, is_running: bool, over: tuple[str, ...]) -> None:
    assert no_longer_needed(SOURCES, state, is_running=is_running) == over


@pytest.mark.parametrize("source", ["Identify", "ListVolumes", "PollNotice", "RemoveTombstone", "TuneBacking"])
def test_what_an_agent_at_rest_does_is_needed(source: str) -> None:
    assert no_longer_needed((source,), IDLE, is_running=True) == ()
