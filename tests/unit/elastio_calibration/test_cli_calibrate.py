"""`elastio calibrate`: its stages on the simulator, refusals, interruptions and signals."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio.control.exit_codes import Exit
from elastio.units import GB, GIB
from elastio_adviser.checkpointing import Profile as Load
from elastio_adviser.experiment import Experiment, compare
from elastio_calibration.cli import calibrate as calibrate_command
from elastio_calibration.cli.calibrate import interrupted_by_signals
from elastio_calibration.errors import CalibrationError
from elastio_calibration.live import require_adaptive
from elastio_calibration.profile import load
from elastio_calibration.record import RecordFile, SavedState, read
from elastio_calibration.schedule import Point
from elastio_calibration.simulated import SimulatedTarget
from elastio_calibration.target import ending_with
from elastio_cli.app import App
from elastio_cli.main import main

from .values import CONFIG, UUID, Golden, Shell

SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
SMALL = ("--datasets", "0.6,0.8", "--caches", f"{GIB / GB},{2 * GIB / GB}", "--repeats", "1")


def calibrate(elastio: Shell, folder: Path, *more: object) -> Result:
    files = ("--record", folder / "r.jsonl", "--profile", folder / "p.json")
    return elastio("calibrate", "--sim", "--plan", "standard", *files, *more)


def test_calibrates_the_simulator_through_all_stages(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    result = calibrate(elastio, tmp_path, *SMALL)
    assert result.exit_code == 0, result.output
    golden("calibration/calibrate.txt", result.stderr + result.stdout.replace(str(tmp_path), ""))
    assert len(load(tmp_path / "p.json").measurements) == 6


def test_resumes_and_runs_later_stages_from_the_record(elastio: Shell, tmp_path: Path) -> None:
    record = ("--record", tmp_path / "r.jsonl")
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert not (tmp_path / "p.json").exists()
    whole = (tmp_path / "r.jsonl").read_text()
    assert calibrate(elastio, tmp_path, *SMALL, "--stage", "run").exit_code == 0
    assert (tmp_path / "r.jsonl").read_text() == whole
    lines = whole.splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_text("".join(lines[:-2]))  # the measurement, and what the agent got back
    assert calibrate(elastio, tmp_path, *SMALL, "--stage", "run").exit_code == 0
    assert len(read(tmp_path / "r.jsonl").measurements()) == 6
    assert elastio("calibrate", "--stage", "format", *record, "--profile", tmp_path / "q.json").exit_code == 0
    assert len(load(tmp_path / "q.json").measurements) == 6
    assert len(elastio("calibrate", "--stage", "study", *record).stdout.splitlines()) == 1 + 6 + 6


def test_what_was_calibrated_predicts_what_is_simulated(elastio: Shell, tmp_path: Path) -> None:
    sizes = ",".join(str(n * GIB / GB) for n in (1, 2, 3, 4))
    calibrate(elastio, tmp_path, "--datasets", "1,1.5", "--caches", sizes, "--repeats", "2")
    app = ("--iteration-s", 120, "--iterations", 3, "--checkpoints", 3, "--checkpoint-gb", 1, "--initial-gb", 1.5)
    files = ("--profile", tmp_path / "p.json", "--initial-cache-gb", 4 * GIB / GB)
    found = json.loads(elastio("predict", *files, *app, "--json").stdout)
    real = compare(Experiment(Load(120, GB, 3, 1_500_000_000), initial_bytes=4 * GIB, seed=7))
    for row, setup in zip(found["setups"], (real.slow, real.fast, real.adaptive), strict=True):
        assert row["setup"] == setup.name
        assert row["completion_s"] / setup.completion_s == pytest.approx(1, abs=0.01)
        assert row["agbs"] / setup.agbs == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "given",
    [
        *(("--sim", "--datasets", sizes) for sizes in ("3,x", "", "nan", "3,inf", "0,3", "-1", "1e300")),
        ("--yes",),
        ("data", "--pace", "20", "--pattern", "read"),
    ],
)
def test_wrong_usage(given: tuple[str, ...], elastio: Shell) -> None:
    assert elastio("calibrate", *given).exit_code == Exit.USAGE


@pytest.mark.parametrize(
    "given",
    [
        ("--pattern", "read"),
        ("--pace", "20"),
        ("--writers", "8"),
        ("--backing-type", "gp3"),
        ("--cache-type", "gp3"),
        ("--no-prices",),
        ("data",),
        ("--profile", "r.jsonl", "--record", "r.jsonl"),
    ],
)
def test_refuses_options_without_a_simulated_model_and_to_replace_the_record(
    given: tuple[str, ...], elastio: Shell, tmp_path: Path
) -> None:
    result = calibrate(elastio, tmp_path, *SMALL, *given)
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--record", "--profile"])
def test_a_directory_that_is_missing_is_refused_before_anything_is_measured(
    option: str, elastio: Shell, tmp_path: Path
) -> None:
    result = calibrate(elastio, tmp_path, *SMALL, option, tmp_path / "deep" / "file")
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
    assert list(tmp_path.iterdir()) == []


def test_a_scale_is_a_condition_of_the_simulator_too(elastio: Shell, tmp_path: Path) -> None:
    sizes = ("--datasets", "6", "--caches", f"{10 * GIB / GB},{20 * GIB / GB}", "--repeats", "1")
    assert calibrate(elastio, tmp_path, *sizes, "--scale", "0.1").exit_code == 0
    made = load(tmp_path / "p.json")
    assert made.conditions.scale == 0.1
    assert {m.dataset_bytes for m in made.measurements} == {600_000_000}
    assert {m.cache_bytes for m in made.measurements} == {0, GIB, 2 * GIB}


def test_a_directory_elsewhere_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    app = App(tmp_path / "elastio.toml", root=tmp_path / "root")
    app.config_path.write_text(CONFIG)
    block = tmp_path / "root/sys/block/vdb/bcache"
    block.mkdir(parents=True)
    (block / "backing_dev_uuid").write_text(UUID)
    (block / "dev").symlink_to("../../../virtual/block/bcache0")
    number = tmp_path / "root/sys/block/bcache0"
    number.mkdir(parents=True)
    (number / "dev").write_text("250:99")
    table = tmp_path / "root/proc/self/mountinfo"
    table.parent.mkdir(parents=True)
    table.write_text("22 1 254:1 / / rw - ext4 /dev/vda1 rw\n")

    def refusal(directory: Path) -> str:
        with pytest.raises(CalibrationError) as caught:
            require_adaptive(directory, app.config(), app.sysfs())
        return caught.value.code

    assert refusal(tmp_path) == "directory.elsewhere"
    assert refusal(tmp_path / "missing") == "directory.missing"
    here = tmp_path.stat().st_dev
    (number / "dev").write_text(f"{os.major(here)}:{os.minor(here)}")
    require_adaptive(tmp_path, app.config(), app.sysfs())
    (block / "backing_dev_uuid").write_text("another")
    assert refusal(tmp_path) == "backing.stopped"


def test_a_killed_run_is_restored_although_nothing_is_left_to_measure(elastio: Shell, tmp_path: Path) -> None:
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    RecordFile(tmp_path / "r.jsonl").keep(SavedState(4 * GIB, False))
    again = calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert again.exit_code == 0, again.output
    assert read(tmp_path / "r.jsonl").saved is None


@pytest.mark.parametrize(("terminal", "answer"), [(False, "y\n"), (True, "n\n")])
def test_a_run_that_is_not_confirmed_writes_nothing(
    terminal: bool, answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The simulator takes the place of a machine whose volumes cost money.
    monkeypatch.setattr(calibrate_command, "_live", lambda *_: SimulatedTarget())
    app = App(tmp_path / "elastio.toml", tmp_path / "agent.sock", tmp_path / "root", is_terminal=lambda: terminal)
    files = ("--record", str(tmp_path / "r.jsonl"), "--profile", str(tmp_path / "p.json"))
    result = CliRunner().invoke(main, ["calibrate", *SMALL, *files], obj=app, input=answer)
    assert result.exit_code == Exit.FAILED
    assert list(tmp_path.iterdir()) == []


def test_only_the_remaining_points_are_checked(elastio: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run needs fewer boosts of the daily cap."""
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    checked: list[object] = []
    monkeypatch.setattr(SimulatedTarget, "check", lambda _, points: checked.extend(points))
    more = ("--datasets", "0.6,0.8,1", *SMALL[2:])
    assert calibrate(elastio, tmp_path, *more, "--stage", "run").exit_code == 0
    assert checked == [Point(GB, GIB), Point(GB, 2 * GIB), Point(GB)]


def test_an_interrupted_run_fails_and_keeps_its_record(
    elastio: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminated(_target: SimulatedTarget, _point: object) -> float:
        signal.raise_signal(signal.SIGTERM)
        return 0.0

    monkeypatch.setattr(SimulatedTarget, "write", terminated)
    assert calibrate(elastio, tmp_path, *SMALL, "--stage", "run").exit_code == Exit.FAILED
    assert read(tmp_path / "r.jsonl").saved is None


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_an_interrupt_and_later_ones_do_not_interrupt_the_clean_up(number: signal.Signals) -> None:
    before, cleaned = signal.getsignal(number), []

    def clean() -> None:
        for later in SIGNALS:
            signal.raise_signal(later)
            cleaned.append(later)

    with pytest.raises(KeyboardInterrupt), interrupted_by_signals(), ending_with(clean):
        signal.raise_signal(number)
    assert len(cleaned) == 3
    assert signal.getsignal(number) is before


def test_a_signal_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interrupted_by_signals():
            signal.raise_signal(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
