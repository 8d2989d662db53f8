"""`elastio predict` and `elastio plan`: figures, notes and refusals."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.control.exit_codes import Exit
from elastio.units import GB
from elastio_calibration.cli import options
from elastio_calibration.profile import save

from .values import APP, CONDITIONS, PLAN, PRICES, Golden, Shell, measured, profile

# Each dump meets the flush of the one before.
HASTY = ("--iterations", 3, "--checkpoints", 3, "--checkpoint-gb", 4, "--initial-gb", 6, "--iteration-s", 100)
SIZES = ("--initial-cache-gb", 10, "--checkpoint-cache-gb", 6)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("predict", ("predict", *APP, "--initial-cache-gb", 10)),
        ("predict_hasty", ("predict", *HASTY, *SIZES)),
        ("predict_sweep", ("predict", *HASTY, *SIZES, "--sweep", "Sc=2..6")),
        ("plan", ("plan", *PLAN, "--max-time", 1440)),
        ("plan_hasty", ("plan", *HASTY, "--csv")),
        ("plan_infeasible", ("plan", *PLAN, "--max-time", 1200)),
    ],
)
def test_prints_a_table(name: str, given: tuple[object, ...], elastio: Shell, made: Path, golden: Golden) -> None:
    result = elastio(*given, "--profile", made)
    golden(f"calibration/{name}.txt", result.stdout + result.stderr)
    assert result.exit_code == (Exit.FAILED if "infeasible" in name else Exit.OK)


def test_predicts_as_csv_and_json(elastio: Shell, made: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(elastio("predict", "--profile", made, *APP, *SIZES, "--csv").stdout)))
    document = json.loads(elastio("predict", "--profile", made, *APP, *SIZES, "--json").stdout)
    assert [float(r["completion_s"]) for r in rows] == [r["completion_s"] for r in document["setups"]]
    assert document["setups"][2]["checkpoint_cache_gb"] == 6


def test_notes_are_in_every_document(elastio: Shell, made: Path) -> None:
    for given in (("predict", *SIZES), ("predict", *SIZES, "--sweep", "Sc=4,5"), ("plan",)):
        assert json.loads(elastio(*given, "--profile", made, *HASTY, "--json").stdout)["notes"]


def test_draws_a_sweep_and_a_plan(elastio: Shell, made: Path, tmp_path: Path) -> None:
    for given in (("predict", *APP, *SIZES, "--sweep", "Sc=3..6"), ("plan", *PLAN)):
        assert elastio(*given, "--profile", made, "--png", tmp_path / f"{given[0]}.png").exit_code == 0
        assert (tmp_path / f"{given[0]}.png").stat().st_size > 5000


def test_recommends_the_cheapest_size_that_meets_the_deadline(elastio: Shell, made: Path) -> None:
    document = json.loads(elastio("plan", "--profile", made, *PLAN, "--max-time", 1440, "--json").stdout)
    assert document["recommended_gb"] == 8
    assert [c["cache_gb"] for c in document["choices"] if c["chosen"]] == [8]


def test_options_override_the_file_of_the_application(elastio: Shell, made: Path, tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text("[application]\ncheckpoint_gb = 6\ncheckpoints = 3\niteration_s = 400\niterations = 3\n")
    given = ("--profile", made, "--application", path, "--checkpoint-cache-gb", 8, "--json")
    large, small = (
        json.loads(elastio("predict", *given, *more).stdout)["setups"][2]["completion_s"]
        for more in ((), ("--checkpoint-gb", 4))
    )
    assert large > small


def test_another_backing_volume_has_no_price(elastio: Shell, made: Path) -> None:
    given = ("--profile", made, *APP, "--backing-gb", 500, "--json")
    for verb, key in (("predict", "setups"), ("plan", "choices")):
        document = json.loads(elastio(verb, *given, "--initial-cache-gb", 10).stdout)
        assert {row["cost"] for row in document[key]} == {None}
        assert document["notes"]


def test_a_minimal_calibration_predicts_its_application(elastio: Shell, tmp_path: Path) -> None:
    save(profile(measurements=(measured(4, 6), measured(6, 9))), tmp_path / "p.json")
    result = elastio("predict", "--profile", tmp_path / "p.json", *APP, "--json")
    assert json.loads(result.stdout)["setups"][2]["checkpoint_cache_gb"] == 6
    assert elastio("plan", "--profile", tmp_path / "p.json", *APP).exit_code == 0


def test_one_device_of_a_trace_is_named(elastio: Shell, made: Path, tmp_path: Path) -> None:
    rates = [100.0] * 60 + [0.0] * 400 + [100.0] * 40 + [0.0] * 20
    rows = [f"{d},{1000 + at},1,0,{rate}" for d in ("a", "b") for at, rate in enumerate(rates)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["device_uuid,begun_wall,seconds,read_mb_s,write_mb_s", *rows]) + "\n")
    given = ("predict", "--profile", made, "--learn-trace", path, "--initial-cache-gb", 10)
    assert elastio(*given).exit_code == Exit.FAILED
    assert elastio(*given, "--device", "b").exit_code == 0
    assert elastio("predict", "--profile", made, *APP, "--device", "b").exit_code == Exit.USAGE


# --- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        ("--checkpoint-gb", "1e300"),
        ("--iteration-s", "1e300"),
        ("--backing-gb", "1e300"),
        ("--initial-cache-gb", "1e300"),
        ("--initial-cache-gb", "20"),
        ("--pattern", "read"),
        ("--profile", "missing"),
    ],
)
def test_what_was_not_calibrated_is_one_line(given: tuple[str, str], elastio: Shell, made: Path) -> None:
    for verb in ("predict", "plan"):
        result = elastio(verb, "--profile", made, *APP, *given)
        assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (Exit.FAILED, 1, "")


@pytest.mark.parametrize(
    "given",
    [
        ("plan", "--max-time", "nan"),
        ("plan", "--max-time", "0"),
        ("plan", "--backing-gb", "inf"),
        ("plan", "--max-agbs", "-1"),
        ("plan", "--max-time", "1", "--max-cost", "1"),
        ("plan", "--json", "--csv"),
        ("predict", "--json", "--csv"),
        ("predict", "--png", "p.png"),
    ],
)
def test_wrong_usage(given: tuple[str, ...], elastio: Shell, made: Path) -> None:
    assert elastio(*given, "--profile", made, *PLAN).exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"backing_bytes": 500 * GB}, ("50 ", "500 GB")),
        ({"prices": replace(PRICES, currency="EUR")}, ("EUR", "USD")),
        ({"conditions": replace(CONDITIONS, instance_type="m5.xlarge")}, ("m5.large", "m5.xlarge")),
    ],
)
@pytest.mark.parametrize(("verb", "cache_mb_s"), [("predict", 128.0), ("plan", 128.0), ("plan", 256.0)])
def test_profiles_that_cannot_be_compared_are_refused(
    changes: dict[str, Any], named: tuple[str, str], verb: str, cache_mb_s: float, elastio: Shell, made: Path
) -> None:
    other = profile(**changes)
    save(replace(other, conditions=replace(other.conditions, cache_mb_s=cache_mb_s)), made.with_name("q.json"))
    result = elastio(verb, "--profile", made, "--profile", made.with_name("q.json"), *APP)
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
    assert all(word in result.stderr for word in named)


def test_sizes_that_are_not_candidates_are_reported(elastio: Shell, made: Path, tmp_path: Path) -> None:
    document = json.loads(made.read_text())
    document["measurements"] = [
        m for m in document["measurements"] if (m["dataset_bytes"], m["cache_bytes"]) != (6 * GB, 4 * GB)
    ]
    (tmp_path / "hole.json").write_text(json.dumps(document))
    given = ("plan", "--profile", tmp_path / "hole.json", *APP)
    found = json.loads(elastio(*given, "--json").stdout)
    (refused,) = found["refused"]
    assert [row["cache_gb"] for row in found["choices"]] == [6, 8, 10]
    assert refused in elastio(*given).stderr
    assert refused in elastio(*given, "--csv").stderr


@pytest.mark.parametrize(
    ("verb", "more"), [("predict", ("--sweep", "K=2..4", "--png")), ("plan", ("--png",)), ("plan", ("--csv", "--png"))]
)
def test_a_picture_in_a_directory_that_is_missing_is_one_line_before_anything_is_read(
    verb: str, more: tuple[str, ...], elastio: Shell, tmp_path: Path
) -> None:
    result = elastio(verb, "--profile", tmp_path / "none.json", *APP, *more, tmp_path / "deep" / "p.png")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (Exit.FAILED, 1, "")
    assert "deep" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("raw", [None, b"\xff\xfe{\x00", b'{"a": "\xe4"}'])
@pytest.mark.parametrize("option", ["--profile", "--application"])
def test_what_cannot_be_read_is_said_without_numbers_of_errors(
    option: str, raw: bytes | None, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    if raw is not None:
        path.write_bytes(raw)
    result = elastio("predict", "--profile", made, *APP, option, path)
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
    assert not {"Errno", "codec"} & set(re.findall(r"[A-Za-z]+", result.stderr))


def test_without_the_extra_one_line_names_it(elastio: Shell, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "EXTRA", ("no_such_library",))
    for arguments in (("predict", "--profile", made, *APP), ("plan", "--profile", made, *APP), ("calibrate", "--sim")):
        result = elastio(*arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)
        assert "pip install '.[calibration]'" in result.stderr
