"""Questions that nobody can answer, and waits that Ctrl-C ends: what is said, and what the agent does."""

from __future__ import annotations

import signal

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.control.status import Status
from elastio.core.model import VolumeState
from elastio.core.state import Phase
from elastio.errors import ElastioError

from .conftest import FakeAgent, Shell, published, standing
from .test_operate import OPEN, a_cycle, commands, flushing, waiting

LOST = waiting(running=False, state=VolumeState.GONE)
ATTACHING = published(standing(Phase.ATTACHING, cycle=a_cycle()))


@pytest.mark.parametrize(
    "line",
    [
        ("resume", "--accept-data-loss"),
        ("recover", "--accept-data-loss"),
        ("recover", "--foreign", "vol-7", "--accept-data-loss"),
    ],
)
def test_a_loss_that_nobody_can_accept_is_refused_in_a_line_that_names_yes(
    line: tuple[str, ...], agent: FakeAgent, elastio: Shell
) -> None:
    agent.statuses = [LOST]
    done = elastio(*line)
    assert (done.exit_code, done.stderr.count("\n"), "--yes" in done.stderr) == (Exit.FAILED, 1, True)
    assert set(commands(agent)) <= {"status"}


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize(
    ("line", "statuses"),
    [
        (("flush", "--wait"), [flushing()]),
        (("quiesce",), [OPEN, flushing()]),
        (("shutdown",), [flushing()]),
        (("boost", "--wait"), [ATTACHING]),
        (("gc",), [ATTACHING, published(standing(Phase.IDLE))]),
        (("recover",), [waiting(running=False)]),
        (("recover", "--foreign", "vol-7"), [waiting(running=False)]),
    ],
)
def test_ctrl_c_while_the_agent_works_says_what_goes_on(
    line: tuple[str, ...],
    statuses: list[Status],
    agent: FakeAgent,
    elastio: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    agent.statuses = statuses
    agent.replies = {name: accepted("yes") for name in ("flush", "quiesce", "unquiesce", "boost", "gc", "recover")}
    agent.replies["shutdown"] = accepted("flushing")
    monkeypatch.setattr("elastio_cli.app.time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    monkeypatch.setattr(ElastioError, "__str__", lambda error: error.code)
    done = elastio(*line)
    assert (done.exit_code, done.stderr.split()[-1]) == (Exit.FAILED, "interrupted")
