"""The description of an application: from options, from a file, and varied for a sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elastio_calibration.application import ApplicationError, from_values, read_file, varied

CM1 = {"vms": 32, "iterations": 3, "iteration_s": 366.0, "checkpoints": 3, "checkpoint_gb": 4, "initial_gb": 5}


def test_is_described_by_named_values() -> None:
    made = from_values(CM1)
    assert made.compute_s == 1098
    assert made.interval_s == 366
    assert (made.checkpoint_bytes, made.initial_bytes, made.vms) == (4 * 10**9, 5 * 10**9, 32)


def test_needs_no_initial_dump_and_one_vm_by_default() -> None:
    made = from_values({"checkpoint_gb": 4, "checkpoints": 2, "iteration_s": 10})
    assert (made.initial_bytes, made.vms, made.compute_s) == (0, 1, 10)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"checkpoint_gb": 0}, "checkpoint_gb is 0; it must be above 0"),
        ({"checkpoint_gb": -4}, "must be above 0"),
        ({"checkpoint_gb": float("nan")}, "checkpoint_gb must be a number, and at most 1e\\+09"),
        ({"vms": float("inf")}, "vms must be a number, and at most"),
        ({"vms": 10**400}, "vms must be a number, and at most"),
        ({"vms": [10**5000]}, "vms must be a number, not a list"),
        ({"checkpoint_gb": 1e308}, "checkpoint_gb must be a number, and at most"),
        ({"checkpoints": 100_001}, "checkpoints is 100001; it must be at most 100000"),
        ({"initial_gb": -1}, "initial_gb is -1; it must be at least 0"),
        ({"checkpoints": 2.5}, "checkpoints must be a whole number, not 2.5"),
        ({"checkpoints": "3"}, "checkpoints must be a number, not '3'"),
        ({"vms": True}, "vms must be a number, not True"),
        ({"colour": 3}, "colour is not known of an application"),
    ],
)
def test_refuses_what_makes_no_sense(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ApplicationError, match=sentence):
        from_values({**CM1, **changes})


def test_names_every_option_that_is_missing() -> None:
    with pytest.raises(ApplicationError, match="give --checkpoints, --iteration-s, or a file"):
        from_values({"checkpoint_gb": 4})


def test_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "cm1.toml"
    path.write_text("[application]\ncheckpoint_gb = 4\ncheckpoints = 3\niteration_s = 366.5\n")
    assert from_values(read_file(path)).compute_s == 366.5
    path.write_text("\ufeff" + path.read_text())
    assert from_values(read_file(path)).compute_s == 366.5  # as some editors write it


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[application", "is not valid TOML"),
        ("x = 1\n", "has no table"),
        (None, "cannot be read"),
        (f"x = {'9' * 5001}\n", "is not valid TOML"),
        (f"x = {'[' * 5000}\n", "is not valid TOML"),
    ],
)
def test_a_file_without_an_application_is_one_sentence(text: str | None, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "cm1.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ApplicationError, match=sentence):
        read_file(path)


def test_varies_a_quantity_by_its_symbol() -> None:
    assert varied(from_values(CM1), "Sc", 8).checkpoint_gb == 8
    assert varied(from_values(CM1), "K", 5.0).checkpoints == 5
    with pytest.raises(ApplicationError, match="K must be a whole number"):
        varied(from_values(CM1), "K", 2.5)
    with pytest.raises(ApplicationError, match="K must be a number, and at most"):
        varied(from_values(CM1), "K", 1e308)
    with pytest.raises(ApplicationError, match="cannot be varied; these can: Sc"):
        varied(from_values(CM1), "B", 1)
