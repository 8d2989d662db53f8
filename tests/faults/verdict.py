"""What holds of every run of a campaign."""

from __future__ import annotations

from elastio_testbed.faults.run_result import RunResult


def assert_nothing_is_lost_or_left(result: RunResult) -> None:
    assert result.stuck == ""
    assert result.acknowledged_records > 0
    # A torn record is proved by the run's kernel log and writer, see `tears`.
    assert (result.lost_records - result.torn_records, result.unverified_records) == (0, 0)
    assert result.leaked_volumes == ()
    assert not result.interrupted
