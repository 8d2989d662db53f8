"""What the status document becomes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.control.status import BackingPart, CapacityPart, CreditsPart, CyclePart, PurchasesPart, Status, VolumePart
from elastio.core.model import Rates, Sample, VolumeTag
from elastio.core.state import (
    Inhibition,
    InhibitionReason,
    Listed,
    Observation,
    Phase,
)
from elastio.metrics.document import agent_values
from elastio.strategy.memory import Waste
from elastio.units import GIB, MB
from tests.values import NOW, POLICY, WALL, boosted, faulted, seen, state, volume

AROUND = RuntimeInfo("1.2.3", NOW - 60)
PLAIN = status_of(state(Phase.IDLE), seen(), POLICY, AROUND)
CREDITS = CreditsPart(50 * GIB, 100 * GIB, 0.0, 6.0, 40.0, flush_limit_mb_s=10.0)


def values(status: Status) -> dict[tuple[str, ...], float]:
    """By the name without `elastio_`, and the labels."""
    found = [((v.name.removeprefix("elastio_"), *v.labels), v.value) for v in agent_values(status)]
    assert len(dict(found)) == len(found), "each series once"
    return dict(found)


def holding(status: Status, name: str) -> list[str]:
    """The states of this metric that hold."""
    return [key[1] for key, value in values(status).items() if key[0] == name and value == 1]


@pytest.mark.parametrize("phase", Phase)
def test_exactly_the_phase_of_the_agent_holds(phase: Phase) -> None:
    assert holding(replace(PLAIN, phase=phase.value), "phase") == [phase]
    assert {key[1] for key in values(PLAIN) if key[0] == "phase"} == set(Phase)


def test_before_the_kernel_was_read_no_phase_holds() -> None:
    starting = replace(PLAIN, recovered=False)
    assert holding(starting, "phase") == []
    assert values(starting)[("phase_known",)] == 0


def test_a_fault_has_its_kind_also_one_of_a_later_release() -> None:
    assert holding(PLAIN, "fault") == []
    assert holding(status_of(faulted(), seen(), POLICY, AROUND), "fault") == ["cache missing"]
    assert holding(replace(PLAIN, fault_kind="of a later release"), "fault") == ["of a later release"]


def test_what_prevents_boosts_is_told_apart() -> None:
    stopped = state(Phase.IDLE, failures=2, waste=Waste(stopped="no"), capped_boosts=3, declined_boosts=4)
    found = values(status_of(stopped, seen(), POLICY, AROUND))
    names = ("purchases_stopped", "boost_failures", "boosts_capped_total", "boosts_declined_total")
    assert [found[name,] for name in names] == [1, 2, 3, 4]
    assert PLAIN.purchases == PurchasesPart()
    held = state(Phase.IDLE, inhibition=Inhibition(InhibitionReason.SNAPSHOT, NOW + 60))
    assert holding(status_of(held, seen(), POLICY, AROUND), "inhibited") == ["snapshot"]


def test_rates_are_in_bytes_and_apart_for_each_device() -> None:
    sample = Sample(NOW - 1, 1.0, Rates(1.0, 2.0), Rates(3.0, 4.0), Rates(5.0, 6.0))
    found = values(status_of(state(Phase.BOOSTING, boosted()), seen(sample=sample), POLICY, AROUND))
    rates = {key[1:]: value / MB for key, value in found.items() if key[0] == "throughput_bytes_per_second"}
    assert list(rates.values()) == [1, 2, 3, 4, 5, 6]
    assert list(rates) == [(of, way) for of in ("adaptive", "backing", "cache") for way in ("read", "write")]
    assert found["bandwidth_bytes_per_second", "backing"] == 20 * MB
    assert found["bandwidth_bytes_per_second", "cache"] == 80 * MB


def test_capacity_is_told_while_it_is_known_and_what_is_shared_of_it() -> None:
    shared = values(replace(PLAIN, capacity=CapacityPart(58.0, shared_mb_s=56.0)))
    assert (shared[("capacity_bytes_per_second",)], shared[("shared_bytes_per_second",)]) == (58 * MB, 56 * MB)
    unknown = values(replace(PLAIN, capacity=CapacityPart(None, unknown="no sample yet")))
    assert ("capacity_bytes_per_second",) not in unknown
    assert unknown[("shared_bytes_per_second",)] == 0


def test_times_are_those_of_the_wall_clock() -> None:
    sample = Sample(NOW - 5, 1.0, Rates())
    listed = state(Phase.IDLE, listed=Listed(NOW - 9, NOW))
    found = values(status_of(listed, seen(), POLICY, replace(AROUND, sample=sample)))
    names = ("agent_start_time_seconds", "last_sample_timestamp_seconds", "volumes_listed_timestamp_seconds")
    assert [WALL - found[name,] for name in names] == [60, 5, 9]


def test_what_is_not_known_has_no_series() -> None:
    unknown = values(status_of(state(Phase.IDLE, owned=None, listed=None), Observation(NOW, WALL), POLICY, AROUND))
    absent = ("last_sample_timestamp_seconds", "dirty_bytes", "volumes_kept", "flush_left_seconds", "credits_ratio")
    assert not {(name,) for name in absent} & set(unknown)


def test_the_volume_of_the_boost_is_counted_before_the_cloud_lists_it() -> None:
    cycle = CyclePart("t", "load", "vol-1", "vol1", GIB, 80.0, WALL, 1.0, None, 2, 0, None, "")
    listed = (VolumePart("vol-2", "available", GIB, kept=True), VolumePart("vol-3", "gone", GIB, kept=True))
    found = values(replace(PLAIN, cycle=cycle, owned=listed))
    assert (found[("volumes",)], found[("volumes_kept",)], found[("cache_size_bytes",)]) == (2, 1, GIB)
    both = values(replace(PLAIN, cycle=cycle, owned=(VolumePart("vol-1", "attached", GIB),)))
    assert (both[("volumes",)], both[("volumes_kept",)]) == (1, 0)


def test_a_volume_that_is_not_tagged_clean_is_kept() -> None:
    dirty = state(Phase.IDLE, owned=(volume(tag=VolumeTag.DIRTY),))
    assert values(status_of(dirty, seen(), POLICY, AROUND))[("volumes_kept",)] == 1


def test_a_flush_has_its_least_time_left_at_the_bandwidth_that_credits_allow() -> None:
    cycle = CyclePart("t", "load", "v", "v", GIB, 80.0, WALL, 1.0, 1.0, 2, 800 * MB, 0.75, "")
    flushing = replace(PLAIN, cycle=cycle, backing=BackingPart(True, "dirty", "writeback", 200 * MB, GIB))
    assert values(flushing)[("flush_left_seconds",)] == pytest.approx(10.0)
    assert values(replace(flushing, credits=CREDITS))[("flush_left_seconds",)] == pytest.approx(20.0)
    assert values(replace(flushing, credits=CREDITS))[("credits_ratio",)] == 0.5
    assert ("flush_left_seconds",) not in values(replace(flushing, cycle=replace(cycle, flush_progress=None)))
