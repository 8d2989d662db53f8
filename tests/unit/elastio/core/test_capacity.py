"""What applications can have together, in each phase: never the bandwidth that the flush takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.core.capacity import OF_BACKING, OF_CACHE, Capacity, LimitedBy, Unknown, capacity
from elastio.core.model import BackingView, CacheMode, Rates, Sample
from elastio.core.state import AgentState, Phase
from tests.values import CACHE_MISSING, POLICY, backing, boosted, cached, drained, state, volume

SLOW, FAST = POLICY.backing_bandwidth_mb_s, POLICY.cache_bandwidth_mb_s
ATTACHED, FLUSHING = state(Phase.BOOSTING, boosted()), state(Phase.FLUSHING, boosted())
WARM = Sample(10.0, 1.0, Rates(20.0, 20.0), cache=Rates(20.0, 20.0))
COLD = Sample(10.0, 1.0, Rates(20.0, 0.0), backing=Rates(10.0, 0.0))
PASSING = Sample(10.0, 1.0, Rates(0.0, 20.0), cache=Rates(8.0, 10.0), backing=Rates(0.0, 18.0))
BACK = Sample(10.0, 1.0, Rates(0.0, 10.0), cache=Rates(18.0, 10.0), backing=Rates(0.0, 18.0))

KNOWN: dict[str, tuple[AgentState, BackingView, Sample | None, Capacity]] = {
    "without a cache": (state(Phase.IDLE), backing(), None, Capacity(19.4, LimitedBy.BACKING, SLOW)),
    "attaching": (state(Phase.ATTACHING), backing(), WARM, Capacity(19.4, LimitedBy.BACKING, SLOW)),
    "boosting, nothing is flushed": (
        ATTACHED,
        cached(writeback_running=False, flush_limit_mb_s=20.0),
        WARM,
        Capacity(72.8, LimitedBy.CACHE, FAST),
    ),
    "a flush with a rate takes it": (
        ATTACHED,
        cached(flush_limit_mb_s=12.0),
        WARM,
        Capacity(60.8, LimitedBy.CACHE, FAST, 12.0),
    ),
    "one above what the backing volume writes": (
        ATTACHED,
        cached(flush_limit_mb_s=50.0),
        WARM,
        Capacity(52.8, LimitedBy.CACHE, FAST, SLOW),
    ),
    "a flush without a rate yields": (ATTACHED, cached(), WARM, Capacity(72.8, LimitedBy.CACHE, FAST)),
    "a flush of nothing takes nothing": (
        FLUSHING,
        cached(dirty_bytes=0, flush_full_speed=True),
        WARM,
        Capacity(72.8, LimitedBy.CACHE, FAST),
    ),
    "a flush at full speed": (
        FLUSHING,
        cached(flush_full_speed=True),
        WARM,
        Capacity(52.8, LimitedBy.CACHE, FAST, SLOW),
    ),
    "half of the reads miss": (
        ATTACHED,
        cached(),
        COLD,
        Capacity(38.8, LimitedBy.BACKING, SLOW, missed=0.5),
    ),
    "half miss beside a full flush": (
        FLUSHING,
        cached(flush_full_speed=True),
        COLD,
        Capacity(19.4, LimitedBy.BACKING, SLOW, SLOW, 0.5),
    ),
    "half of the writes pass a full cache": (
        FLUSHING,
        cached(flush_full_speed=True),
        PASSING,
        Capacity(19.4, LimitedBy.BACKING, SLOW, SLOW, 0.5),
    ),
    "what is flushed has not missed": (
        FLUSHING,
        cached(flush_full_speed=True),
        BACK,
        Capacity(52.8, LimitedBy.CACHE, FAST, SLOW),
    ),
    "writes bypass the cache": (
        state(Phase.DETACHING, boosted()),
        drained(),
        WARM,
        Capacity(19.4, LimitedBy.BACKING, SLOW),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_capacity_follows_the_phase_and_the_flush(name: str) -> None:
    of, view, sample, expected = KNOWN[name]
    found = capacity(of, view, sample, POLICY)
    assert isinstance(found, Capacity)
    assert found.mb_s == pytest.approx(expected.mb_s)
    assert replace(found, mb_s=expected.mb_s) == expected


@pytest.mark.parametrize(
    ("of", "view", "expected"),
    [
        (state(Phase.IDLE, recovered=False), backing(), Unknown.STARTING),
        (state(Phase.FAULTED, fault=CACHE_MISSING), backing(), Unknown.FAULTED),
        (state(Phase.IDLE), None, Unknown.NOT_RUNNING),
        (state(Phase.IDLE), backing(running=False), Unknown.NOT_RUNNING),
        (FLUSHING, cached(write_limit_mb_s=10.0), Unknown.FORCED),
        (state(Phase.IDLE), cached(), Unknown.FOREIGN),
    ],
)
def test_where_none_can_be_told_it_says_why(of: AgentState, view: BackingView | None, expected: Unknown) -> None:
    assert capacity(of, view, WARM, POLICY) is expected


@settings(deadline=None)
@given(
    st.floats(0, 200),
    st.floats(0, 200),
    st.floats(0, 500),
    st.sampled_from(list(CacheMode)),
    st.booleans(),
    st.booleans(),
)
def test_capacity_and_flush_together_fit_the_volumes_unless_the_scheduler_halves_them(
    missed: float, hit: float, rate: float, mode: CacheMode, full: bool, slow: bool
) -> None:
    of = state(Phase.BOOSTING, boosted(volume=volume(bandwidth_mb_s=10.0))) if slow else ATTACHED
    view = cached(flush_limit_mb_s=rate, cache_mode=mode, flush_full_speed=full)
    sample = replace(WARM, adaptive=Rates(missed + hit, 0.0), backing=Rates(missed, 0.0))
    found = capacity(of, view, sample, POLICY)
    assert isinstance(found, Capacity)
    part = OF_BACKING if found.limited_by is LimitedBy.BACKING else OF_CACHE
    of_volume = found.mb_s * (found.missed or 1.0) if found.limited_by is LimitedBy.BACKING else found.mb_s
    usable = part * found.bandwidth_mb_s
    assert usable / 2 * (1 - 1e-9) <= of_volume
    assert of_volume + min(found.flush_mb_s, usable / 2) <= usable * (1 + 1e-9)
