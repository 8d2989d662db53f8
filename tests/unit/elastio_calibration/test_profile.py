"""The profile file: written, validated, read, merged; and everything that is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from elastio_calibration.curves import throughput
from elastio_calibration.errors import CalibrationError
from elastio_calibration.profile import from_document, load, merge, save, schema, to_document

from .values import CONDITIONS, measured, profile


def test_comes_back_as_it_was_written(tmp_path: Path) -> None:
    made = profile(0.99, 1.01)
    save(made, tmp_path / "deep" / "p.json")
    assert load(tmp_path / "deep" / "p.json") == made
    assert not list((tmp_path / "deep").glob(".*"))


def test_what_is_written_obeys_the_published_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    jsonschema.validate(json.loads(json.dumps(to_document(profile(prices=None)))), schema())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"format": "x"}, 'is no profile: it lacks "format"'),
        ({"version": 2}, "is a profile of version 2, this elastio reads version 1"),
        ({"measurements": []}, r"at \$.measurements"),
        ({"backing_bytes": -1}, r"at \$.backing_bytes"),
        ({"extra": 1}, "no valid profile"),
        ({"conditions": {}}, r"at \$.conditions"),
    ],
)
def test_refuses_what_is_no_profile(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CalibrationError, match=sentence):
        from_document({**to_document(profile()), **change}, "p.json")


def test_refuses_a_cache_that_was_held_for_no_time() -> None:
    document = to_document(profile())
    document["measurements"][0]["held_s"] = 0.0
    with pytest.raises(CalibrationError, match="makes no sense"):
        from_document(document, "p.json")


@pytest.mark.parametrize(
    ("text", "sentence"), [("{", "is not JSON"), ("[]", "is no profile"), (None, "cannot be read")]
)
def test_a_file_that_is_none_is_one_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text)
    with pytest.raises(CalibrationError, match=sentence):
        load(tmp_path / "p.json")


def test_merges_what_was_measured_under_the_same_conditions() -> None:
    other = profile(measurements=(measured(9, 12),), prices=None)
    merged = merge([profile(), other])
    assert measured(9, 12) in merged.measurements
    assert merged.prices is not None


def test_refuses_to_merge_other_conditions_and_names_them() -> None:
    other = profile(conditions=replace(CONDITIONS, kernel="6.12", scale=0.5))
    with pytest.raises(CalibrationError, match=r"kernel \(6.1.0-32-amd64 and 6.12\), scale \(1.0 and 0.5\)"):
        merge([profile(), other])


def test_a_measurement_in_two_profiles_is_no_repeat_but_two_equal_ones_in_one_are() -> None:
    twice = profile(measurements=(measured(4, 6), measured(4, 6)))
    assert len(merge([twice]).measurements) == 2
    merged = merge([twice, profile(measurements=(measured(4, 6),))])
    assert throughput(merged.measurements).freedom == 1
