"""`boost`, `flush`, `pause`, `resume` and `why` against a control server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted, refused
from elastio.control.status import Status
from elastio.core.state import Phase
from elastio.units import GIB, MIB
from elastio_cli.app import App

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import LEAST, UUID
from .test_status import CYCLE

IDLE = published(standing(Phase.IDLE))
ATTACHING = published(standing(Phase.ATTACHING, cycle=CYCLE, waiting_for="the cloud to create the volume"))
BOOSTING = published(standing(Phase.BOOSTING, cycle=CYCLE))
DETACHING = published(standing(Phase.DETACHING, cycle=CYCLE))
FAULTED = published(standing(Phase.FAULTED, fault="the cache is missing"))


def flushing(dirty_bytes: int) -> Status:
    return published(standing(Phase.FLUSHING, cycle=CYCLE), dirty_bytes=dirty_bytes)


@pytest.mark.parametrize("command", ["boost", "flush", "pause", "resume"])
def test_prints_the_reply_of_the_agent(command: str, agent: FakeAgent, elastio: Shell) -> None:
    agent.replies[command] = accepted("as you wish")
    result = elastio(command)
    assert (result.exit_code, result.stdout) == (0, "as you wish\n")
    assert agent.asked == [{"version": 1, "command": command}]


@pytest.mark.parametrize("command", ["boost", "flush", "pause", "resume", "why", "unquiesce"])
def test_a_refusal_is_one_sentence_and_exit_code_5(command: str, agent: FakeAgent, elastio: Shell) -> None:
    agent.replies[command] = refused("the cap of 3 boosts a day is reached")
    result = elastio(command)
    assert result.exit_code == Exit.REFUSED
    assert (result.stdout, result.stderr) == ("", "elastio: the cap of 3 boosts a day is reached\n")


def test_boost_sends_the_size_in_bytes(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["boost"] = accepted("buying")
    assert elastio("boost", "--size", "1.5").exit_code == 0
    assert agent.asked[0]["size_bytes"] == 3 * GIB // 2


@pytest.mark.parametrize(
    "args",
    ["boost --size 0", "boost --size -1", "boost --size big", "boost --timeout 5", "flush --timeout 5", "why -n 201"],
)
def test_wrong_usage_asks_for_nothing(args: str, agent: FakeAgent, elastio: Shell) -> None:
    assert elastio(*args.split()).exit_code == Exit.USAGE
    assert agent.asked == []


@pytest.mark.parametrize(
    ("args", "statuses", "code", "shown"),
    [
        ("boost --wait", [ATTACHING, ATTACHING, BOOSTING], Exit.OK, "boost_wait.txt"),
        ("boost --wait", [ATTACHING, IDLE], Exit.FAILED, "boost_failed.txt"),
        ("boost --wait --timeout 0.05", [ATTACHING], Exit.TIMED_OUT, "boost_timed_out.txt"),
        ("flush --wait", [flushing(2 * GIB), flushing(512 * MIB), DETACHING, IDLE], Exit.OK, "flush_wait.txt"),
        ("flush --wait --timeout 0", [flushing(512 * MIB)], Exit.TIMED_OUT, "flush_timed_out.txt"),
        ("flush --wait", [FAULTED], Exit.FAILED, "flush_faulted.txt"),
    ],
    ids=["attached", "given up", "boost times out", "volume is gone", "flush times out", "faulted"],
)
def test_waits_for_the_end_and_prints_what_happened(
    args: str, statuses: list[Status], code: Exit, shown: str, agent: FakeAgent, elastio: Shell, golden: Golden
) -> None:
    agent.replies = {
        "boost": accepted("buying a cache of 10.0 GiB"),
        "flush": accepted("flushing"),
        "why": accepted(decisions=[{"reason": "the account's quota of volumes is used up"}]),
    }
    agent.statuses = [*statuses]
    result = elastio(*args.split())
    assert (result.exit_code, len(agent.statuses)) == (code, 1)
    golden(shown, result.stdout if code is Exit.OK else result.stderr)


DECISIONS = [
    {
        "wall": 1_790_000_000.0,
        "from": "idle",
        "to": "attaching",
        "reason": "utilization 84 %",
        "action": "CreateVolume",
    },
    {"wall": 1_790_000_004.2, "from": "attaching", "to": "boosting", "reason": "cache attached", "action": ""},
    {"wall": 1_790_000_064.0, "from": "boosting", "to": "boosting", "reason": "an operator asked", "seq": 9},
]


def test_why_prints_one_decision_a_line(agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    agent.replies["why"] = accepted(decisions=DECISIONS)
    golden("why.txt", elastio("why", "-n", "3").stdout)
    assert agent.asked == [{"version": 1, "command": "why", "count": 3}]


def test_why_json_is_the_records(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["why"] = accepted(decisions=DECISIONS)
    assert json.loads(elastio("why", "--json").stdout) == DECISIONS


def test_why_before_the_first_decision(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["why"] = accepted(decisions=[])
    assert elastio("why").exit_code == Exit.OK
    assert json.loads(elastio("why", "--json").stdout) == []


def test_finds_the_socket_that_the_configuration_names(agent: FakeAgent, tmp_path: Path) -> None:
    config = tmp_path / "named.toml"
    config.write_text(f'{LEAST}[agent]\nsocket = "{agent.path}"\n[caps]\nshared = true\nmax_boosts_per_day = 1\n')
    agent.replies["pause"] = accepted("paused")
    assert Shell(App(config_path=config))("pause").stdout == "paused\n"
    # The agent runs although another configuration keeps the shared caps in another place.
    beside = LEAST.replace(UUID, UUID.replace("0", "1")) + '[agent]\nstate_dir = "/srv/other"\n[caps]\nshared = true\n'
    (tmp_path / "beside.toml").write_text(beside)
    assert Shell(App(config_path=config))("pause", "--device", "named").stdout == "paused\n"
