"""The replies to requests of the control socket, from a real agent on a simulated machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio.agent.journal import Journal
from elastio.agent.request_handler import RequestHandler, decisions
from elastio.control.protocol import COMMANDS, Message
from elastio.core.actions import AttachVolume, CreateVolume
from elastio.core.model import Request, RequestKind, VolumeId, VolumeSpec
from elastio.core.policy import Policy, StopPolicy
from elastio.core.state import AgentState, Phase
from elastio_sim.faults import FaultPlan
from elastio_sim.run import Simulation
from elastio_sim.world import SimWorld
from tests.values import present

SPEC = VolumeSpec(10 * 2**30, 128.0)


class Desk:
    """Requests before an agent that has been up for some seconds, and the replies they got."""

    def __init__(self, journal: Path, faults: str = "nothing", **policy: Any) -> None:
        self.run = Simulation(SimWorld(faults=FaultPlan.parse(faults)), Policy(60.0, 128.0, **policy))
        for _ in range(10):
            self.run.step()
        assert self.run.agent is not None
        self.agent = self.run.agent
        self.requests = RequestHandler(self.agent, journal, 0.0)
        self.replies: list[tuple[str, Message]] = []

    def ask(self, command: str, **fields: Any) -> None:
        message = {"version": 1, "command": command, **fields}
        self.requests.handle(message, lambda reply: self.replies.append((command, reply)))


@pytest.fixture
def desk(journal: Journal) -> Desk:
    return Desk(journal.path)


def test_status_is_answered_at_once(desk: Desk) -> None:
    desk.ask("status")
    ((_, reply),) = desk.replies
    assert reply["ok"]
    assert reply["status"]["phase"] == "idle"


def test_status_shows_that_the_cloud_cannot_be_used_until_it_can(journal: Journal) -> None:
    desk = Desk(journal.path, "list_owned#1x2=expired")
    assert desk.requests.status().cloud_error
    desk.run.run_for(30)
    assert not desk.requests.status().cloud_error


def test_a_metadata_service_that_answers_does_not_hide_a_cloud_that_does_not(journal: Journal) -> None:
    desk = Desk(journal.path, "list_owned#1x1000=expired", notice_poll_s=0.5)
    for _ in range(40):
        desk.run.step()
        assert desk.requests.status().cloud_error


def test_a_request_is_answered_by_the_next_decision(desk: Desk) -> None:
    desk.ask("pause")
    assert desk.replies == []
    desk.agent.step()
    ((_, reply),) = desk.replies
    assert reply["ok"]
    assert desk.agent.state.paused


def test_requests_get_their_own_answers(desk: Desk) -> None:
    desk.ask("boost", size_bytes=2**60)
    desk.ask("pause")
    desk.agent.step()
    assert [(command, reply["ok"]) for command, reply in desk.replies] == [("boost", False), ("pause", True)]
    assert desk.replies[0][1]["code"] == "caps"


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"status", "why"}))
def test_every_command_of_the_protocol_is_a_request_of_the_core(command: str) -> None:
    assert RequestKind(command).value == command
    assert set(COMMANDS[command]) <= set(Request.__dataclass_fields__)


@pytest.mark.parametrize(("fields", "flushes"), [({}, True), ({"reboots": 1}, False)])
def test_a_shutdown_carries_whether_the_machine_comes_back(
    journal: Journal, fields: dict[str, int], *, flushes: bool
) -> None:
    desk = Desk(journal.path, on_shutdown=StopPolicy(True, 30.0))
    desk.ask("shutdown", **fields)
    desk.agent.step()
    assert desk.agent.state.inhibition is not None
    assert desk.agent.state.inhibition.flush is flushes


def test_a_boost_carries_its_size(desk: Desk) -> None:
    desk.ask("boost", size_bytes=3 * 2**30)
    desk.agent.step()
    assert [reply["ok"] for _, reply in desk.replies] == [True]
    cycle = desk.agent.state.cycle
    assert cycle is not None
    assert cycle.spec.size_bytes == 3 * 2**30


def test_who_asked_for_a_boost_is_kept_with_its_cycle(desk: Desk, journal: Journal) -> None:
    desk.requests = RequestHandler(desk.agent, journal.path, 0.0, lambda: 1000)
    desk.ask("boost")
    desk.agent.step()
    assert present(desk.agent.state.cycle).asked_by == 1000
    assert [r["cycle"]["asked_by"] for r in desk.run.journal.records() if r.get("cycle")][-1] == 1000


def test_the_last_error_is_in_the_status_with_its_time_until_it_is_over(journal: Journal) -> None:
    desk = Desk(journal.path, "list_owned#1x3=throttle")
    seen = desk.requests.status()
    assert seen.last_error
    assert present(seen.last_error_wall) <= seen.wall
    desk.run.run_for(60)
    seen = desk.requests.status()
    assert (seen.last_error, seen.last_error_wall) == ("", None)


# --- why ---------------------------------------------------------------------------------------------------


def decide(journal: Journal, reason: str, to: Phase = Phase.ATTACHING) -> None:
    journal.decision(Phase.IDLE, AgentState(phase=to), reason, now=1.0, wall=1001.0)


def test_a_decision_shows_the_first_action_that_followed(journal: Journal) -> None:
    state = AgentState()
    decide(journal, "the load is high")
    journal.intend(CreateVolume("token", SPEC, SPEC.size_bytes), state, now=2.0, wall=1002.0)
    journal.intend(AttachVolume(VolumeId("vol-1")), state, now=3.0, wall=1003.0)
    decide(journal, "cache attached", Phase.BOOSTING)
    assert decisions(journal.path, 20) == [
        {"wall": 1001.0, "from": "idle", "to": "attaching", "reason": "the load is high", "action": "CreateVolume"},
        {"wall": 1001.0, "from": "idle", "to": "boosting", "reason": "cache attached", "action": ""},
    ]


def test_only_the_last_decisions_are_returned_oldest_first(journal: Journal, desk: Desk) -> None:
    for number in range(30):
        decide(journal, str(number))
    assert [d["reason"] for d in decisions(journal.path, 3)] == ["27", "28", "29"]
    desk.ask("why")
    desk.ask("why", count=2)
    default, some = (reply for _, reply in desk.replies)
    assert [d["reason"] for d in default["decisions"]] == [str(n) for n in range(10, 30)]
    assert [d["reason"] for d in some["decisions"]] == ["28", "29"]


def test_an_action_before_the_first_decision_belongs_to_none(journal: Journal) -> None:
    journal.intend(AttachVolume(VolumeId("vol-1")), AgentState(), now=1.0, wall=2.0)
    decide(journal, "later")
    assert [d["action"] for d in decisions(journal.path, 20)] == [""]


def test_without_a_journal_there_are_no_decisions(tmp_path: Path) -> None:
    assert decisions(tmp_path / "gone.jsonl", 20) == []


def test_decisions_before_a_rotation_are_returned(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elastio.agent.journal.ROTATE_BYTES", 2000)
    for number in range(10):
        decide(journal, str(number))
        if journal.path.with_suffix(".old").exists():
            break
    last = number
    decide(journal, str(last + 1))
    assert [d["reason"] for d in decisions(journal.path, 4)] == [str(n) for n in range(last - 2, last + 2)]
    assert [d["reason"] for d in decisions(journal.path, 1)] == [str(last + 1)]


def test_an_interrupted_rotation_returns_no_decision_twice(journal: Journal) -> None:
    """Both names are links to one file then."""
    for number in range(3):
        decide(journal, str(number))
    journal.path.with_suffix(".old").hardlink_to(journal.path)
    assert [d["reason"] for d in decisions(journal.path, 20)] == ["0", "1", "2"]
