"""Programs run with a fixed path and a time-out, and their last line is in the error."""

from __future__ import annotations

import pytest

from elastio.errors import HostError
from elastio.host.commands import run
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
