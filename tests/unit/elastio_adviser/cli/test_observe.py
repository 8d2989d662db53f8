"""`elastio observe`: samples of a disk, the verdict on them, and what `simulate --trace` says of the same samples.

The guard of `tests/conftest.py` ends every test that would reach a cloud.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from elastio.control.exit_codes import Exit
from elastio.units import GIB, MB, SECTOR
from elastio_cli.app import App
from elastio_cli.main import main

Golden = Callable[[str, str], None]


@dataclass
class Disk:
    """A machine with the disk vdb of 200 GiB, its clock, and the MB/s that it writes in each second."""

    root: Path
    rates: tuple[float, ...]
    at: float = 1000.0
    ends_at: float = math.inf
    gone_at: float = math.inf

    def __post_init__(self) -> None:
        self.block = self.root / "sys/class/block/vdb"
        self.block.mkdir(parents=True)
        (self.block / "size").write_text(f"{200 * GIB // SECTOR}\n")
        self.begin = self.at
        self._write()

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return 1_790_000_000.0 + self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        if self.at - self.begin > self.ends_at:
            raise KeyboardInterrupt
        if self.at - self.begin > self.gone_at:
            (self.block / "stat").unlink()
            return
        self._write()

    def _write(self) -> None:
        moved = sum(mb_s * min(1.0, max(0.0, self.at - self.begin - n)) for n, mb_s in enumerate(self.rates))
        fields = ["7", "0", "0", "3", "9", "0", str(int(moved * MB / SECTOR)), *["0"] * 10]
        (self.block / "stat").write_text(f"{' '.join(fields)}\n")

    def run(self, *args: str) -> Result:
        app = App(root=self.root, clock=self, sleep=self.sleep)
        return CliRunner().invoke(main, list(args), obj=app, catch_exceptions=False)


# A dump at the limit of the volume, ten minutes, twice.
BURSTS = (*[1.0] * 60, *[131.0] * 60, *[0.5] * 180) * 2


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path / "root", BURSTS)


def test_the_verdict_is_that_of_simulate_on_the_same_samples(disk: Disk, tmp_path: Path, golden: Golden) -> None:
    out = str(tmp_path / "vdb.csv")
    seen = disk.run("observe", "vdb", "--out", out, "--hour-value", "1.5")
    assert seen.exit_code == 0, seen.output
    golden("observe.txt", seen.output)
    again = next(line for line in seen.output.splitlines() if line.startswith("The same from the samples: "))
    command = shlex.split(again.partition(": ")[2])
    assert command[:2] == ["elastio", "simulate"]
    simulated = disk.run(*command[1:]).output
    assert simulated.splitlines()[-1] == seen.output.splitlines()[-1]


def test_every_figure_is_that_of_simulate_on_the_same_samples(disk: Disk, tmp_path: Path) -> None:
    ours = tmp_path / "ours.toml"
    ours.write_text('currency = "EUR"\nper_gib_hour = 1e-4\nper_mb_s_hour = 5e-5\nminimum_s = 60\n')
    options = ("--tariff", str(ours), "--backing-mb-s", "131", "--no-cold", "--initial-gib", "20")
    seen = disk.run("observe", "vdb", "--out", str(tmp_path / "vdb.csv"), *options, "--json")
    found = json.loads(seen.stdout)
    simulated = json.loads(disk.run(*found["again"][1:], "--json").stdout)
    assert simulated.pop("said") == []
    for answer in (found["answer"], simulated):
        for way in answer["policies"]:
            del way["timeline"]  # only `simulate` draws
    assert simulated == found["answer"]
    assert found["answer"]["policies"][0]["phases"]
    assert found["answer"]["currency"] == "EUR"


def test_samples_are_kept_as_a_trace_of_what_the_disk_moved(disk: Disk, tmp_path: Path) -> None:
    disk.run("observe", "vdb", "--for", "90s", "--interval", "30s", "--out", str(tmp_path / "t.csv"))
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines[0] == "begun_wall,seconds,read_mb_s,write_mb_s"
    rows = [[float(cell) for cell in line.split(",")] for line in lines[1:]]
    assert [(begun - 1_790_001_000, seconds) for begun, seconds, _, _ in rows] == [(0, 30), (30, 30), (60, 30)]
    assert [written for *_, written in rows] == pytest.approx([1.0, 1.0, 131.0], rel=1e-4)


@pytest.mark.parametrize(
    ("ends_at", "gone_at"), [(100.5, math.inf), (math.inf, 100.5)], ids=["Ctrl-C", "the disk is gone"]
)
def test_what_ends_early_has_the_verdict_on_what_was_seen(ends_at: float, gone_at: float, tmp_path: Path) -> None:
    disk = Disk(tmp_path / "root", BURSTS, ends_at=ends_at, gone_at=gone_at)
    result = disk.run("observe", "/dev/vdb", "--no-cold")
    assert result.exit_code == 0, result.output
    assert "Seen: 1 min 40 s" in result.output


def test_the_size_of_the_volume_may_be_another(disk: Disk) -> None:
    found = json.loads(disk.run("observe", "vdb", "--for", "120s", "--size-gib", "500", "--json").stdout)
    assert found["answer"]["static"][0]["per_month"] == pytest.approx(40.0)
    assert found["device"] == {"name": "vdb", "size_bytes": 200 * GIB}
    assert found["again"] == []


def test_a_disk_that_moves_nothing_says_nothing(tmp_path: Path) -> None:
    result = Disk(tmp_path, (0.0,) * 10).run("observe", "vdb", "--for", "10s")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")


def test_a_file_that_exists_is_not_replaced(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "kept.csv").write_text("kept")
    result = disk.run("observe", "vdb", "--out", str(tmp_path / "kept.csv"))
    assert (result.exit_code, result.output.count("\n")) == (Exit.FAILED, 1)
    assert (tmp_path / "kept.csv").read_text() == "kept"
    assert disk.at == disk.begin


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["vdz"], Exit.FAILED),
        (["/dev/nope"], Exit.FAILED),
        (["vdb", "--for", "10x"], Exit.USAGE),
        (["vdb", "--for", "0s"], Exit.USAGE),
        (["vdb", "--for", "32d"], Exit.USAGE),
        (["vdb", "--interval", "1ms"], Exit.USAGE),
        (["vdb", "--tariff", "nope"], Exit.USAGE),
        (["vdb", "--tariff", "gp3", "--currency", "EUR"], Exit.USAGE),
        (["vdb", "--cache-mb-s", "2000"], Exit.USAGE),
    ],
)
def test_what_cannot_be_observed_is_refused_before_it_begins(args: list[str], code: int, disk: Disk) -> None:
    assert disk.run("observe", *args).exit_code == code
    assert disk.at == disk.begin
