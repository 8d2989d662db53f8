"""Programs run with a fixed path and a time-out, and fail with their own words."""

from __future__ import annotations

import pytest

from elastio.errors import HostError
from elastio.host.commands import run

pytestmark = pytest.mark.runs_programs


def test_gives_what_the_program_says_in_plain_english() -> None:
    assert run(["sh", "-c", "echo $LC_ALL $HOME"], timeout_s=10) == "C\n"


def test_a_failing_program_is_quoted() -> None:
    with pytest.raises(HostError, match=r"failed \(3\): the last word"):
        run(["sh", "-c", "echo first >&2; echo the last word >&2; exit 3"], timeout_s=10)
    with pytest.raises(HostError, match=r"failed \(1\): no message"):
        run(["false"], timeout_s=10)


def test_a_missing_program_is_named() -> None:
    with pytest.raises(HostError, match="no-such-program is not installed"):
        run(["no-such-program"], timeout_s=10)


def test_a_program_that_does_not_end_is_ended() -> None:
    with pytest.raises(HostError, match=r"`sleep 60` did not end within 0\.1 s"):
        run(["sleep", "60"], timeout_s=0.1)


def test_output_that_is_no_text_is_still_output() -> None:
    assert run(["printf", r"a\377b"], timeout_s=10) == "a\ufffdb"
