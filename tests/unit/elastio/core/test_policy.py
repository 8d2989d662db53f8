"""What follows from the settings alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.policy import is_change
from tests.values import POLICY


@pytest.mark.parametrize(
    ("wanted", "in_force", "is_other"),
    [
        (None, None, False),
        (None, 0.0, True),
        (0.0, None, True),
        (0.0, 0.0, False),
        (3.0, 0.0, True),
        (10.0, 11.9, False),
        (10.0, 12.1, True),
        (None, 20.0, True),
    ],
)
def test_small_differences_are_not_worth_a_change(wanted: float | None, in_force: float | None, is_other: bool) -> None:
    assert is_change(wanted, in_force, replace(POLICY, backing_bandwidth_mb_s=20.0)) is is_other
