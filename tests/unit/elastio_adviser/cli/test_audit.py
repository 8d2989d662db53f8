"""`elastio audit`: one verdict for each volume of the files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio.control.exit_codes import Exit
from elastio_cli.main import main

METRICS = Path(__file__).parents[3] / "fixtures" / "metrics"
Golden = Callable[[str, str], None]


def audit(*args: str) -> Result:
    return CliRunner().invoke(main, ["audit", *args])


def metrics(*names: str) -> list[str]:
    return [str(METRICS / name) for name in names]


def test_every_volume_gets_a_verdict(golden: Golden) -> None:
    files = metrics("get-metric-data.json", "rate_read.json", "rate_written.json")
    result = audit(*files, "--size-gib", "500")
    assert result.exit_code == 0, result.output
    golden("audit.txt", result.output.replace(str(METRICS), "METRICS"))


def test_with_the_price_of_an_hour_the_volumes_are_added_up(golden: Golden) -> None:
    sizes = ("--size", "vol-0a1b2c3d4e5f60718=500", "--size", "vol-0fedcba9876543210=1000")
    result = audit(*metrics("get-metric-data.json"), *sizes, "--hour-value", "0.5", "--no-cold")
    assert result.exit_code == 0, result.output
    golden("audit_hour_value.txt", result.output.replace(str(METRICS), "METRICS"))


def test_details_are_the_whole_table(golden: Golden) -> None:
    result = audit(*metrics("counters.json"), "--size-gib", "100", "--details", "--backing-mb-s", "267")
    assert result.exit_code == 0, result.output
    golden("audit_details.txt", result.output.replace(str(METRICS), "METRICS"))


def test_json_has_both_bounds_of_coarse_samples_and_none_of_fine_ones() -> None:
    found = json.loads(audit(*metrics("get-metric-data.json", "sadf.json"), "--size-gib", "500", "--json").output)
    fine, coarse, other = found["volumes"]
    assert [each["volume"] for each in (fine, coarse)] == ["db1 nvme1n1", "vol-0a1b2c3d4e5f60718"]
    assert (fine["interval_s"], fine["as_bursts"]) == (1.0, None)
    assert coarse["interval_s"] == 300
    assert not coarse["evenly"]["worth_it"]
    assert coarse["as_bursts"]["worth_it"]
    assert coarse["written_gb"] == pytest.approx(16.0, rel=0.01)
    assert other["seen_s"] == 3600


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], Exit.USAGE),  # no size
        (["--size", "vol-0a1b2c3d4e5f60718=500"], Exit.USAGE),  # not of both
        (["--size", "500"], Exit.USAGE),
        (["--size", "vol-00000000=500", "--size-gib", "500"], Exit.USAGE),  # in no file
        (["--size", "vol-0=none"], Exit.USAGE),
        (["--size-gib", "500", "--cache-mb-s", "2000"], Exit.USAGE),
        (["--size-gib", "500", "--tariff", "nope"], Exit.USAGE),
    ],
)
def test_what_cannot_be_computed_is_refused(options: list[str], code: int) -> None:
    assert audit(*metrics("get-metric-data.json"), *options).exit_code == code


def test_a_file_of_no_known_format_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    result = audit(str(tmp_path / "x.json"), "--size-gib", "1")
    assert (result.exit_code, result.output.count("\n")) == (Exit.FAILED, 1)
