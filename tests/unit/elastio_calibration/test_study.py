"""The stages after measuring, from a record alone."""

from __future__ import annotations

import pytest

from elastio.units import GB
from elastio_calibration.errors import CalibrationError
from elastio_calibration.record import Entry, Header, Record
from elastio_calibration.schedule import Point
from elastio_calibration.study import make_profile, solve, study, study_text

from .values import CONDITIONS, PRICES, cached, grid, measured

HEADER = Header(CONDITIONS, 50 * GB, "2026-11-20T08:00:00+00:00", "elastio 0.1.0", PRICES)


def record(*made: object) -> Record:
    return Record(HEADER, tuple(Entry(Point(4 * GB, 6 * GB), m, 1.0) for m in made))  # type: ignore[arg-type]


def test_flags_single_measurements_outliers_and_failures() -> None:
    odd = record(measured(4, 6), measured(4, 6, 1.001), measured(4, 6, 0.8), measured(3, 6))
    failed = Entry(Point(4 * GB, 6 * GB), None, 1.0, "no cache came about")
    flags = study(Record(HEADER, (*odd.entries, failed))).flags
    assert len(flags) == 4


def test_a_record_without_a_cache_is_refused() -> None:
    with pytest.raises(CalibrationError):
        study(record())


def test_solves_the_errors_and_flags_what_cannot_be_predicted() -> None:
    full = solve(grid(0.99, 1.01))
    assert full.flags == ()
    assert full.freedom == 12
    assert full.throughput_noise == pytest.approx(0.01 * 2**0.5, rel=1e-3)
    assert full.holding_interpolation < 0.02
    poor = solve([measured(4, 6)])
    assert poor.freedom == 0
    assert len(poor.flags) == 2


def test_the_profile_holds_everything_that_was_measured() -> None:
    made = make_profile(record(*cached(1.0)))
    assert made.measurements == cached(1.0)
    assert (made.conditions, made.prices, made.backing_bytes) == (CONDITIONS, PRICES, 50 * GB)


def test_the_study_is_a_table() -> None:
    lines = study_text(study(record(*cached(0.99, 1.01)))).splitlines()
    assert len(lines) == 1 + 12
    assert lines[1].split() == ["adaptive", "write", "3", "4", "2", "88.9", "2.0%", "130.9"]
