from __future__ import annotations

from itertools import combinations

import pytest

from elastio_testbed.catalogue import EXPERIMENTS
from elastio_testbed.experiment import PUBLISHED, Scaled, Setup
from elastio_testbed.start_schedule import busy, overlap_s, starts

SETUPS = tuple(Setup)


@pytest.mark.parametrize(("name", "scale"), [("cm1", 0.25), ("cm1", 1.0), ("demo", 1.0)])
def test_dumps_of_different_set_ups_do_not_overlap(name: str, scale: float) -> None:
    scaled = Scaled(EXPERIMENTS[name], scale, 0.5)
    chosen = starts(scaled, SETUPS)
    spans = [
        (begin + chosen[setup], end + chosen[setup], setup)
        for setup in SETUPS
        for begin, end in busy(scaled, setup).dumps
    ]
    together = [(a, b) for a, b in combinations(spans, 2) if a[2] is not b[2] and a[0] < b[1] and b[0] < a[1]]
    assert together == []
    assert overlap_s(scaled, chosen) == 0


def test_side_by_side_ends_well_before_one_after_the_other_would() -> None:
    scaled = Scaled(EXPERIMENTS["cm1"], 0.25, 0.5)
    chosen = starts(scaled, PUBLISHED)
    alone = busy(scaled, Setup.STATIC_FAST).dumps[-1][1]
    assert max(chosen.values()) < 0.5 * alone


def test_two_set_ups_started_together_overlap_unless_one_has_a_slow_volume() -> None:
    scaled = Scaled(EXPERIMENTS["cm1"], 0.25, 0.5)
    together = {Setup.ADAPTIVE: 0.0, Setup.STATIC_FAST: 0.0}
    assert overlap_s(scaled, together) >= scaled.dumps_bytes[0] / scaled.cache_bytes_s
    assert overlap_s(scaled, {Setup.STATIC_SLOW: 0.0, Setup.STATIC_FAST: 0.0}) == 0
