"""What applications can have together, in each phase: never the bandwidth that the flush takes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from elastio.core.capacity import BUSY, USABLE, USUAL_COST, Capacity, LimitedBy, Unknown, capacity
from elastio.core.model import BackingView, CacheMode, Rates, Sample
from elastio.core.state import AgentState, Phase
from tests.values import CACHE_MISSING, POLICY, backing, boosted, cached, drained, state, volume

SLOW, FAST = POLICY.backing_bandwidth_mb_s, POLICY.cache_bandwidth_mb_s
ATTACHED, FLUSHING = state(Phase.BOOSTING, boosted()), state(Phase.FLUSHING, boosted())
OF_3000_IOPS = state(Phase.BOOSTING, boosted(volume=volume(iops=3000)))
FLUSHING_3000_IOPS = replace(OF_3000_IOPS, phase=Phase.FLUSHING)
WARM = Sample(10.0, 1.0, Rates(20.0, 20.0), cache=Rates(20.0, 20.0))
COLD = Sample(10.0, 1.0, Rates(20.0, 0.0), backing=Rates(10.0, 0.0))
PASSING = Sample(10.0, 1.0, Rates(0.0, 20.0), cache=Rates(8.0, 10.0), backing=Rates(0.0, 18.0))
# A third of all reads misses, and is not kept: both volumes are full.
BOTH = Sample(10.0, 1.0, Rates(60.0, 0.0), cache=Rates(40.0, 0.0), backing=Rates(20.0, 0.0))
JOURNAL = Sample(10.0, 1.0, Rates(0.0, 50.0), cache=Rates(0.0, 60.0))
SMALL = Sample(10.0, 1.0, Rates(0.0, 15.0), cache=Rates(0.0, 20.0), cache_iops=(0.0, 3000.0))
BACK = Sample(10.0, 1.0, Rates(0.0, 10.0), cache=Rates(18.0, 10.0), backing=Rates(0.0, 18.0))

KNOWN: dict[str, tuple[AgentState, BackingView, Sample | None, Capacity]] = {
    "without a cache": (state(Phase.IDLE), backing(), None, Capacity(19.4, LimitedBy.BACKING, SLOW)),
    "attaching": (state(Phase.ATTACHING), backing(), WARM, Capacity(19.4, LimitedBy.BACKING, SLOW)),
    "boosting, nothing is flushed": (
        ATTACHED,
        cached(writeback_running=False, flush_limit_mb_s=20.0),
        WARM,
        Capacity(78.4, LimitedBy.CACHE, FAST),
    ),
    "a flush with a rate takes it": (
        ATTACHED,
        cached(flush_limit_mb_s=12.0),
        WARM,
        Capacity(66.4, LimitedBy.CACHE, FAST, 12.0),
    ),
    "it makes up for seconds with little to flush": (
        ATTACHED,
        cached(flush_limit_mb_s=4.0),
        replace(WARM, cache=Rates(32.0, 20.0), backing=Rates(0.0, 12.0)),
        Capacity(66.4, LimitedBy.CACHE, FAST, 12.0),
    ),
    "one above what the backing volume writes": (
        ATTACHED,
        cached(flush_limit_mb_s=50.0),
        WARM,
        Capacity(58.4, LimitedBy.CACHE, FAST, SLOW),
    ),
    "a flush without a rate yields": (ATTACHED, cached(), WARM, Capacity(78.4, LimitedBy.CACHE, FAST)),
    "a flush of nothing takes nothing": (
        FLUSHING,
        cached(dirty_bytes=0, flush_full_speed=True),
        WARM,
        Capacity(78.4, LimitedBy.CACHE, FAST),
    ),
    "a flush at full speed": (
        FLUSHING,
        cached(flush_full_speed=True),
        WARM,
        Capacity(58.4, LimitedBy.CACHE, FAST, SLOW),
    ),
    "nothing is known of what a MB costs": (
        ATTACHED,
        cached(),
        None,
        Capacity(78.4 / USUAL_COST, LimitedBy.CACHE, FAST),
    ),
    "journal and index are written beside": (ATTACHED, cached(), JOURNAL, Capacity(78.4 / 1.2, LimitedBy.CACHE, FAST)),
    "a quarter of what it takes to be sure": (
        ATTACHED,
        cached(),
        Sample(10.0, 1.0, Rates(0.0, 78.4 / 16), cache=Rates(0.0, 78.4 / 8)),
        Capacity(78.4 / (0.25 * 2.0 + 0.75 * USUAL_COST), LimitedBy.CACHE, FAST),
    ),
    "the recent past counts": (
        ATTACHED,
        cached(),
        replace(COLD, recent=JOURNAL),
        Capacity(78.4 / 1.2, LimitedBy.CACHE, FAST),
    ),
    "reads that miss do not use the cache volume": (
        ATTACHED,
        cached(),
        BOTH,
        Capacity(58.2, LimitedBy.BACKING, SLOW, missed=1 / 3),
    ),
    "small requests": (OF_3000_IOPS, cached(), SMALL, Capacity(0.92 * 15, LimitedBy.REQUESTS, 0.0)),
    "small requests, a third of which are those of the flush": (
        FLUSHING_3000_IOPS,
        cached(flush_full_speed=True),
        replace(SMALL, cache=Rates(10.0, 20.0), backing=Rates(0.0, 10.0), cache_iops=(1000.0, 2000.0)),
        Capacity((0.92 * 3000 - 1000) / (2000 / 15), LimitedBy.REQUESTS, 0.0, SLOW),
    ),
    "half of what is read is flushed": (
        FLUSHING_3000_IOPS,
        cached(flush_full_speed=True),
        replace(SMALL, cache=Rates(10.0, 10.0), backing=Rates(0.0, 5.0), cache_iops=(1000.0, 2000.0)),
        Capacity((0.92 * 3000 - 500) / (2500 / 15), LimitedBy.REQUESTS, 0.0, SLOW),
    ),
    "a flush with a rate leaves them to applications": (
        OF_3000_IOPS,
        cached(flush_limit_mb_s=10.0),
        replace(SMALL, cache=Rates(10.0, 20.0), backing=Rates(0.0, 10.0), cache_iops=(1000.0, 2000.0)),
        Capacity(0.92 * 3000 / (2000 / 15), LimitedBy.REQUESTS, 0.0, 10.0),
    ),
    "few of them": (
        OF_3000_IOPS,
        cached(),
        replace(WARM, cache_iops=(100.0, 100.0)),
        Capacity(78.4, LimitedBy.CACHE, FAST),
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
        Capacity(58.4 / (USUAL_COST - 10 / 29.2 * (USUAL_COST - 1)), LimitedBy.CACHE, FAST, SLOW),
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
    assert found.mb_s < found.full_mb_s < 1.1 * found.mb_s
    assert found.missed == pytest.approx(expected.missed)
    assert replace(found, mb_s=expected.mb_s, missed=expected.missed) == expected


PIECES = Sample(10.0, 1.0, Rates(), cache=Rates(16.0, 68.2), backing=Rates(0.0, 16.0), cache_iops=(128.0, 140.0))


@pytest.mark.parametrize("flush_iops", [128.0, 4096.0])
@pytest.mark.parametrize("begun_mb_s", [0.5, 2.0, 20.0, 64.0, 80.0, 220.0, 500.0])
def test_writes_of_many_mb_cost_the_same_before_and_after_they_have_begun(begun_mb_s: float, flush_iops: float) -> None:
    """The kernel counts them when they begin. The volumes do 64 MB/s of them beside a flush, for some seconds more."""
    sample = replace(PIECES, adaptive=Rates(0.0, begun_mb_s), cache_iops=(flush_iops, 140.0))
    found = capacity(OF_3000_IOPS, cached(), sample, POLICY)
    assert isinstance(found, Capacity)
    assert found.missed == 0
    assert 0.9 * 78.4 / USUAL_COST <= found.mb_s <= 78.4


@pytest.mark.parametrize(("backing_mb_s", "missed"), [(10.0, 0.26), (60.0, 1.0)])
@pytest.mark.parametrize("begun_mb_s", [0.5, 20.0])
def test_what_the_backing_volume_has_done_is_a_part_of_all_that_was_done(
    begun_mb_s: float, backing_mb_s: float, missed: float
) -> None:
    sample = replace(PIECES, adaptive=Rates(0.0, begun_mb_s), backing=Rates(0.0, 16.0 + backing_mb_s))
    found = capacity(ATTACHED, cached(), replace(sample, cache=Rates(16.0, 42.0)), POLICY)
    assert isinstance(found, Capacity)
    assert found.missed == pytest.approx(missed, abs=0.01)


@pytest.mark.parametrize("iops", [2000.0, 3000.0, 0.0])
def test_an_index_that_small_writes_may_have_caused_counts_in_full(iops: float) -> None:
    """12 MB/s of them in at most 3,000 requests; 0: how many there are is not known."""
    small = Sample(10.0, 1.0, Rates(0.0, 24.0), cache=Rates(0.0, 40.0), cache_iops=(0.0, iops))
    found = capacity(ATTACHED, cached(), small, POLICY)
    assert isinstance(found, Capacity)
    assert found.mb_s == pytest.approx(78.4 * 24 / 40)


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


@pytest.mark.parametrize("sample", [None, WARM, COLD, SMALL])
def test_of_a_volume_whose_bandwidth_the_cloud_does_not_say_there_is_none(sample: Sample | None) -> None:
    found = capacity(state(Phase.BOOSTING, boosted(volume=volume(bandwidth_mb_s=0.0))), cached(), sample, POLICY)
    assert isinstance(found, Capacity)
    assert (found.mb_s, found.limited_by) == (0.0, LimitedBy.CACHE)


@settings(deadline=None)
@given(
    st.floats(0, 200),
    st.floats(0, 200),
    st.floats(0, 500),
    st.sampled_from(list(CacheMode)),
    st.booleans(),
    st.booleans(),
    st.floats(0, 2),
)
def test_capacity_and_flush_together_fit_the_volumes_unless_the_scheduler_halves_them(
    missed: float, hit: float, rate: float, mode: CacheMode, full: bool, slow: bool, more: float
) -> None:
    of = state(Phase.BOOSTING, boosted(volume=volume(bandwidth_mb_s=10.0))) if slow else ATTACHED
    view = cached(flush_limit_mb_s=rate, cache_mode=mode, flush_full_speed=full)
    moved = missed + hit
    assume(moved > 0)
    sample = Sample(10.0, 1.0, Rates(moved, 0.0), backing=Rates(missed, 0.0), cache=Rates(hit, hit * more))
    found = capacity(of, view, sample, POLICY)
    assert isinstance(found, Capacity)
    on_backing = (found.missed or 1.0) if found.limited_by is LimitedBy.BACKING else None
    cost, usable = on_backing or hit * (1 + more) / moved, USABLE[found.limited_by] * found.bandwidth_mb_s
    assume(moved * cost >= BUSY * usable)  # of a quiet device the costs count in part
    assert usable / 2 * (1 - 1e-9) <= found.mb_s * cost
    assert found.mb_s * cost + min(found.flush_mb_s, usable / 2) <= usable * (1 + 1e-9)
