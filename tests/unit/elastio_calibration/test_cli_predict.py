"""What `elastio predict` and `plan` say beside their figures, and what they refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from elastio.control.exit_codes import Exit
from elastio.units import GB
from elastio_calibration.profile import save

from .values import APP, CONDITIONS, PRICES, Shell, measured, profile

HASTY = ("--iterations", 3, "--checkpoints", 3, "--checkpoint-gb", 4, "--initial-gb", 6, "--iteration-s", 100)


def test_what_is_doubtful_is_told_beside_every_form(elastio: Shell, made: Path) -> None:
    given = ("--profile", made, *HASTY, "--initial-cache-gb", 10, "--checkpoint-cache-gb", 6)
    swept, planned = ("--sweep", "Sc=4,5"), ("plan", "--profile", made, *HASTY)
    said = "which no calibration covers"
    assert said in elastio("predict", *given).stdout
    assert said in elastio("predict", *given, "--csv").stderr
    for result in (elastio("predict", *given, *swept), elastio("predict", *given, *swept, "--csv")):
        assert re.search(rf"^adaptive: .*{said}", result.stderr, re.MULTILINE)
    for result in (elastio(*planned), elastio(*planned, "--csv")):
        assert re.search(rf"^cache GB 10: adaptive: .*{said}", result.stderr, re.MULTILINE)
    for arguments in (("predict", *given), ("predict", *given, *swept), planned):
        assert said in str(json.loads(elastio(*arguments, "--json").stdout)["notes"])


def test_another_backing_volume_has_no_price(elastio: Shell, made: Path) -> None:
    given = ("--profile", made, *APP, "--backing-gb", 500)
    for result in (elastio("predict", *given, "--initial-cache-gb", 10), elastio("plan", *given)):
        assert "USD" not in result.stdout
        assert result.output.count("no cost: the prices are of a backing volume of 50 GB") == 1


@pytest.mark.parametrize("changes", [{"backing_bytes": 500 * GB}, {"prices": replace(PRICES, currency="EUR")}])
@pytest.mark.parametrize("cache_mb_s", [128.0, 256.0])
def test_profiles_that_cannot_stand_side_by_side_are_refused(
    changes: dict[str, Any], cache_mb_s: float, elastio: Shell, made: Path, tmp_path: Path
) -> None:
    other = replace(profile(**changes), conditions=replace(CONDITIONS, cache_mb_s=cache_mb_s))
    save(other, tmp_path / "q.json")
    result = elastio("plan", "--profile", made, "--profile", tmp_path / "q.json", *APP)
    assert result.exit_code == Exit.FAILED
    assert "say with --backing-gb" in result.stderr or "prices in EUR and USD" in result.stderr


def test_a_minimal_calibration_predicts_its_application(elastio: Shell, tmp_path: Path) -> None:
    save(profile(measurements=(measured(4, 6), measured(6, 9))), tmp_path / "p.json")
    result = elastio("predict", "--profile", tmp_path / "p.json", *APP)
    assert "Caches bought by adaptive, in GB: 9, 6, 6, 6." in result.stdout
    assert elastio("plan", "--profile", tmp_path / "p.json", *APP).exit_code == 0


@pytest.mark.parametrize("option", ["--backing-gb", "--initial-cache-gb", "--checkpoint-gb", "--iteration-s"])
def test_numbers_that_nothing_has_are_one_sentence(option: str, elastio: Shell, made: Path) -> None:
    for verb in ("predict", "plan"):
        result = elastio(verb, "--profile", made, *APP, option, "1e300")
        assert result.exit_code == Exit.FAILED
        assert result.stderr.count("\n") == 1


def test_one_device_of_a_trace_is_named(elastio: Shell, made: Path, tmp_path: Path) -> None:
    rates = [100.0] * 60 + [0.0] * 400 + [100.0] * 40 + [0.0] * 20
    rows = [f"{d},{1000 + at},1,0,{rate}" for d in ("a", "b") for at, rate in enumerate(rates)]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["device_uuid,begun_wall,seconds,read_mb_s,write_mb_s", *rows]) + "\n")
    given = ("predict", "--profile", made, "--learn-trace", path, "--initial-cache-gb", 10)
    assert "name one with --device (a, b)" in elastio(*given).stderr
    assert elastio(*given, "--device", "b").exit_code == 0
    assert elastio("predict", "--profile", made, *APP, "--device", "b").exit_code == Exit.USAGE


def test_sizes_that_are_not_in_the_plan_are_told(elastio: Shell, made: Path, tmp_path: Path) -> None:
    document = json.loads(made.read_text())
    document["measurements"] = [
        m for m in document["measurements"] if (m["dataset_bytes"], m["cache_bytes"]) != (6 * GB, 4 * GB)
    ]
    (tmp_path / "hole.json").write_text(json.dumps(document))
    given = ("plan", "--profile", tmp_path / "hole.json", *APP)
    refusal = "a cache of 4 GB at 128 MB/s cannot be offered"
    assert refusal in elastio(*given).stderr
    assert refusal in elastio(*given, "--csv").stderr
    assert refusal in str(json.loads(elastio(*given, "--json").stdout)["refused"])
