"""`elastio state`: whether the agent may be removed, without an agent or a configuration that can be read."""

from __future__ import annotations

from pathlib import Path

from elastio.agent.journal import Journal
from elastio.config.paths import JOURNAL
from elastio.control.exit_codes import Exit
from elastio.core.state import AgentState, Phase
from tests.values import cycle

from .conftest import Golden, Shell


def configure(folder: Path) -> Path:
    """A configuration with the state directory of this test."""
    state_dir = folder / "state"
    (folder / "elastio.toml").write_text(
        '[device]\nbacking_uuid = "01234567-89ab-cdef-0123-456789abcdef"\nbandwidth_mb_s = 60\n'
        '[cache]\nbandwidth_mb_s = 128\n[provider]\nname = "sim"\n'
        f'[agent]\nstate_dir = "{state_dir}"\n'
    )
    return state_dir


def test_without_an_open_cycle_it_may_be_removed(elastio: Shell, tmp_path: Path) -> None:
    configure(tmp_path)
    assert elastio("state").exit_code == Exit.OK


def test_an_open_cycle_refuses_and_says_what_to_do(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    journal = Journal(configure(tmp_path) / JOURNAL, "boot")
    journal.open()
    journal.decision(Phase.IDLE, AgentState(phase=Phase.BOOSTING, cycle=cycle()), "because", now=1.0, wall=1.0)
    journal.close()
    result = elastio("state")
    assert (result.exit_code, result.stdout) == (Exit.REFUSED, "")
    golden("state_open.txt", result.stderr)


def test_a_journal_that_cannot_be_read_is_a_failure(elastio: Shell, tmp_path: Path) -> None:
    (configure(tmp_path) / JOURNAL).mkdir(parents=True)
    assert elastio("state").exit_code == Exit.FAILED
