"""Programs run with a fixed path and a time-out, and their last line is in the error."""

from __future__ import annotations

import math
import signal

import pytest

from elastio.errors import HostError
from elastio.host.commands import run, start
from tests.fixtures.errors import refused

pytestmark = pytest.mark.runs_programs


def test_returns_the_output_of_a_program_in_the_c_locale() -> None:
    assert run(["sh", "-c", "echo $LC_ALL $HOME"], timeout_s=10) == "C\n"


def test_a_failing_program_is_quoted() -> None:
    with refused(HostError, "program.failed") as caught:
        run(["sh", "-c", "echo first >&2; echo the last word >&2; exit 3"], timeout_s=10)
    assert "the last word" in str(caught.value)
    with refused(HostError, "program.failed"):
        run(["false"], timeout_s=10)


def test_a_missing_program_is_an_error() -> None:
    with refused(HostError, "program.missing"):
        run(["no-such-program"], timeout_s=10)


def test_a_program_that_does_not_end_is_ended() -> None:
    with refused(HostError, "program.timeout"):
        run(["sleep", "60"], timeout_s=0.1)


def test_output_that_is_not_text_is_returned() -> None:
    assert run(["printf", r"a\377b"], timeout_s=10) == "a\ufffdb"


# --- a command of the operator's -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "code"), [(["true"], 0), (["sh", "-c", "exit 3"], 3), (["sh", "-c", "kill -9 $$"], 137)]
)
def test_a_started_command_has_the_exit_code_that_a_shell_shows(argv: list[str], code: int) -> None:
    with start(argv) as started:
        assert started.wait(math.inf)
        assert started.exit_code == code


def test_a_started_command_is_waited_for_no_longer_than_is_said_and_ends_with_the_block() -> None:
    with start(["sleep", "60"]) as started:
        assert not started.wait(0.01)
    assert started.exit_code == 128 + signal.SIGTERM


def test_what_a_started_command_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with start(["sh", "-c", "echo out; echo err >&2"]) as started:
        started.wait(math.inf)
    assert capfd.readouterr() == ("", "out\nerr\n")


@pytest.mark.parametrize(
    ("argv", "code"),
    [(["no-such-program"], "program.missing"), (["/"], "program.failed"), (["a\0b"], "program.failed")],
)
def test_what_cannot_be_started_is_one_sentence(argv: list[str], code: str) -> None:
    with refused(HostError, code):
        start(argv)
