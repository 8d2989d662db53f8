"""`elastio metrics`: whole outputs, a file that is replaced as a whole, and what is missing."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.accounting.ledger import Ledger
from elastio.control.exit_codes import Exit
from elastio.control.status import OthersPart
from elastio.core.cycle import Failure, FailureKind
from elastio.errors import ElastioError
from elastio_cli.metrics import write_whole
from elastio_sim.clock import SimClock
from tests.fixtures.errors import refused
from tests.unit.elastio.metrics.promtool import promtool

from .conftest import FakeAgent, Golden, Shell
from .machine import LEAST, UUID
from .test_status import CYCLE, QUOTE, SITUATIONS

WALL = 1_790_000_000.0
BILLED = replace(CYCLE, quote=QUOTE, opened_wall=WALL - 100, volume=None)
CAPS = "[caps]\nmax_boosts_per_day = 4\nmax_cost_per_month = 5\n"


@pytest.fixture
def shell(elastio: Shell) -> Shell:
    """At WALL."""
    return Shell(replace(elastio.app, clock=SimClock(wall=WALL)))


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A running boost, one of the day before, and a refused one."""
    (tmp_path / "elastio.toml").write_text(f'{LEAST}{CAPS}[agent]\nstate_dir = "{tmp_path}"\n')
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as opened:
        opened.record(BILLED, WALL - 8000)
        day = WALL - 90_000
        past = replace(BILLED, token="past", started_wall=day, opened_wall=day, closed_wall=day + 300)
        opened.record(past, WALL - 8000)
        no = Failure(FailureKind.ERROR, "quota reached")
        opened.record(replace(CYCLE, token="no", volume=None, volume_id=None, failure=no), WALL - 8000)
        opened.set_learned_size(UUID, 4 * 2**30)
    return path


@pytest.mark.runs_programs
def test_prints_what_the_agent_and_the_ledger_have(
    ledger: Path, agent: FakeAgent, shell: Shell, golden: Golden
) -> None:
    agent.statuses = [replace(SITUATIONS["flushing"], device_uuid=UUID)]
    result = shell("metrics")
    assert result.exit_code == Exit.OK
    golden("metrics.txt", result.stdout)
    promtool("check", "metrics", stdin=result.stdout)


@pytest.mark.runs_programs
def test_without_an_agent_it_prints_what_the_ledger_has(ledger: Path, shell: Shell, golden: Golden) -> None:
    result = shell("metrics")
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    golden("metrics_stopped.txt", result.stdout)
    promtool("check", "metrics", stdin=result.stdout)


def test_without_anything_it_says_that_nothing_is_up(shell: Shell) -> None:
    result = shell("metrics")
    assert result.exit_code == Exit.OK
    assert {'elastio_up{device=""} 0', 'elastio_ledger_readable{device=""} 0'} <= set(result.stdout.splitlines())


def test_the_device_is_the_agents_own_and_no_other_is_accepted(ledger: Path, agent: FakeAgent, shell: Shell) -> None:
    agent.statuses = [replace(SITUATIONS["idle"], device_uuid="of-the-agent")]
    assert 'elastio_up{device="of-the-agent"} 1' in shell("metrics", "--device", UUID).stdout
    result = shell("metrics", "--device", "of-the-agent")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")


def test_shared_caps_are_used_up_by_others_too(ledger: Path, agent: FakeAgent, shell: Shell) -> None:
    def used() -> str:
        shown = shell("metrics").stdout.splitlines()
        (line,) = [each for each in shown if each.startswith("elastio_cap_used_ratio") and "boosts_per_day" in each]
        return line.rpartition(" ")[2]

    seen = replace(SITUATIONS["idle"], device_uuid=UUID)
    agent.statuses = [seen]
    assert used() == "0.25"
    agent.statuses = [replace(seen, spend=replace(seen.spend, others=OthersPart(boosts=2)))]
    assert used() == "0.75"


def test_an_agent_of_another_release_is_not_said_to_be_down(agent: FakeAgent, shell: Shell, tmp_path: Path) -> None:
    agent.statuses = [replace(SITUATIONS["idle"], wall="now")]  # type: ignore[arg-type]
    output = tmp_path / "elastio.prom"
    result = shell("metrics", "--output", str(output))
    assert (result.exit_code, result.stdout, output.exists()) == (Exit.FAILED, "", False)


def test_the_file_is_replaced_as_a_whole_and_can_be_read_by_the_exporter(ledger: Path, shell: Shell) -> None:
    output = ledger.with_name("elastio.prom")
    output.write_text("old")
    with output.open() as reader:
        mask = os.umask(0o077)
        try:
            assert (shell("metrics", "--output", str(output)).output, reader.read()) == ("", "old")
        finally:
            os.umask(mask)
    assert output.read_text() == shell("metrics").stdout
    assert stat.S_IMODE(output.stat().st_mode) == 0o644
    assert [p.name for p in output.parent.glob("*.prom*")] == ["elastio.prom"]


def test_after_a_failed_write_the_old_file_is_there_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "elastio.prom"
    output.write_text("old")

    def full(descriptor: int, mode: int) -> None:
        assert not list(tmp_path.glob("*.prom.*.prom")), "the collector would read it"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fchmod", full)
    with refused(ElastioError, "output.unwritable"):
        write_whole(output, "new")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("elastio.prom", "old")]


def test_only_a_regular_file_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    link = tmp_path / "link.prom"
    link.symlink_to(target)
    for path in (link, tmp_path):
        with refused(ElastioError, "output.not_regular"):
            write_whole(path, "new")
    assert link.is_symlink()
    assert target.read_text() == "kept"
    with refused(ElastioError, "output.unwritable"):
        write_whole(tmp_path / "nowhere" / "elastio.prom", "new")


def test_nothing_is_written_below_a_directory_that_is_a_link(tmp_path: Path) -> None:
    """Whoever owns the directory above, as `prometheus` does, could make it one to any place."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "collector").symlink_to(elsewhere)
    with refused(ElastioError, "output.unwritable"):
        write_whole(tmp_path / "collector" / "elastio.prom", "new")
    assert not list(elsewhere.iterdir())
