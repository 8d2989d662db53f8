"""What a run of a fault campaign waits for before it begins."""

from __future__ import annotations

from typing import Any

import pytest

from elastio_testbed.faults.runner import is_unloaded


@pytest.mark.parametrize(
    ("load", "is_over"),
    [
        (None, False),
        ({"utilization": 0.82, "threshold": 0.3}, False),
        ({"utilization": 0.27, "threshold": 0.3}, False),
        ({"utilization": 0.0, "threshold": 0.3}, True),
    ],
)
def test_a_run_begins_once_the_agent_sees_no_load(load: dict[str, Any] | None, *, is_over: bool) -> None:
    assert is_unloaded({"load": load}) is is_over
