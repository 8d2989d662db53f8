"""fio's command and what it prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from elastio.errors import HostError
from elastio.units import MIB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.fio import Fio, seconds_of


def printed(read_bytes: int, write_bytes: int, runtime_ms: int = 2500, error: int = 0) -> str:
    job = {
        "jobname": "dataset",
        "error": error,
        "job_runtime": runtime_ms,
        "read": {"io_bytes": read_bytes},
        "write": {"io_bytes": write_bytes},
    }
    return json.dumps({"fio version": "fio-3.33", "jobs": [job]})


def together(*texts: str) -> str:
    return json.dumps({"jobs": [job for text in texts for job in json.loads(text)["jobs"]]})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param(printed(30 * MIB, 70 * MIB), 2.5, id="reads and writes count together"),
        pytest.param(together(printed(0, 50 * MIB, 2000), printed(0, 50 * MIB, 3000)), 3.0, id="jobs run at once"),
        pytest.param(printed(0, 99 * MIB, 9900), 10.0, id="scaled to the whole dataset"),
        pytest.param(f"fio: this is not supported\n{printed(100 * MIB, 0)}", 2.5, id="warning before the JSON"),
    ],
)
def test_the_longest_job_counts_for_the_whole_dataset(text: str, seconds: float) -> None:
    assert seconds_of(text, 100 * MIB) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    [
        "nothing",
        "{}",
        '{"jobs": []}',
        '{"jobs": [{"error": 0}]}',
        printed(MIB, 0, error=28),
        printed(MIB // 2, 0),
        printed(MIB, 0, runtime_ms=0),
    ],
)
def test_refuses_output_that_is_not_a_measurement(text: str) -> None:
    with pytest.raises(CalibrationError):
        seconds_of(text, MIB)


@pytest.mark.parametrize(("pattern", "rw", "block"), [("read", "read", MIB), ("random", "randrw", 16384)])
def test_every_job_moves_its_share_over_the_files_that_were_laid_out(
    pattern: str, rw: str, block: int, tmp_path: Path
) -> None:
    asked: list[Sequence[str]] = []
    calls: list[dict[str, Any]] = []

    def call(argv: Sequence[str], *, timeout_s: float) -> str:
        asked.append(argv)
        given = dict(word.removeprefix("--").split("=", 1) for word in argv if "=" in word)
        calls.append(given)
        return printed(0, int(given["size"]) * int(given["numjobs"]))

    fio = Fio(tmp_path, 4, call)
    fio.lay_out(100 * MIB)
    assert fio.run(pattern, 100 * MIB) == 2.5
    laid_out, ran = calls
    assert (laid_out["rw"], ran["rw"], int(ran["bs"])) == ("write", rw, block)
    same = ("name", "directory", "size", "numjobs")
    assert [laid_out[key] for key in same] == [ran[key] for key in same]
    assert int(ran["size"]) == 25 * MIB
    assert Path(ran["directory"]).parent == tmp_path
    assert all("--thread" in argv for argv in asked)


def test_a_program_that_is_missing_is_a_failed_measurement(tmp_path: Path) -> None:
    def missing(argv: Sequence[str], *, timeout_s: float) -> str:
        raise HostError(f"{argv[0]} is not installed")

    with pytest.raises(CalibrationError):
        Fio(tmp_path, 1, missing).run("random", MIB)
