"""The model of volumes and of the agent: against the replay of the real one, and against a calculation by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.policy import Policy
from elastio.strategy.credits import CreditBucket, constant
from elastio.units import GB, GIB, MB
from elastio_adviser.fluid import is_sustained, serve
from elastio_adviser.replay import Demand
from elastio_adviser.whatif import Question, answer
from elastio_sim.kernel import KernelSettings

DUMPS = (Demand(60, 60 * MB, 0), Demand(0, 4 * GB, 0), Demand(600, 0, 0)) * 3
SPREAD = (Demand(60, 60 * MB, 0), Demand(30, 3 * GB, 0), Demand(300, 300 * MB, 300 * MB), Demand(300, 0, 0)) * 2
SPIKES = (Demand(58, 0, 0), Demand(2, 24 * MB, 0)) * 20
FULL = (Demand(60, 60 * MB, 0), Demand(0, 10 * GB, 0), Demand(900, 0, 0))
READS = (Demand(60, 0, 60 * MB), Demand(30, 1 * GB, 1 * GB), Demand(300, 0, 0)) * 2


@pytest.mark.parametrize(
    ("wanted", "backing", "cache"),
    [(DUMPS, 131.0, 500.0), (SPREAD, 33.0, 128.0), (SPIKES, 33.0, 128.0), (FULL, 33.0, 128.0), (READS, 33.0, 128.0)],
    ids=["dumps", "spread", "spikes", "overflow", "reads"],
)
def test_the_model_agrees_with_the_real_agent(wanted: tuple[Demand, ...], backing: float, cache: float) -> None:
    asked = Question(wanted, backing_mb_s=backing, cache_mb_s=cache, initial_bytes=8 * GIB, with_timeline=False)
    real = answer(asked).policies[0]
    policy = asked.policy({}, KernelSettings().backing_uuid)
    found = serve(wanted, constant(backing), policy)
    assert found.completion_s == pytest.approx(real.completion_s, rel=0.03)
    assert len(found.boosts) == len(real.phases)
    assert sum(b.held_s for b in found.boosts) == pytest.approx(sum(b.held_s for b in real.phases), rel=0.1)


def test_a_burst_after_useless_boosts_gets_a_cache_at_once() -> None:
    """Spikes of 2 s are boosted less and less often; a longer load does not wait for them."""
    asked = Question((), backing_mb_s=33.0, cache_mb_s=128.0)
    wanted = (*SPIKES * 6, Demand(0, 8 * GB, 0), Demand(60, 0, 0))
    boosts = serve(wanted, constant(33.0), asked.policy({}, KernelSettings().backing_uuid)).boosts
    begin = sum(d.seconds for d in SPIKES) * 6
    assert len([b for b in boosts if b.started_s < begin]) < 15
    assert [b.started_s - begin for b in boosts if b.started_s > begin] == [pytest.approx(3, abs=2)]


def test_a_volume_of_constant_speed_takes_the_time_of_its_bytes() -> None:
    assert serve(DUMPS, constant(100.0)).completion_s == pytest.approx(3 * (660 + 40))
    assert serve((Demand(10, 500 * MB, 500 * MB),), constant(50.0)).completion_s == pytest.approx(20)


# 500 GiB of a cold type: 40 MB/s for 34 MB/s of credits.
COLD = CreditBucket(6.0, 40.0, 500 * GIB)


def test_a_cold_volume_bursts_until_its_credits_are_gone() -> None:
    small = CreditBucket(6.0, 40.0, 340 * MB)
    assert serve((Demand(0, 400 * MB, 0),), small).completion_s == pytest.approx(10)
    # 10 s at 40 MB/s empty it; the other 600 MB take 100 s at 6 MB/s.
    run = serve((Demand(0, GB, 0),), small)
    assert run.completion_s == pytest.approx(10 + 100)
    assert run.least_credits == 0
    assert serve((Demand(0, GB, 0),), small, full=False).completion_s == pytest.approx(GB / MB / 6)


def test_a_boost_makes_a_cold_volume_fast_and_spends_its_credits_on_the_flush() -> None:
    policy = Policy(40.0, 500.0, 40.0, initial_size_bytes=10 * GIB)
    alone, boosted = serve(DUMPS, COLD), serve(DUMPS, COLD, policy)
    assert alone.completion_s == pytest.approx(3 * 660 + 3 * 100)
    # 6.5 s at 40 MB/s until the cache is there, then 3.74 GB at 500 MB/s.
    assert boosted.completion_s == pytest.approx(3 * 660 + 3 * (6.5 + 3740 / 500), rel=0.01)
    assert len(boosted.boosts) == 3
    assert 0.95 < boosted.least_credits < 1


def test_a_flush_that_has_spent_its_share_leaves_the_reserve() -> None:
    policy = Policy(40.0, 500.0, 40.0, initial_size_bytes=20 * GIB)
    bucket = CreditBucket(6.0, 40.0, 2 * GB)
    run = serve((Demand(0, 8 * GB, 0), Demand(3600, 0, 0)), bucket, policy)
    assert run.least_credits == pytest.approx(0.1, abs=0.01)
    assert run.boosts[0].held_s > 500


def test_credits_last_where_a_load_needs_less_than_the_base_rate() -> None:
    assert is_sustained((Demand(0, 5 * GB, 0),), COLD, 900)
    assert not is_sustained((Demand(0, 6 * GB, 0),), COLD, 900)


DEMANDS = st.lists(
    st.builds(
        Demand,
        st.one_of(st.just(0.0), st.floats(0.1, 400)),
        st.floats(0, 5e9),
        st.floats(0, 5e8),
    ),
    min_size=1,
    max_size=12,
)


@given(DEMANDS, st.floats(0, 1))
def test_every_load_ends_and_a_cache_never_slows_it_down(wanted: list[Demand], capacity: float) -> None:
    bucket = CreditBucket(6.0, 40.0, capacity * 20 * GB)
    alone = serve(wanted, bucket)
    boosted = serve(wanted, bucket, Policy(40.0, 160.0, 40.0, initial_size_bytes=10 * GIB))
    least = sum(max(d.seconds, d.moved_bytes / MB / 40.0) for d in wanted)
    assert alone.completion_s >= least - 1e-3
    assert 0 <= boosted.least_credits <= 1
    assert all(b.held_s > 0 for b in boosted.boosts)
