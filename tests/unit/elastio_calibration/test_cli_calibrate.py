"""`elastio calibrate`: what it asks, and what it leaves when it is refused, interrupted or killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.cli.app import App
from elastio.cli.main import main
from elastio.exits import Exit
from elastio.units import GB, GIB
from elastio_calibration.cli import calibrate as calibrate_command
from elastio_calibration.cli.calibrate import interrupted_by_signals
from elastio_calibration.record import RecordFile, SavedState, read
from elastio_calibration.schedule import Point
from elastio_calibration.simulated import SimulatedTarget
from elastio_calibration.target import ending_with

from .test_cli import SMALL, calibrate
from .values import Shell


def test_what_a_killed_run_left_undone_is_made_good_although_nothing_is_left_to_measure(
    elastio: Shell, tmp_path: Path
) -> None:
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    RecordFile(tmp_path / "r.jsonl").keep(SavedState(4 * GIB, False))
    again = calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert again.exit_code == 0, again.output
    assert again.stderr == (
        "an earlier run was cut off: at the end of this one the agent gets back what it had before that one\n"
    )
    assert read(tmp_path / "r.jsonl").saved is None


@pytest.mark.parametrize(("terminal", "answer"), [(False, ""), (True, "n\n")])
def test_a_run_that_nobody_agreed_to_leaves_nothing(
    terminal: bool, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The simulator in the place of a machine where volumes cost something.
    monkeypatch.setattr(calibrate_command, "_live", lambda *_: SimulatedTarget())
    app = App(tmp_path / "elastio.toml", tmp_path / "agent.sock", tmp_path / "root", is_terminal=lambda: terminal)
    files = ("--record", str(tmp_path / "r.jsonl"), "--profile", str(tmp_path / "p.json"))
    result = CliRunner().invoke(main, ["calibrate", *SMALL, *files], obj=app, input=answer)
    assert result.exit_code == Exit.FAILED
    assert "6 of 6 measurements are left" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_left_is_checked(elastio: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day's cap on boosts leaves as many as are still needed, when a run goes on."""
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    checked: list[object] = []
    monkeypatch.setattr(SimulatedTarget, "check", lambda _, points: checked.extend(points))
    more = ("--datasets", "0.6,0.8,1", *SMALL[2:])
    assert calibrate(elastio, tmp_path, *more, "--stage", "run").exit_code == 0
    assert checked == [Point(GB, GIB), Point(GB, 2 * GIB), Point(GB)]


def test_a_record_that_another_run_measures_into_is_refused(elastio: Shell, tmp_path: Path) -> None:
    with RecordFile(tmp_path / "r.jsonl").locked():
        result = calibrate(elastio, tmp_path, *SMALL)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.splitlines()[-1].startswith("elastio: another calibration uses")
    assert not (tmp_path / "p.json").exists()


def test_an_interrupted_run_is_one_sentence(elastio: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(_target: SimulatedTarget, _wanted: object) -> float:
        signal.raise_signal(signal.SIGTERM)
        return 0.0

    monkeypatch.setattr(SimulatedTarget, "write", terminated)
    result = calibrate(elastio, tmp_path, *SMALL)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.splitlines()[-1] == (
        f"elastio: interrupted; {tmp_path / 'r.jsonl'} keeps what was measured, the same command goes on"
    )


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_calibration_that_is_told_to_end_ends_as_by_an_interrupt(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("heeded_signals")
def test_a_second_signal_does_not_cut_short_what_the_first_one_began() -> None:
    cleaned = []

    def clean() -> None:
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            signal.raise_signal(number)
            cleaned.append(number)

    with pytest.raises(KeyboardInterrupt), interrupted_by_signals(), ending_with(clean):
        signal.raise_signal(signal.SIGHUP)
    assert len(cleaned) == 3


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
