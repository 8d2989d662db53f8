"""`elastio status --check`: one line, and an exit code for each situation."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.control.check import FAILURES, STALE_S, check, unanswered
from elastio.control.exit_codes import Exit
from elastio.control.protocol import UnreachableError
from elastio.control.status import PurchasesPart, Status, VolumePart
from elastio.errors import ControlError
from elastio_cli.status import rows

from .conftest import FakeAgent, Golden, Shell
from .test_status import SITUATIONS

IDLE = SITUATIONS["idle"]
KEPT = VolumePart("vol-9", "available", 2**30, "dirty", kept=True)
OWN = replace(KEPT, kept=False)
CHECKED: dict[str, Status] = {
    **{name: SITUATIONS[name] for name in ("idle", "boosting", "flushing", "paused", "quiesced", "just_started")},
    "thrifty": SITUATIONS["thrifty"],
    "stopped": SITUATIONS["stopped"],
    "unknown_spend": SITUATIONS["unknown_spend"],
    "faulted": SITUATIONS["faulted"],
    "kept": replace(IDLE, owned=(KEPT,)),
    "several": replace(IDLE, owned=(KEPT,), cloud_error="throttled | again\nand again"),
}


def test_prints_one_line_for_each_situation(agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    printed = []
    for name, status in CHECKED.items():
        agent.statuses = [status]
        result = elastio("status", "--check")
        assert result.stdout.count("\n") == 1
        assert result.stdout.count("|") == 1
        printed.append(f"{name}: {result.exit_code} {result.stdout}")
    golden("status_check.txt", "".join(printed))


@pytest.mark.parametrize(
    ("changes", "exit"),
    [
        ({}, Exit.OK),
        ({"paused": True}, Exit.OK),
        ({"owned": (OWN,)}, Exit.OK),
        ({"restraint": "useless boosts"}, Exit.OK),
        ({"purchases": PurchasesPart(failures=FAILURES - 1, capped=9, declined=9)}, Exit.OK),
        ({"purchases": PurchasesPart(failures=FAILURES)}, Exit.DEGRADED),
        ({"purchases": PurchasesPart(stopped=True)}, Exit.DEGRADED),
        ({"owned": (KEPT,)}, Exit.DEGRADED),
        ({"recovered": False}, Exit.DEGRADED),
        ({"capped": "a cap has ended a boost"}, Exit.DEGRADED),
        ({"cloud_error": "throttled"}, Exit.DEGRADED),
        ({"spend": replace(IDLE.spend, known=False)}, Exit.DEGRADED),
        ({"agent": replace(IDLE.agent, host_responsive=False)}, Exit.DEGRADED),
        ({"load": replace(IDLE.load, sampled_wall=None)}, Exit.DEGRADED),
        ({"load": replace(IDLE.load, sampled_wall=IDLE.wall - STALE_S)}, Exit.OK),
        ({"load": replace(IDLE.load, sampled_wall=IDLE.wall - STALE_S - 1)}, Exit.DEGRADED),
        ({"fault": "the cache is missing", "owned": (KEPT,)}, Exit.FAULTED),
    ],
)
def test_the_exit_code_says_whether_somebody_has_to_look(changes: dict[str, object], exit: Exit) -> None:
    assert check(replace(IDLE, **changes)).exit is exit  # type: ignore[arg-type]


def test_an_agent_that_does_not_answer_is_one_line_of_its_own(elastio: Shell) -> None:
    result = elastio("status", "--check")
    assert (result.exit_code, result.stderr) == (Exit.UNREACHABLE, "")
    assert result.stdout.startswith("elastio CRITICAL: ")


@pytest.mark.parametrize(
    "error", [UnreachableError("only root", code="socket.permission"), ControlError("x", code="status.fields")]
)
def test_what_cannot_be_asked_is_unknown_and_not_down(error: ControlError) -> None:
    assert unanswered(error).line.startswith("elastio UNKNOWN: ")


def test_a_document_or_a_line_and_not_both(elastio: Shell) -> None:
    assert elastio("status", "--check", "--json").exit_code == Exit.USAGE


def test_the_line_says_what_status_says() -> None:
    assert dict(rows(SITUATIONS["faulted"]))["fault"] in check(SITUATIONS["faulted"]).line
