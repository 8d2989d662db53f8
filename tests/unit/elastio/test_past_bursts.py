"""The past as a forecast needs it, from rows of the ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.accounting.history import CycleLoad, is_wrong, past_of
from elastio.accounting.rows import CycleRow, StepDurations
from elastio.core.model import VolumeSpec
from elastio.strategy.learned import NOTHING_KNOWN
from tests.values import present

from .test_report import GB, NOON, cycle, refused


def row(token: str, begin: float, **changes: object) -> CycleRow:
    """100 s of 10 GB at 128 MB/s: 128,000 AGBs, 0.10 USD."""
    plain = cycle(NOON + begin, NOON + begin + 100, token)
    return replace(plain, **changes)  # type: ignore[arg-type]


def load(begun: float | None, ended: float | None) -> CycleLoad:
    return CycleLoad(0, 4 * GB, *(None if t is None else NOON + t for t in (begun, ended)))


NO_LOAD = load(None, None)


def begins(cycles: list[CycleRow], loads: dict[str, CycleLoad]) -> list[tuple[float, float]]:
    return [(b.begun_at - NOON, b.ended_at - NOON) for b in past_of(cycles, loads, "dev").bursts]


def test_bursts_are_the_loads_of_cycles_that_are_over_in_their_order() -> None:
    cycles = [row("b", 1000), row("a", 0), row("open", 2000, closed_wall=None)]
    loads = {"a": load(-2, 40), "b": load(998, 1030), "open": load(1998, 2010)}
    assert begins(cycles, loads) == [(-2, 40), (998, 1030)]


def test_a_cache_without_a_load_and_one_of_another_device_are_no_bursts() -> None:
    cycles = [row("a", 0), row("wrong", 300, trigger="forecast"), row("other", 500, device_uuid="else")]
    assert begins(cycles, {"a": load(0, 40), "wrong": NO_LOAD, "other": load(500, 540)}) == [(0, 40)]


def test_cycles_under_one_load_had_one_burst() -> None:
    cycles = [replace(refused(NOON), token="refused", device_uuid=""), row("a", 60), row("b", 900)]
    loads = {"refused": load(-2, 5), "a": load(-2, 90), "b": load(898, 930)}
    assert begins(cycles, loads) == [(-2, 90), (898, 930)]


def test_the_bill_is_all_caches_and_the_wrong_ones_in_agbs_and_currency() -> None:
    cycles = [row("a", 0), row("b", 300, trigger="forecast"), row("c", 600, trigger="forecast")]
    past = past_of(cycles, {"a": load(0, 40), "b": load(302, 340), "c": NO_LOAD}, "dev")
    assert past.agbs[:4] == pytest.approx((384_000, 128_000, 1280, 2 * 60 * 1280))
    assert present(past.money)[:4] == pytest.approx((0.3, 0.1, 0.001, 2 * 60 * 0.001))
    assert past.agbs.sold == ((VolumeSpec(10 * GB, 128.0), 1280.0),)


def test_seconds_for_which_a_cache_waited_for_its_burst_are_wasted() -> None:
    steps = StepDurations(boost_s=8.0)
    cycles = [row("a", 0, steps=steps), row("b", 300, trigger="forecast", steps=steps)]
    past = past_of(cycles, {"a": load(20, 40), "b": load(312, 340)}, "dev")
    assert past.agbs.wasted == pytest.approx(4 * 1280)
    assert present(past.money).wasted == pytest.approx(4 * 0.001)


def test_an_announced_burst_that_did_not_come_is_no_wrong_forecast() -> None:
    cycles = [row("a", 0), row("b", 300, trigger="announced")]
    loads = {"a": load(0, 40), "b": NO_LOAD}
    assert is_wrong(cycles[1], loads)
    assert past_of(cycles, loads, "dev").agbs.wasted == 0


@pytest.mark.parametrize("changes", [{"price_per_hour": None}, {"currency": "EUR"}])
def test_without_all_prices_in_one_currency_the_bill_is_in_agbs(changes: dict[str, object]) -> None:
    past = past_of([row("a", 0), row("b", 300, **changes)], {}, "dev")
    assert past.money is None
    assert past.agbs.total == pytest.approx(256_000)


def test_an_empty_ledger_knows_nothing() -> None:
    assert past_of([], {}, "dev") == NOTHING_KNOWN
