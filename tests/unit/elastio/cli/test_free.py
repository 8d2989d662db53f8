"""`elastio free`, with nothing but the kernel."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from elastio.cli.app import App
from elastio.cli.main import main
from elastio.host import throttle


def free(root: Path) -> tuple[int, str]:
    app = App(config_path=root / "none.toml", socket=root / "none.sock", root=root)
    done = CliRunner().invoke(main, ["free"], obj=app)
    return done.exit_code, done.output


def test_applications_are_let_go_without_configuration_lock_journal_or_agent(tmp_path: Path) -> None:
    limits = {
        "user.slice": "250:0 rbps=2 wbps=2 riops=max wiops=max",
        "system.slice": "250:0 rbps=max wbps=8250111 riops=max wiops=max",
        "machine.slice": "250:0 rbps=max wbps=5000000 riops=max wiops=max",  # an administrator's
    }
    files = {group: tmp_path / throttle.CGROUPS / group / "io.max" for group in limits}
    for group, file in files.items():
        file.parent.mkdir(parents=True)
        file.write_text(f"{limits[group]}\n")
    code, said = free(tmp_path)
    assert (code, "system.slice, user.slice" in said, "machine" in said) == (0, True, False)
    assert [files[g].read_text().startswith(f"250:0 {throttle.FREE}") for g in limits] == [True, True, False]


def test_where_nobody_is_held_back_nothing_is_written(tmp_path: Path) -> None:
    assert free(tmp_path)[0] == 0
    assert list(tmp_path.iterdir()) == []
