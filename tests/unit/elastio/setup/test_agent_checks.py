"""What `doctor` says about the clock, and where a folder will be made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio.setup.agent_checks import NOT_BEFORE_WALL, clock, nearest
from elastio.setup.findings import Machine, Verdict


@pytest.mark.parametrize(
    ("wall", "answer", "verdict", "words"),
    [
        (NOT_BEFORE_WALL + 1, "yes\n", Verdict.OK, "it is synchronized"),
        (NOT_BEFORE_WALL + 1, "no\n", Verdict.WARN, "it is not synchronized"),
        (NOT_BEFORE_WALL + 1, None, Verdict.WARN, "is unknown (timedatectl is not installed)"),
        (NOT_BEFORE_WALL - 1, "yes\n", Verdict.FAIL, "years behind"),
    ],
)
def test_judges_the_clock(wall: float, answer: str | None, verdict: Verdict, words: str, tmp_path: Path) -> None:
    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if answer is None:
            raise HostError("timedatectl is not installed")
        return answer

    found = clock(Machine(Sysfs(tmp_path), run), wall)
    assert (found.verdict, words in found.sentence) == (verdict, True)


def test_a_folder_that_is_not_there_will_be_made_in_the_nearest_one(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path
    assert nearest(Path("/no-such-folder-at-all")) == Path("/")
