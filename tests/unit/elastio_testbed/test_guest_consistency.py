"""The checker detects stale, too new and foreign data, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.faults.consistency import TRANSITIONS, Consistency
from elastio_testbed.guest import consistency as checker
from elastio_testbed.guest.consistency import BLOCK, Shared, Worker, block_of, defect_in, restamp

SEED = 3


def two_blocks(first_version: int, second_version: int) -> bytes:
    return block_of(7, first_version, SEED) + block_of(8, second_version, SEED)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (two_blocks(4, 9), None),
        (two_blocks(5, 9), None),
        (two_blocks(3, 9), "stale"),
        (two_blocks(5, 10), "future"),
        (two_blocks(5, 9)[:BLOCK] + block_of(9, 9, SEED), "foreign"),
        (two_blocks(5, 9)[:BLOCK] + block_of(8, 9, SEED + 1), "foreign"),
        (bytes(2 * BLOCK), "foreign"),
    ],
)
def test_a_read_lies_between_what_had_completed_and_what_had_begun(data: bytes, kind: str | None) -> None:
    found = defect_in(data, 7, [4, 9], [5, 9], SEED)
    assert (found and found["kind"]) == kind


def test_a_write_in_flight_may_be_seen_in_part_but_an_older_sector_may_not() -> None:
    new, old, older = (block_of(7, version, SEED) for version in (6, 5, 4))
    assert defect_in(new[:2048] + old[2048:], 7, [5], [6], SEED) is None
    found = defect_in(new[:3584] + older[3584:], 7, [5], [6], SEED)
    assert found == {"block": 7, "sector": 7, "version": 4, "kind": "stale", "completed": 5}


# --- a region on a file ----------------------------------------------------------------------------------------------


@pytest.fixture
def workers(tmp_path: Path) -> tuple[Path, Worker, Worker]:
    """A writer and a reader of one region that run in turn."""
    device = tmp_path / "device"
    device.write_bytes(bytes(80 * BLOCK))
    region: dict[str, Any] = {"offset": 16 * BLOCK, "blocks": 64, "direct": False, "writers": 1, "readers": 1}
    spec = {"device": str(device), "seed": SEED, "report": str(tmp_path / "report"), "speed": str(tmp_path / "speed")}
    shared = Shared(region)
    writer, reader = Worker(spec, region, shared, 0), Worker(spec, region, shared, 1)
    writer.fill()
    return device, writer, reader


def test_what_was_written_is_what_is_read(workers: tuple[Path, Worker, Worker]) -> None:
    device, writer, reader = workers
    for _ in range(50):
        writer.write_step()
        assert reader.read_step() is None
    assert writer.sweep() == []
    assert checker.totals([writer.region], [writer.shared]) == {"writes": 50, "reads": 50, "wrong": 0}
    assert device.read_bytes()[: 16 * BLOCK] == bytes(16 * BLOCK), "nothing outside the region is changed"


def test_a_block_that_reverts_to_old_data_is_detected(
    workers: tuple[Path, Worker, Worker],
) -> None:
    device, writer, reader = workers
    before = device.read_bytes()
    while writer.shared.completed[5] == 1:
        writer.write_step()
    with device.open("r+b") as file:
        file.seek((16 + 5) * BLOCK)
        file.write(before[(16 + 5) * BLOCK : (16 + 6) * BLOCK])
    assert reader.check(0, 16) is not None
    assert [(found["kind"], found["block"]) for found in writer.sweep()] == [("stale", 5)]


def test_a_short_read_is_a_defect(workers: tuple[Path, Worker, Worker]) -> None:
    device, _, reader = workers
    os.truncate(device, 20 * BLOCK)
    assert reader.check(2, 16) == {"kind": "short", "block": 2, "bytes": 2 * BLOCK}


def test_the_default_speed_is_slow(tmp_path: Path) -> None:
    path = tmp_path / "speed"
    assert checker.speed_in(str(path)) == checker.SLOW
    for text, speed in (("full\n", checker.FULL), ("stop", checker.STOP), ("", checker.SLOW)):
        path.write_text(text)
        assert checker.speed_in(str(path)) == speed


# --- the result of a run -------------------------------------------------------------------------------------------


def seen(**changes: Any) -> Consistency:
    whole: dict[str, Any] = {
        "reads": 10,
        "writes": 10,
        "wrong": 0,
        "stale_at_rest": 0,
        "fio_passes": 2,
        "fio_failed": False,
        "transitions": tuple(TRANSITIONS),
        "boosts": 2,
        "examples": (),
    }
    return Consistency(**{**whole, **changes})


def test_a_run_is_consistent_only_without_any_wrong_read() -> None:
    assert seen().is_consistent
    for flaw in ({"wrong": 1}, {"stale_at_rest": 1}, {"fio_failed": True}):
        assert not seen(**flaw).is_consistent


def test_a_run_that_skipped_something_is_not_complete() -> None:
    assert seen().is_complete
    for gap in ({"boosts": 1}, {"fio_passes": 0}, {"transitions": tuple(sorted(TRANSITIONS))[1:]}):
        assert not seen(**gap).is_complete


def test_restamped_blocks_are_the_same_as_new_ones() -> None:
    for version in (2, 255, 256, 70_000):
        data = bytearray(b"".join(block_of(index, 1, SEED) for index in range(3)))
        restamp(data, version)
        assert data == b"".join(block_of(index, version, SEED) for index in range(3))
