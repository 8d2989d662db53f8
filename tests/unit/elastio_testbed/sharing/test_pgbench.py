"""What is read from the log of pgbench, and which bars it meets."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from elastio_testbed.bars_report import section
from elastio_testbed.sharing.controls import NONE, SHARES
from elastio_testbed.sharing.pgbench import SETTLE_S, Transactions, bars, of_log, runs_of

BEGUN_S = 1_800_000_000


def logged(count: int, each_s: float, ms: float) -> list[str]:
    """Lines of pgbench: one transaction after the other, each of so many milliseconds."""
    ends = [BEGUN_S + n * each_s for n in range(count)]
    return [f"{n % 4} {n} {round(1000 * ms)} 0 {int(s)} {round(s % 1 * 1e6)}" for n, s in enumerate(ends)]


def run(control: str, p95_ms: float | None, tps: float, writer_mb_s: float | None = 10.0) -> Transactions:
    return Transactions(control, writer_mb_s, tps, p95_ms, p95_ms, p95_ms)


ALONE = run(NONE, 20.0, 200.0, None)


def test_transactions_count_from_where_limits_have_settled() -> None:
    slow, fast = logged(50, 0.1, 900.0), logged(200, 0.1, 10.0)[50:]
    (found,) = runs_of([of_log([*slow, *fast], 20.0, SHARES, 8.0)])
    assert found.tps == pytest.approx(150 / (20 - SETTLE_S))
    assert (found.p50_ms, found.p99_ms) == (10.0, 10.0)


def test_the_late_ones_are_those_that_took_longest_in_any_order() -> None:
    lines = [*logged(60, 0.1, 10.0), *logged(100, 0.1, 70.0)[91:], *logged(191, 0.1, 10.0)[100:]]
    (found,) = runs_of([of_log(lines, 20.0, NONE, None)])
    assert (found.p50_ms, found.p95_ms, found.p99_ms) == (10.0, 70.0, 70.0)


def test_turns_of_one_kind_are_one_run_whatever_the_host_did_meanwhile() -> None:
    """Fast and slow minutes in turn: what is alone and what is beside the writer have the same of both."""
    minutes = [(logged(150, 0.1, 10.0), 15.0), (logged(200, 0.2, 30.0), 40.0)]
    turns = [of_log(lines, s, NONE, mb_s) for lines, s in minutes for mb_s in (None, 4.0)]
    turns[-1] = replace(turns[-1], writer_mb_s=6.0)
    alone, beside = runs_of(turns)
    assert (alone.is_alone, beside.writer_mb_s) == (True, 5.0)
    assert alone.tps == beside.tps == pytest.approx((100 + 175) / (10 + 35), abs=0.1)
    assert (alone.p50_ms, alone.p99_ms) == (30.0, 30.0)


def test_a_run_without_a_transaction_has_no_percentile_and_meets_nothing() -> None:
    (found,) = runs_of([of_log([], 20.0, SHARES, 16.0)])
    assert (found.tps, found.p95_ms) == (0.0, None)
    assert not any(bar.is_met for bar in bars([ALONE, found]))
    assert not any(bar.is_met for bar in bars([ALONE, run(NONE, 20.0, 200.0)]))


@pytest.mark.parametrize(
    ("p95_ms", "tps", "met"),
    [(60.0, 140.0, [True, True]), (60.1, 140.0, [False, True]), (60.0, 139.9, [True, False])],
)
def test_beside_the_writer_three_times_as_long_and_seven_of_ten(p95_ms: float, tps: float, met: list[bool]) -> None:
    runs = [ALONE, run(NONE, 900.0, 3.0), run(SHARES, p95_ms, tps)]
    assert [bar.is_met for bar in bars(runs)] == met


def test_a_stored_result_becomes_a_table_that_names_each_run() -> None:
    runs = [ALONE, run(NONE, 900.0, 3.0), run(SHARES, None, 0.0)]
    about = {"experiment": "pgbench", "scale": 0.2, "bandwidth": 0.5, "hypervisor": "uml", "accelerator": "native"}
    more = {"kernel": "6.1", "date": "today", "machine": "a machine", "code": "1", "absent": [], "clients": 4}
    document = {**about, **more, "bars": [bar.to_json() for bar in bars(runs)], "runs": [r.to_json() for r in runs]}
    text = section(json.loads(json.dumps(document)))
    assert "| alone | 200.0 | 20 | 20 | 20 | - |" in text
    assert "| beside the writer, no control | 3.0 | 900 | 900 | 900 | 10.0 |" in text
    assert "| beside it, shares | 0.0 | - | - | - | 10.0 |" in text
