"""The description of an application: from options, from a file, and varied for a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio_calibration.application import ApplicationError, from_values, read_file, varied
from tests.fixtures.errors import refused

CM1 = {"vms": 32, "iterations": 3, "iteration_s": 366.0, "checkpoints": 3, "checkpoint_gb": 4, "initial_gb": 5}


def test_is_described_by_named_values() -> None:
    made = from_values(CM1)
    assert made.compute_s == 1098
    assert made.interval_s == 366
    assert (made.checkpoint_bytes, made.initial_bytes, made.vms) == (4 * 10**9, 5 * 10**9, 32)


@pytest.mark.parametrize(
    "changes",
    [
        {"checkpoint_gb": 0},
        {"checkpoint_gb": -4},
        {"checkpoint_gb": float("nan")},
        {"checkpoint_gb": 1e308},
        {"vms": float("inf")},
        {"vms": 10**400},
        {"vms": [10**5000]},
        {"vms": True},
        {"checkpoints": 100_001},
        {"checkpoints": 2.5},
        {"checkpoints": "3"},
        {"initial_gb": -1},
        {"colour": 3},
    ],
)
def test_names_the_value_that_is_invalid(changes: dict[str, Any]) -> None:
    with pytest.raises(ApplicationError) as caught:
        from_values({**CM1, **changes})
    assert [caught.value.code] == list(changes)


def test_refuses_an_incomplete_description() -> None:
    with refused(ApplicationError, "missing"):
        from_values({"checkpoint_gb": 4})


def test_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cm1.toml"
    path.write_text("[application]\ncheckpoint_gb = 4\ncheckpoints = 3\niteration_s = 366.5\n")
    assert from_values(read_file(path)).compute_s == 366.5
    path.write_text("\ufeff" + path.read_text())
    assert from_values(read_file(path)).compute_s == 366.5  # as some editors write it


@pytest.mark.parametrize("text", ["[application", "x = 1\n", None, f"x = {'9' * 5001}\n", f"x = {'[' * 5000}\n"])
def test_a_file_without_an_application_is_refused(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "cm1.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ApplicationError):
        read_file(path)


def test_varies_a_quantity_by_its_symbol() -> None:
    assert varied(from_values(CM1), "Sc", 8).checkpoint_gb == 8
    assert varied(from_values(CM1), "K", 5.0).checkpoints == 5
    for symbol, value in (("K", 2.5), ("K", 1e308), ("B", 1)):
        with pytest.raises(ApplicationError):
            varied(from_values(CM1), symbol, value)
