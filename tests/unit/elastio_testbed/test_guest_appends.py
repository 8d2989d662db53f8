"""Records of one fsync each: which of them count as lost."""

import os
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.guest.appends import path, verify
from elastio_testbed.guest.records import RECORD, content, noise

SEED, COUNT = 7, 5


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    """Five whole records in a file."""
    spec = {"directory": str(tmp_path), "name": "life", "seed": SEED, "acknowledged": COUNT}
    base = noise(SEED)
    Path(path(spec)).write_bytes(b"".join(content("life", SEED, n, base) for n in range(1, COUNT + 1)))
    return spec


def test_truncated_and_missing_records_are_lost_and_whole_ones_are_not(spec: dict[str, Any]) -> None:
    assert verify(spec, flags=0) == {"checked": COUNT, "lost": []}
    os.truncate(path(spec), (COUNT - 1) * RECORD + 1)
    assert verify(spec, flags=0)["lost"] == [COUNT]
    Path(path(spec)).unlink()
    assert verify(spec, flags=0)["lost"] == [1, 2, 3, 4, 5]


def test_a_changed_and_a_misplaced_record_are_lost(spec: dict[str, Any]) -> None:
    file = Path(path(spec))
    whole = file.read_bytes()
    first, rest = whole[:RECORD], whole[RECORD:]
    file.write_bytes(first + first + rest[RECORD:-1] + b"?")
    assert verify(spec, flags=0)["lost"] == [2, COUNT]
