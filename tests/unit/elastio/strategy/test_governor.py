"""How fast dirty data flows back while applications use the cache: backing volume 20 MB/s, cache volume 64 MB/s."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.core.boosting import situation_of
from elastio.core.model import BackingView, Rates, Sample, Volume
from elastio.core.policy import Policy
from elastio.core.state import AgentState, Phase
from elastio.strategy import governor
from elastio.strategy.situation import DeviceView
from tests.values import NOW, POLICY, boosted, cached, host, present, seen, state, volume

SMALL = replace(POLICY, backing_bandwidth_mb_s=20.0, cache_bandwidth_mb_s=100.0, utilization_threshold=0.30)


def sample(app: float, *, flush: float = 0.0, miss: float = 0.0, hit: float = 0.0) -> Sample:
    """An application that writes `app` and reads `hit` from the cache and `miss` from the backing volume."""
    return Sample(10.0, 1.0, Rates(hit + miss, app), backing=Rates(miss, flush), cache=Rates(hit + flush, app))


def device(view: BackingView, policy: Policy = SMALL) -> DeviceView:
    return present(situation_of(AgentState(), seen(host(view)), policy).device)


def uncounted(app: float) -> Sample:
    """The load of a cgroup without a right to a boost."""
    return replace(sample(app), counted=Rates())


def boosting_with(bought: Volume) -> AgentState:
    return state(Phase.BOOSTING, boosted(volume=bought))


DRAINED = replace(SMALL, drain_bandwidth_mb_s=20.0)
RATES: dict[str, tuple[Policy, Sample, float | None]] = {
    "idle: everything": (SMALL, sample(0.0), None),
    "below the threshold: everything": (SMALL, sample(5.9, flush=20.0), None),
    "what the backing volume takes": (SMALL, sample(50.0), 20.0),
    "what does not count towards a boost uses the volumes, too": (SMALL, uncounted(95.0), 0.0),
    "and the flush does not count itself": (SMALL, sample(50.0, flush=20.0), 20.0),
    "what the cache volume leaves": (SMALL, sample(70.0), 10.0),
    "the same while that flows": (SMALL, sample(70.0, flush=10.0), 10.0),
    "too little to be worth it": (SMALL, sample(79.0), 0.0),
    "a saturated cache volume: nothing": (SMALL, sample(95.0), 0.0),
    "both saturate it: what the application alone would take cannot be seen": (SMALL, sample(72.0, flush=20.0), 0.0),
    "the application reads from the backing volume": (SMALL, sample(40.0, miss=15.0), 5.0),
    "and leaves nothing of it": (SMALL, sample(40.0, miss=19.5), 0.0),
    "reads of the cache count as well": (SMALL, sample(30.0, hit=30.0), 20.0),
    "bought for flushing: saturated": (DRAINED, sample(115.0), 20.0),
    "bought for flushing: saturated by both": (DRAINED, sample(95.0, flush=20.0), 20.0),
    "bought for flushing: light load": (DRAINED, sample(10.0), 20.0),
    "bought for flushing: what the backing volume takes": (DRAINED, sample(95.0, miss=15.0), 5.0),
    "bought for flushing: idle": (DRAINED, sample(0.0), None),
}


@pytest.mark.parametrize("case", RATES)
def test_flushes_with_what_both_volumes_have_left(case: str) -> None:
    policy, of, mb_s = RATES[case]
    assert governor.writeback_rate(of, device(cached(available_percent=90)), policy) == pytest.approx(mb_s)


@pytest.mark.parametrize(("now", "before", "mb_s"), [(30.0, 70.0, 10.0), (70.0, 30.0, 10.0), (30.0, 30.0, 20.0)])
def test_no_flush_begins_where_limits_hold_a_load_back_for_a_second(now: float, before: float, mb_s: float) -> None:
    of, shown = replace(sample(now), recent=sample(before)), device(cached(available_percent=90))
    assert governor.writeback_rate(of, shown, replace(SMALL, share_reserve=())) == pytest.approx(mb_s)
    assert governor.writeback_rate(of, shown, SMALL) == pytest.approx(min(20.0, 80.0 - now))


@pytest.mark.parametrize(
    ("of", "requests", "mb_s"),
    [
        (sample(12.0), 2700.0, 0.0),
        (sample(12.0), 1200.0, 12.0),
        (sample(12.0), 2280.0, 0.0),
        (sample(12.0), 600.0, 20.0),
        (sample(12.0, flush=12.0), 2400.0, 12.0),
        (sample(12.0, flush=12.0), 2700.0, 0.0),
        (sample(95.0), 500.0, 20.0),
    ],
    ids=["saturated", "half", "too little", "a fifth", "the same while that flows", "saturated by both", "large ones"],
)
def test_a_flush_uses_requests_that_applications_leave(of: Sample, requests: float, mb_s: float) -> None:
    shown = device(cached(available_percent=90))
    busy = replace(of, cache_iops=(0.0, requests))
    assert governor.writeback_rate(busy, shown, DRAINED, 3000) == pytest.approx(mb_s)
    assert governor.writeback_rate(busy, shown, DRAINED) == pytest.approx(20.0)


def test_the_iops_are_those_of_the_volume_that_was_bought() -> None:
    busy = replace(sample(12.0), at=NOW, cache_iops=(700.0, 2000.0))
    at = situation_of(boosting_with(volume(iops=3000)), seen(host(cached()), sample=busy), DRAINED)
    assert governor.flush_mb_s(at, DRAINED, None) == 0.0
    at = situation_of(boosting_with(volume(iops=16_000)), seen(host(cached()), sample=busy), DRAINED)
    assert governor.flush_mb_s(at, DRAINED, None) == 20.0


@pytest.mark.parametrize(("available", "mb_s"), [(36, 0.0), (34, 20.0), (0, 20.0), (None, 0.0)])
def test_flushes_before_the_cache_is_full_even_if_it_costs_the_application(available: int | None, mb_s: float) -> None:
    shown = device(cached(available_percent=available, cutoff_percent=70))
    assert governor.writeback_rate(sample(95.0), shown, SMALL) == mb_s


def test_a_kernel_that_shows_no_cutoff_has_the_configured_one() -> None:
    view = cached(available_percent=62, cutoff_percent=None)
    for cutoff, mb_s in ((0.40, 20.0), (0.70, 0.0)):
        policy = replace(SMALL, cutoff=cutoff)
        assert governor.writeback_rate(sample(95.0), device(view, policy), policy) == mb_s


@pytest.mark.parametrize(
    ("drain", "of", "pressed"),
    [
        (0.0, sample(80.0, flush=15.0), 15.0),
        (20.0, sample(80.0, flush=15.0), 0.0),
        (5.0, sample(90.0, flush=15.0), 10.0),
        (0.0, sample(0.0, flush=15.0), 0.0),
    ],
    ids=["all of it", "bought for it", "in part", "at rest"],
)
def test_what_is_flushed_beyond_the_spare_bandwidth_is_what_a_full_cache_presses_out(
    drain: float, of: Sample, pressed: float
) -> None:
    policy = replace(SMALL, drain_bandwidth_mb_s=drain)
    full, free = (device(cached(available_percent=percent, cutoff_percent=70)) for percent in (31, 60))
    assert governor.forced_writeback_mb_s(of, full, policy) == pytest.approx(pressed)
    assert governor.forced_writeback_mb_s(of, free, policy) == 0.0
