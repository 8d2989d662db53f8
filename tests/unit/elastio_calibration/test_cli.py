"""`elastio calibrate`, `predict` and `plan` from the command line, on the simulator and on a made-up profile."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest
from click.testing import Result

from elastio.cli.app import App
from elastio.control.exit_codes import Exit
from elastio.sim.experiment import Experiment, compare
from elastio.sim.workload import Profile as Load
from elastio.units import GB, GIB
from elastio_calibration.cli import options
from elastio_calibration.errors import CalibrationError
from elastio_calibration.live import require_adaptive
from elastio_calibration.profile import load as load_profile

from .values import APP, Shell

UUID = "01234567-89ab-cdef-0123-456789abcdef"
CONFIG = f"""[device]
backing_uuid = "{UUID}"
bandwidth_mb_s = 33
[cache]
bandwidth_mb_s = 128
[provider]
name = "sim"
"""


def calibrate(elastio: Shell, folder: Path, *more: object) -> Result:
    files = ("--record", folder / "r.jsonl", "--profile", folder / "p.json")
    return elastio("calibrate", "--sim", "--plan", "standard", *files, *more)


SMALL = ("--datasets", "0.6,0.8", "--caches", f"{GIB / GB},{2 * GIB / GB}", "--repeats", "1")


def test_calibrates_the_simulator_through_all_stages(elastio: Shell, tmp_path: Path) -> None:
    result = calibrate(elastio, tmp_path, *SMALL)
    assert result.exit_code == 0, result.output
    assert "6 of 6 measurements are left: about" in result.stderr
    assert "USD for caches" in result.stderr
    assert "[1/6] write 0.6 GB, cache 1.07 GB;" in result.stderr
    assert "spread of one run" in result.stdout
    assert len(load_profile(tmp_path / "p.json").measurements) == 6


def test_goes_on_where_it_stopped_and_runs_later_stages_from_the_record(elastio: Shell, tmp_path: Path) -> None:
    calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert not (tmp_path / "p.json").exists()
    again = calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert "holds everything that was asked for" in again.stdout
    lines = (tmp_path / "r.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "r.jsonl").write_text("".join(lines[:-2]))  # the measurement, and what the agent got back
    more = calibrate(elastio, tmp_path, *SMALL, "--stage", "run")
    assert "1 of 6 measurements are left" in more.stderr
    formatted = elastio(
        "calibrate", "--stage", "format", "--record", tmp_path / "r.jsonl", "--profile", tmp_path / "q.json"
    )
    assert formatted.exit_code == 0
    assert len(load_profile(tmp_path / "q.json").measurements) == 6
    assert "set-up" in elastio("calibrate", "--stage", "study", "--record", tmp_path / "r.jsonl").stdout


def test_what_was_calibrated_predicts_what_is_simulated(elastio: Shell, tmp_path: Path) -> None:
    sizes = ",".join(str(n * GIB / GB) for n in (1, 2, 3, 4))
    calibrate(elastio, tmp_path, "--datasets", "1,1.5", "--caches", sizes, "--repeats", "2")
    app = ("--iteration-s", 120, "--iterations", 3, "--checkpoints", 3, "--checkpoint-gb", 1, "--initial-gb", 1.5)
    files = ("--profile", tmp_path / "p.json", "--initial-cache-gb", 4 * GIB / GB)
    found = json.loads(elastio("predict", *files, *app, "--json").stdout)
    load_ = Load(120, GB, 3, 1_500_000_000)
    real = compare(Experiment(load_, initial_bytes=4 * GIB, seed=7))
    for row, setup in zip(found["setups"], (real.slow, real.fast, real.adaptive), strict=True):
        assert row["setup"] == setup.name
        assert row["completion_s"] / setup.completion_s == pytest.approx(1, abs=0.01)
        assert row["agbs"] / setup.agbs == pytest.approx(1, abs=0.05)


def test_a_real_calibration_needs_a_directory(elastio: Shell) -> None:
    result = elastio("calibrate", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "name a DIRECTORY" in result.output


@pytest.mark.parametrize("given", ["3,x", "", "nan", "3,inf", "0,3", "-1", "1e300"])
def test_a_list_of_sizes_that_is_none_is_wrong_usage(given: str, elastio: Shell) -> None:
    assert elastio("calibrate", "--sim", "--datasets", given).exit_code == Exit.USAGE


def test_the_record_is_not_replaced_by_the_profile(elastio: Shell, tmp_path: Path) -> None:
    result = elastio("calibrate", "--sim", *SMALL, "--record", tmp_path / "same", "--profile", tmp_path / "same")
    assert result.exit_code == Exit.FAILED
    assert "would replace" in result.stderr
    assert list(tmp_path.iterdir()) == []


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
    ],
)
def test_the_simulator_refuses_what_it_has_no_model_of(given: tuple[str, ...], elastio: Shell, tmp_path: Path) -> None:
    result = calibrate(elastio, tmp_path, *SMALL, *given)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_scale_is_a_condition_of_the_simulator_too(elastio: Shell, tmp_path: Path) -> None:
    sizes = ("--datasets", "6", "--caches", f"{10 * GIB / GB},{20 * GIB / GB}", "--repeats", "1")
    assert calibrate(elastio, tmp_path, *sizes, "--scale", "0.1").exit_code == 0
    made = load_profile(tmp_path / "p.json")
    assert made.conditions.scale == 0.1
    assert {m.dataset_bytes for m in made.measurements} == {600_000_000}


def test_a_directory_elsewhere_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    app = App(tmp_path / "elastio.toml", root=tmp_path / "root")
    app.config_path.write_text(CONFIG)
    block = tmp_path / "root/sys/class/block/vdb/bcache"
    block.mkdir(parents=True)
    (block / "backing_dev_uuid").write_text(UUID)
    (block / "dev").symlink_to("../../../virtual/block/bcache0")
    number = tmp_path / "root/sys/block/bcache0"
    number.mkdir(parents=True)
    (number / "dev").write_text("250:99")
    with pytest.raises(CalibrationError, match=r"is not on the filesystem of /dev/bcache0.*nothing was written"):
        require_adaptive(tmp_path, app.config(), app.sysfs())
    with pytest.raises(CalibrationError, match="is not a directory"):
        require_adaptive(tmp_path / "missing", app.config(), app.sysfs())
    here = tmp_path.stat().st_dev
    (number / "dev").write_text(f"{os.major(here)}:{os.minor(here)}")
    require_adaptive(tmp_path, app.config(), app.sysfs())
    (block / "backing_dev_uuid").write_text("another")
    with pytest.raises(CalibrationError, match="does not run"):
        require_adaptive(tmp_path, app.config(), app.sysfs())


# --- predict -------------------------------------------------------------------------------------------------


def test_predicts_three_setups_as_a_table(elastio: Shell, made: Path) -> None:
    result = elastio("predict", "--profile", made, *APP, "--initial-cache-gb", 10)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[1:4]] == ["static-slow", "static-fast", "adaptive"]
    assert "USD" in lines[3]
    assert "Caches bought by adaptive, in GB: 10, 9, 6, 6." in result.stdout


def test_a_first_cache_that_was_not_calibrated_is_refused(elastio: Shell, made: Path) -> None:
    result = elastio("predict", "--profile", made, *APP, "--initial-cache-gb", 20)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("\n") == 1
    assert "20 GB would be extrapolation" in result.stderr


def test_predicts_as_csv_and_json(elastio: Shell, made: Path) -> None:
    fixed = ("--initial-cache-gb", 10, "--checkpoint-cache-gb", 6)
    rows = list(csv.DictReader(io.StringIO(elastio("predict", "--profile", made, *APP, *fixed, "--csv").stdout)))
    document = json.loads(elastio("predict", "--profile", made, *APP, *fixed, "--json").stdout)
    assert [float(r["completion_s"]) for r in rows] == [r["completion_s"] for r in document["setups"]]
    assert document["setups"][2]["checkpoint_cache_gb"] == 6


def test_sweeps_with_a_picture_and_names_what_is_outside(elastio: Shell, made: Path, tmp_path: Path) -> None:
    given = ("--initial-cache-gb", 10, "--checkpoint-cache-gb", 8, "--sweep", "Sc=2..6", "--png", tmp_path / "s.png")
    result = elastio("predict", "--profile", made, *APP, *given)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 1 + 4 * 3
    assert re.search(r"adaptive +\d+\.\d \(\d+\.\d\.\.\d+\.\d\)", result.stdout)
    assert "Sc=2: throughput was measured for datasets of 3 to 6 GB" in result.stderr
    assert (tmp_path / "s.png").stat().st_size > 5000


def test_application_comes_from_a_file_and_options_win(elastio: Shell, made: Path, tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text("[application]\ncheckpoint_gb = 6\ncheckpoints = 3\niteration_s = 400\niterations = 3\n")
    given = ("--profile", made, "--application", path, "--checkpoint-cache-gb", 8, "--json")
    large, small = (
        json.loads(elastio("predict", *given, *more).stdout)["setups"][2]["completion_s"]
        for more in ((), ("--checkpoint-gb", 4))
    )
    assert large > small


def test_an_incomplete_application_is_one_sentence(elastio: Shell, made: Path) -> None:
    result = elastio("predict", "--profile", made, "--checkpoint-gb", 4)
    assert result.exit_code == Exit.FAILED
    assert "give --checkpoints, --iteration-s" in result.stderr


def test_profiles_of_other_conditions_are_refused(elastio: Shell, made: Path, tmp_path: Path) -> None:
    document = json.loads(made.read_text())
    document["conditions"]["instance_type"] = "m5.xlarge"
    (tmp_path / "q.json").write_text(json.dumps(document))
    for verb in ("predict", "plan"):
        result = elastio(verb, "--profile", made, "--profile", tmp_path / "q.json", *APP)
        assert result.exit_code == Exit.FAILED
        assert "instance type (m5.large and m5.xlarge)" in result.stderr


def test_without_the_extra_one_sentence_says_what_to_install(
    elastio: Shell, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "EXTRA", ("no_such_library",))
    for arguments in (("predict", "--profile", made, *APP), ("plan", "--profile", made, *APP), ("calibrate", "--sim")):
        result = elastio(*arguments)
        assert result.exit_code == Exit.FAILED
        assert result.stderr == (
            "elastio: this needs no_such_library, which is not installed: pip install 'elastio[calibration]'\n"
        )


# --- plan ----------------------------------------------------------------------------------------------------

PLAN = (*APP[:-2], "--checkpoint-gb", "6")


def test_recommends_the_cheapest_size_that_meets_the_deadline(elastio: Shell, made: Path, tmp_path: Path) -> None:
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--png", tmp_path / "t.png")
    assert result.exit_code == 0, result.output
    assert [line[0] for line in result.stdout.splitlines()[1:5]] == [" ", " ", ">", " "]
    assert "Recommended: a cache of 8 GB at 128 MB/s" in result.stdout
    assert (tmp_path / "t.png").stat().st_size > 5000
    document = json.loads(elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--json").stdout)
    assert document["recommended_gb"] == 8


def test_an_impossible_deadline_is_one_sentence(elastio: Shell, made: Path) -> None:
    result = elastio("plan", "--profile", made, *PLAN, "--max-time", 1200)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("\n") == 1
    assert "no calibrated cache size meets 20 min 00 s: the fastest" in result.stderr


@pytest.mark.parametrize(
    "given", [("--max-time", "nan"), ("--max-time", "0"), ("--backing-gb", "inf"), ("--max-agbs", "-1")]
)
def test_a_limit_that_is_no_number_is_wrong_usage(given: tuple[str, str], elastio: Shell, made: Path) -> None:
    assert elastio("plan", "--profile", made, *PLAN, *given).exit_code == Exit.USAGE


def test_a_pattern_that_was_not_calibrated_is_one_sentence(elastio: Shell, made: Path) -> None:
    for verb in ("plan", "predict"):
        result = elastio(verb, "--profile", made, *PLAN, "--pattern", "read")
        assert result.exit_code == Exit.FAILED
        assert result.stderr == "elastio: throughput was not measured: calibrate it first\n"


def test_one_measurement_predicts_nothing_else(elastio: Shell, made: Path, tmp_path: Path) -> None:
    document = json.loads(made.read_text())
    document["measurements"] = document["measurements"][:1]
    (tmp_path / "one.json").write_text(json.dumps(document))
    result = elastio("predict", "--profile", tmp_path / "one.json", *APP)
    assert result.exit_code == Exit.FAILED
    assert result.stderr.count("\n") == 1
    assert "datasets of 3 GB only" in result.stderr


def test_two_wishes_are_wrong_usage(elastio: Shell, made: Path) -> None:
    assert elastio("plan", "--profile", made, *PLAN, "--max-time", 1, "--max-cost", 1).exit_code == Exit.USAGE
