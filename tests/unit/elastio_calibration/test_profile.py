"""The profile file: written, validated, read, merged and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from elastio.units import GB
from elastio_calibration.curves import throughput
from elastio_calibration.errors import CalibrationError
from elastio_calibration.measurement import Price
from elastio_calibration.profile import from_document, load, merge, save, schema, to_document
from tests.fixtures.errors import refused
from tests.values import present

from .values import PRICES, measured, profile

DEARER = replace(PRICES, slow_per_hour=0.1, fast_per_hour=None, caches=(Price(12 * GB, 0.12), Price(20 * GB, 0.2)))


def test_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = profile(0.99, 1.01)
    save(made, tmp_path / "p.json")
    assert load(tmp_path / "p.json") == made
    assert not list((tmp_path).glob(".*"))
    (tmp_path / "p.json").write_text("\ufeff" + (tmp_path / "p.json").read_text())
    assert load(tmp_path / "p.json") == made  # as some editors write it


def test_a_profile_follows_the_published_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(json.dumps(to_document(profile(prices=None)))), schema())


@pytest.mark.parametrize(
    "change",
    [{"format": "x"}, {"version": 2}, {"measurements": []}, {"backing_bytes": -1}, {"extra": 1}, {"conditions": {}}],
)
def test_refuses_what_is_not_a_profile(change: dict[str, Any]) -> None:
    with pytest.raises(CalibrationError) as caught:
        from_document({**to_document(profile()), **change}, "p.json")
    assert (caught.value.code == "version") == ("version" in change)


@pytest.mark.parametrize("text", [None, "{", "[]", '{"seconds": NaN}', "[" * 100_000, "9" * 400])
def test_a_file_that_is_not_a_profile_is_refused(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text)
    with pytest.raises(CalibrationError):
        load(tmp_path / "p.json")


def with_number(key: str, value: str) -> str:
    """A profile's text in which this number stands for `key`."""
    document = to_document(profile())
    (document["conditions"] if key in document["conditions"] else document["measurements"][0])[key] = "HERE"
    return json.dumps(document).replace('"HERE"', value)


@pytest.mark.parametrize("value", ["1e999", "1e19", "-1", "0.0", "1e-300"])
@pytest.mark.parametrize("key", ["cache_mb_s", "seconds", "held_s"])
def test_refuses_numbers_that_cannot_be_computed_with(key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(with_number(key, value))
    with pytest.raises(CalibrationError):
        load(tmp_path / "p.json")


def test_whole_numbers_may_be_written_with_an_exponent(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(with_number("dataset_bytes", "3e9"))
    assert load(tmp_path / "p.json") == profile()


def test_reads_a_profile_that_release_0_1_0_wrote(tmp_path: Path) -> None:
    written = json.loads((Path(__file__).parents[3] / "docs/results/predict/cm1-0.25.json").read_text())["profile"]
    (tmp_path / "p.json").write_text(json.dumps(written))
    read = load(tmp_path / "p.json").measurements
    assert [m.written_through_bytes for m in read] == [m["evicted_bytes"] for m in written["measurements"]]
    assert any(m.written_through_bytes for m in read)


def test_does_not_write_a_profile_that_it_would_not_read(tmp_path: Path) -> None:
    odd = profile(measurements=(measured(4, 6, peak_in_use_percent=150),))
    with pytest.raises(CalibrationError):
        save(odd, tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_merges_measurements_of_the_same_conditions() -> None:
    other = profile(measurements=(measured(9, 12),), prices=None)
    merged = merge([profile(), other])
    assert measured(9, 12) in merged.measurements
    assert merged.prices is not None


def test_profiles_of_other_backing_volumes_are_merged_only_for_a_given_size() -> None:
    small, large = profile(), profile(backing_bytes=500 * GB, prices=DEARER)
    for both in ([small, large], [large, small]):
        with refused(CalibrationError, "backing_bytes"):
            merge(both)
        merged = merge(both, 500 * GB)
        assert (merged.backing_bytes, merged.prices) == (500 * GB, DEARER)
        assert merge(both, 50 * GB).prices == PRICES


def test_merges_the_latest_prices_and_the_missing_ones_of_earlier_profiles() -> None:
    later = profile(made="2026-11-21T08:00:00+00:00", prices=DEARER)
    for both in ([profile(), later], [later, profile()]):
        prices = present(merge(both).prices)
        assert (prices.slow_per_hour, prices.fast_per_hour) == (0.1, PRICES.fast_per_hour)
        assert prices.caches == (PRICES.caches[0], *DEARER.caches)


def test_a_measurement_in_two_profiles_counts_once_and_two_equal_ones_in_one_twice() -> None:
    twice = profile(measurements=(measured(4, 6), measured(4, 6)))
    assert len(merge([twice]).measurements) == 2
    merged = merge([twice, profile(measurements=(measured(4, 6),))])
    assert throughput(merged.measurements).freedom == 1
