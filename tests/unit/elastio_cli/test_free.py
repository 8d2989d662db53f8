"""`elastio free`, without anything but the kernel."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from elastio.control.exit_codes import Exit
from elastio.host import cgroups
from elastio_cli.app import App
from elastio_cli.main import main

from .conftest import Golden


def free(root: Path) -> tuple[int, str]:
    app = App(config_path=root / "none.toml", socket=root / "none.sock", root=root)
    done = CliRunner().invoke(main, ["free"], obj=app)
    return done.exit_code, done.output


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
