"""The record: resumed, cut at an incomplete line, refused where damaged or of other conditions."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from elastio.units import GB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Price
from elastio_calibration.record import Entry, Header, RecordFile, SavedState, read
from elastio_calibration.schedule import PRESETS, Point, Preset, estimate, schedule
from tests.fixtures.errors import refused

from .values import CONDITIONS, PRICES, measured

HEADER = Header(CONDITIONS, 50 * GB, "2026-11-20T08:00:00+00:00", "elastio 0.1.0", PRICES)
POINT = Point(4 * GB, 6 * GB)
CACHES = f'"caches":{json.dumps([asdict(p) for p in PRICES.caches], separators=(",", ":"))}'
PLAN = schedule(Preset((4,), (6,), 2), static=False)


@pytest.fixture
def file(tmp_path: Path) -> RecordFile:
    return RecordFile(tmp_path / "record.jsonl")


def test_a_directory_that_is_missing_is_not_made(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "deep" / "record.jsonl")
    with pytest.raises(CalibrationError):
        file.begin(HEADER)
    with pytest.raises(CalibrationError), file.locked():
        raise AssertionError("the lock is held on no file")
    assert list(tmp_path.iterdir()) == []


def test_is_read_as_it_was_written(file: RecordFile) -> None:
    assert file.begin(HEADER).entries == ()
    made, failed = Entry(POINT, measured(4, 6), 200.0), Entry(POINT, None, 3.0, "no cache came about")
    file.append(made)
    file.append(failed)
    found = read(file.path)
    assert found.header == HEADER
    assert found.entries == (made, failed)
    assert found.measurements() == (measured(4, 6),)


def test_failed_and_missing_points_remain(file: RecordFile) -> None:
    file.begin(HEADER)
    file.append(Entry(POINT, None, 3.0, "no cache came about"))
    assert read(file.path).remaining(PLAN) == (POINT, POINT)
    file.append(Entry(POINT, measured(4, 6), 200.0))
    assert read(file.path).remaining(PLAN) == (POINT,)
    file.append(Entry(POINT, measured(4, 6, 1.01), 200.0))
    assert read(file.path).remaining(PLAN) == ()


def test_continues_after_an_incomplete_line(file: RecordFile) -> None:
    file.begin(HEADER)
    file.append(Entry(POINT, measured(4, 6), 200.0))
    whole = file.path.read_bytes()
    file.path.write_bytes(whole + b'{"kind":"measurement","wan')
    assert len(file.begin(HEADER).entries) == 1
    assert file.path.read_bytes() == whole
    file.append(Entry(POINT, measured(4, 6), 200.0))
    assert len(read(file.path).entries) == 2


def test_keeps_the_agents_state_until_it_is_restored(file: RecordFile) -> None:
    file.begin(HEADER)
    assert read(file.path).saved is None
    file.keep(SavedState(None, True))
    file.append(Entry(POINT, measured(4, 6), 200.0))
    assert file.begin(HEADER).saved == SavedState(None, True)
    file.keep(None)
    found = read(file.path)
    assert (found.saved, len(found.entries)) == (None, 1)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}\n",
        "nonsense\n",
        "[]\n",
        '{"format":"elastio-calibration-record","version":9}\n',
        '{"format":"elastio-calibration-record","version":1}\n',
    ],
)
def test_a_file_that_is_not_a_record_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "r").write_text(text)
    with pytest.raises(CalibrationError) as caught:
        read(tmp_path / "r")
    assert (caught.value.code == "version") == (text is not None and text.endswith('"version":9}\n'))


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        ('"cache_mb_s":128.0', '"cache_mb_s":"abc"', 1),
        ('"cache_mb_s":128.0', '"cache_mb_s":-1', 1),
        ('"cache_mb_s":128.0', '"cache_mb_s":0', 1),
        ('"cache_mb_s":128.0,', "", 1),
        (CACHES, '"caches":[3]', 1),
        ('"kind":"measurement"', '"kind":"other"', 2),
        ('"seconds":40.0', '"seconds":Infinity', 2),
        ('"seconds":40.0', '"seconds":1e999', 2),
        ('"seconds":40.0', '"seconds":0', 2),
        ('"written_through_bytes":0', '"written_through_bytes":0.5', 2),
        ('"setup":"adaptive"', '"setup":"fast"', 2),
        ('"took_s":200.0,', "", 2),
        ('"paused":true', '"paused":"no"', 3),
        ('"learned_bytes":1,', '"learned_bytes":"1",', 3),
        ('{"learned_bytes":1,"paused":true}', "[]", 3),
    ],
)
def test_a_damaged_line_is_named(before: str, after: str, line: int, file: RecordFile) -> None:
    file.begin(HEADER)
    file.append(Entry(POINT, measured(4, 6, seconds=40.0), 200.0))
    file.keep(SavedState(1, True))
    text = file.path.read_text()
    assert before in text
    file.path.write_text(text.replace(before, after, 1))
    with refused(CalibrationError, f"line.{line}"):
        read(file.path)


def test_a_failure_may_hold_any_character(file: RecordFile) -> None:
    file.begin(HEADER)
    file.append(Entry(POINT, None, 3.0, "no\u2028cache"))
    file.path.write_text(file.path.read_text().replace("\\u2028", "\u2028"))
    assert read(file.path).entries[0].failure == "no\u2028cache"


def test_prices_that_become_known_are_added(file: RecordFile) -> None:
    file.begin(replace(HEADER, prices=None))
    file.append(Entry(POINT, measured(4, 6), 200.0))
    assert file.begin(HEADER).header.prices == PRICES
    larger = replace(PRICES, slow_per_hour=0.03, caches=(Price(20 * GB, 0.02),))
    found = file.begin(replace(HEADER, prices=larger)).header.prices
    assert found == replace(larger, caches=(*PRICES.caches, *larger.caches))
    assert (read(file.path).header.prices, len(read(file.path).entries)) == (found, 1)


def test_known_prices_are_kept_and_not_written_again(file: RecordFile) -> None:
    file.begin(HEADER)
    before = file.path.read_bytes()
    for prices in (PRICES, replace(PRICES, caches=PRICES.caches[:1]), None):
        assert file.begin(replace(HEADER, prices=prices)).header.prices == PRICES
    assert file.path.read_bytes() == before


@pytest.mark.parametrize(
    "changes",
    [{"conditions": replace(CONDITIONS, kernel="6.12")}, {"prices": replace(PRICES, currency="EUR")}],
)
def test_is_not_continued_under_other_conditions(changes: dict[str, Any], file: RecordFile) -> None:
    file.begin(HEADER)
    with refused(CalibrationError, "conditions"):
        file.begin(replace(HEADER, **changes))


# --- the schedule ------------------------------------------------------------------------------------------


def test_rounds_cover_the_grid_before_anything_is_repeated() -> None:
    plan = schedule(Preset((3, 4), (6,), 2))
    assert len(plan.rounds()) == 8
    assert {point for _, point in plan.rounds()[:4]} == set(plan.points)
    assert [p.cache_bytes for p in plan.points] == [6 * GB, 6 * GB, 0, 0]


def test_the_minimal_plan_pairs_each_dataset_with_one_cache() -> None:
    points = schedule(PRESETS["minimal"], static=False).points
    assert [(p.dataset_bytes // GB, p.cache_bytes // GB) for p in points] == [(4, 6), (5, 10)]
    with refused(CalibrationError, "pairs"):
        schedule(Preset((3, 4), (6,), 1, paired=True))


@pytest.mark.parametrize(
    ("preset", "scale"),
    [
        (Preset((), (6,), 1), 1.0),
        (Preset((4,), (), 1), 1.0),
        (Preset((4,), (6,), 0), 1.0),
        (Preset((4, 0), (6,), 1), 1.0),
        (Preset((4,), (6,), 1), 1e9),
    ],
)
def test_refuses_a_plan_that_measures_nothing_or_too_much(preset: Preset, scale: float) -> None:
    with pytest.raises(CalibrationError):
        schedule(preset, scale=scale)


def test_estimates_time_agbs_and_cost() -> None:
    found = estimate([POINT, Point(4 * GB)], CONDITIONS, PRICES)
    cached_s = 4000 / 128 + 4000 / 33 + 30
    assert found.seconds == pytest.approx(cached_s + 4000 / 33 + 15)
    assert found.agbs == pytest.approx(128 * 6 * cached_s)
    assert found.cost == pytest.approx(0.012 * cached_s / 3600)  # the next larger size that was quoted
    assert estimate([POINT], CONDITIONS, None).cost is None
    assert estimate([Point(4 * GB, 20 * GB)], CONDITIONS, PRICES).cost is None
