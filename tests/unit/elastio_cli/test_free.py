"""`elastio free`, without anything but the kernel."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.control.exit_codes import Exit
from elastio.host import cgroups
from elastio_cli.app import App
from elastio_cli.main import main
from tests.fixtures.other_agent import other_agent

from .conftest import Golden

UUID, OTHER = "01234567-89ab-cdef-0123-456789abcdef", "11234567-89ab-cdef-0123-456789abcdef"


def free(root: Path, *options: str, config: str = "none") -> tuple[int, str]:
    app = App(config_path=root / f"{config}.toml", socket=root / "none.sock", root=root)
    done = CliRunner().invoke(main, ["free", *options], obj=app)
    return done.exit_code, done.output


@pytest.fixture
def limit(tmp_path: Path) -> Path:
    """A limit that holds applications back, and the configuration of the device whose agent has set it."""
    file = tmp_path / cgroups.CGROUPS / "user.slice/io.max"
    file.parent.mkdir(parents=True)
    file.write_text("250:0 rbps=2 wbps=2 riops=max wiops=max\n")
    (tmp_path / "elastio.toml").write_text(f'[device]\nbacking_uuid = "{UUID.upper()}"\n')
    (tmp_path / "second.toml").write_text(f'[device]\nbacking_uuid = "{OTHER}"\n')
    return file


def is_free(limit: Path) -> bool:
    return limit.read_text().startswith(f"250:0 {cgroups.FREE}")


def test_the_limits_of_an_agent_that_runs_are_left(limit: Path, tmp_path: Path) -> None:
    with other_agent(tmp_path / "run/elastio", UUID) as agent:
        assert (free(tmp_path, config="elastio")[0], is_free(limit)) == (Exit.REFUSED, False)
        assert (free(tmp_path, "--device", "elastio", config="second")[0], is_free(limit)) == (Exit.REFUSED, False)
        agent.kill()
        assert (free(tmp_path, config="elastio")[0], is_free(limit)) == (Exit.OK, True), "its worker hangs"


@pytest.mark.parametrize(
    ("options", "config"),
    [(("--force",), "elastio"), (("--device", "second"), "elastio"), ((), "second")],
    ids=["forced", "of another device by name", "of another device by file"],
)
def test_an_agent_that_runs_keeps_nobody_else_held_back(
    options: tuple[str, ...], config: str, limit: Path, tmp_path: Path
) -> None:
    with other_agent(tmp_path / "run/elastio", UUID):
        assert (free(tmp_path, *options, config=config)[0], is_free(limit)) == (Exit.OK, True)


def test_whose_agent_is_not_known_is_freed(limit: Path, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text("no configuration")
    with other_agent(tmp_path / "run/elastio", UUID):
        assert (free(tmp_path, config="elastio")[0], is_free(limit)) == (Exit.OK, True)


def test_limits_are_removed_without_configuration_lock_journal_or_agent(tmp_path: Path, golden: Golden) -> None:
    limits = {
        "user.slice": "250:0 rbps=2 wbps=2 riops=max wiops=max",
        "system.slice": "250:0 rbps=max wbps=8250111 riops=max wiops=max",
        "machine.slice": "250:0 rbps=max wbps=5000000 riops=max wiops=max",  # an administrator's
    }
    files = {group: tmp_path / cgroups.CGROUPS / group / "io.max" for group in limits}
    for group, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(f"{limits[group]}\n")
    code, printed = free(tmp_path)
    assert code == Exit.OK
    golden("free.txt", printed)
    assert [files[g].read_text().startswith(f"250:0 {cgroups.FREE}") for g in limits] == [True, True, False]


def test_without_limits_nothing_is_written(tmp_path: Path) -> None:
    assert free(tmp_path)[0] == Exit.OK
    assert list(tmp_path.iterdir()) == []
