from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.guest import workload

MIB = 1 << 20


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    return {"directory": str(tmp_path), "ranks": 2, "dumps": [4 * MIB, 2 * MIB], "compute_s": 0, "seed": 7}


def test_every_dump_is_reported_with_its_bytes_and_verifies(spec: dict[str, Any], tmp_path: Path) -> None:
    report = tmp_path / "report"
    workload.run(spec, str(report))
    *dumps, end = [json.loads(line) for line in report.read_text().splitlines()]
    assert end == {"done": True}
    assert [d["bytes"] for d in dumps] == [4 * MIB, 2 * MIB]
    assert all(d["ended"] >= d["began"] for d in dumps)
    verified = workload.verify(spec)
    assert verified["ok"]
    assert len(verified["checksums"]) == 4


def test_a_failing_rank_ends_the_run_with_an_error(spec: dict[str, Any], tmp_path: Path) -> None:
    report = tmp_path / "report"
    workload.run({**spec, "directory": str(tmp_path / "missing")}, str(report))
    assert json.loads(report.read_text().splitlines()[-1]) == {"error": "a rank failed"}


@pytest.mark.parametrize("offset", [0, 70_000, 2 * MIB - 1])
def test_a_single_wrong_byte_is_detected(spec: dict[str, Any], tmp_path: Path, offset: int) -> None:
    workload.run(spec, str(tmp_path / "report"))
    path = tmp_path / "dump-0-rank-1"
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    verified = workload.verify(spec)
    assert not verified["ok"]
    assert verified["wrong"] == [{"file": str(path), "block": offset // MIB}]


def test_a_misplaced_block_is_detected(spec: dict[str, Any], tmp_path: Path) -> None:
    workload.run(spec, str(tmp_path / "report"))
    path = tmp_path / "dump-0-rank-0"
    data = path.read_bytes()
    path.write_bytes(data[:MIB] + data[:MIB])
    assert not workload.verify(spec)["ok"]


def test_a_file_longer_than_written_is_detected(spec: dict[str, Any], tmp_path: Path) -> None:
    workload.run(spec, str(tmp_path / "report"))
    with (tmp_path / "dump-1-rank-0").open("ab") as file:
        file.write(b"x")
    assert not workload.verify(spec)["ok"]
