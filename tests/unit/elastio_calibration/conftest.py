"""The command line, and a profile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio_calibration.profile import save
from elastio_cli.app import App
from elastio_cli.main import main

from .values import Shell, profile


@pytest.fixture
def elastio(tmp_path: Path) -> Shell:
    app = App(tmp_path / "elastio.toml", tmp_path / "agent.sock", tmp_path / "root", is_terminal=lambda: False)

    def run(*args: object) -> Result:
        return CliRunner().invoke(main, [str(a) for a in args], obj=app, catch_exceptions=False)

    return run


@pytest.fixture
def made(tmp_path: Path) -> Path:
    save(profile(0.99, 1.01), tmp_path / "p.json")
    return tmp_path / "p.json"


@pytest.fixture
def heeded_signals() -> Iterator[None]:
    """Python ignores signals that it was started to ignore, as in the background of a shell or under nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGTERM)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
