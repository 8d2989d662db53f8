"""Cgroups that read and write: each direction has a limit, and what is shared is their sum."""

from __future__ import annotations

import pytest

from elastio.core.device_queue import TURN_S
from elastio.core.shares import SharePlan
from elastio.host import share_limits
from elastio.host.cgroups import limits_of
from elastio.host.sharer import Sharer
from tests.fixtures.shared_device import DB, ETL, NUMBER, SharedDevice
from tests.fixtures.sysfs_tree import Tree


def limit(tree: Tree, group: str) -> float:
    """Of each direction, in MB/s."""
    found = share_limits.share_mb_s(limits_of(tree.kernel, group).get(NUMBER))
    assert found is not None
    return found


def turns(device: SharedDevice, sharer: Sharer, count: int) -> None:
    for _ in range(count):
        device.sleep(TURN_S)
        sharer.turn()


def test_who_reads_and_writes_has_no_more_than_its_share_in_all(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    """The kernel limits each direction."""
    device.loads = {DB: (40.0, 40.0), ETL: (10.0, 30.0)}
    sharer.begin(SharePlan(48.0), "bcache0")
    turns(device, sharer, 52)
    assert rates(device, sharer) == {DB: pytest.approx(32, rel=0.05), ETL: pytest.approx(16, rel=0.05)}
    assert limit(tree, DB) == pytest.approx(16, abs=1)
    assert limit(tree, ETL) == pytest.approx(8, abs=1)
    device.loads = {DB: (80.0, 0.0), ETL: (0.0, 40.0)}
    turns(device, sharer, 40)
    assert rates(device, sharer) == {DB: pytest.approx(32, rel=0.1), ETL: pytest.approx(16, rel=0.1)}


def test_who_reads_and_writes_has_its_share_if_it_cannot_use_both_limits_at_a_time(
    device: SharedDevice, sharer: Sharer
) -> None:
    device.loads, device.fills = {DB: (40.0, 40.0), ETL: (40.0, 40.0)}, {DB: 0.88, ETL: 0.96}
    sharer.begin(SharePlan(48.0), "bcache0")
    turns(device, sharer, 52)
    assert rates(device, sharer) == {DB: pytest.approx(32, rel=0.02), ETL: pytest.approx(16, rel=0.02)}


def test_who_cannot_use_both_limits_at_a_time_has_what_others_leave(device: SharedDevice, sharer: Sharer) -> None:
    device.loads, device.fills = {DB: (40.0, 40.0), ETL: (2.0, 2.0)}, {DB: 0.78}
    sharer.begin(SharePlan(48.0), "bcache0")
    turns(device, sharer, 40)
    assert rates(device, sharer)[DB] == pytest.approx(44, rel=0.04)


@pytest.mark.parametrize("count", range(4, 12))
def test_a_limit_goes_down_while_what_is_used_of_it_is_being_learned(
    tree: Tree, device: SharedDevice, sharer: Sharer, count: int
) -> None:
    """Its first step is just what is in force; another value would count as somebody else's."""
    device.loads, device.fills = {DB: (40.0, 40.0), ETL: (40.0, 40.0)}, {DB: 0.88, ETL: 0.96}
    sharer.begin(SharePlan(48.0), "bcache0")
    turns(device, sharer, count)
    before = limit(tree, DB)
    sharer.begin(SharePlan(30.0), "bcache0")
    turns(device, sharer, 1)
    assert limit(tree, DB) < 0.8 * before


def rates(device: SharedDevice, sharer: Sharer) -> dict[str, float]:
    """MB/s of the next ten seconds, read and written."""
    before = {group: device.moved_mb(group) for group in device.loads}
    turns(device, sharer, round(10 / TURN_S))
    return {group: (device.moved_mb(group) - mb) / 10 for group, mb in before.items()}
