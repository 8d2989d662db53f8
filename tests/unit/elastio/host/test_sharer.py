"""Cgroups share the device by limits that follow what they use, and that go whatever happens."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from elastio.core.device_queue import TURN_S
from elastio.core.shares import LatencyTarget, Reserved, SharePlan
from elastio.errors import HostError
from elastio.host import share_limits, throttle
from elastio.host.bcache import BcacheHost
from elastio.host.cgroups import CGROUPS, FREE, limits_of
from elastio.host.guard import Guard
from elastio.host.sharer import LEAST, Sharer
from tests.fixtures.errors import refused
from tests.fixtures.shared_device import DB, ETL, NUMBER, SharedDevice
from tests.fixtures.sysfs_tree import SERIAL, SET_UUID, Tree

PLAN = SharePlan(58.0)
ADMINISTRATOR = f"{NUMBER} rbps=max wbps=10000000 riops=max wiops=max"


def turns(device: SharedDevice, sharer: Sharer, count: int = 12) -> None:
    for _ in range(count):
        device.sleep(TURN_S)
        sharer.turn()


def share(device: SharedDevice, sharer: Sharer, plan: SharePlan = PLAN) -> None:
    sharer.begin(plan, "bcache0")
    turns(device, sharer)


def limits(tree: Tree) -> dict[str, float]:
    """The shares in force, in whole MB/s."""
    groups = (DB, ETL, "system.slice", "user.slice")
    shown = {group: limits_of(tree.kernel, group).get(NUMBER) for group in groups}
    return {group: round(mb_s) for group, line in shown.items() if (mb_s := share_limits.share_mb_s(line)) is not None}


def shared_mb_s(tree: Tree) -> float | None:
    found = share_limits.in_force(tree.kernel)
    return found.capacity_mb_s if found else None


def io_max(tree: Tree, group: str) -> str:
    return tree.kernel.read(f"{CGROUPS}/{group}/io.max")


def test_the_hungry_have_what_others_leave(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    share(device, sharer)
    assert limits(tree) == {DB: 39, ETL: 27}
    device.loads = {DB: (40.0, 0.0), ETL: (0.0, 28.0)}
    turns(device, sharer)
    assert limits(tree) == {DB: 39, ETL: 19}


def test_a_reservation_changes_the_shares(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    share(device, sharer, SharePlan(58.0, (Reserved("etl.service", 38.0),)))
    assert limits(tree) == {DB: 29, ETL: 38}


def test_others_have_their_shares_only_while_requests_take_longer_than_a_target(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    device.request_ms = 1000
    share(device, sharer)  # before anybody has a target
    device.request_ms = 5
    prompt = SharePlan(58.0, latency=(LatencyTarget("db.service", 10.0),))
    share(device, sharer, prompt)
    assert limits(tree) == {DB: 39, ETL: 27}
    turns(device, sharer, 20)
    assert limits(tree) == {DB: 39, ETL: 27}
    device.request_ms = 20
    turns(device, sharer, 20)
    assert limits(tree) == {DB: 39, ETL: 19}
    device.request_ms = 3
    turns(device, sharer, 60)
    assert limits(tree) == {DB: 39, ETL: 27}


def test_only_the_kind_of_requests_counts_that_the_cgroup_with_the_target_has(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    device.loads = {DB: (30.0, 0.0), ETL: (0.0, 28.0)}
    share(device, sharer, SharePlan(58.0, latency=(LatencyTarget(DB, 10.0),)))
    device.write_ms = 20
    turns(device, sharer, 20)
    assert limits(tree) == {DB: 39, ETL: 27}
    device.request_ms = 20
    turns(device, sharer, 60)
    assert limits(tree) == {DB: 39, ETL: 19}


def test_a_wait_in_half_of_the_time_is_long_however_many_requests_do_not_wait_in_the_other_half(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    """Of the requests a tenth waits, each time for no longer than those behind a large request. A look costs time."""
    share(device, sharer, SharePlan(58.0, latency=(LatencyTarget("db.service", 10.0),)))
    many, few = {DB: (36.0, 0.0), ETL: (36.0, 0.0)}, {DB: (4.0, 0.0), ETL: (4.0, 0.0)}
    for step in range(200):
        device.loads, device.request_ms = (few, 40) if step % 2 else (many, 1)
        device.sleep(1 / 16)
        if not sharer.wait_s():
            sharer.turn()
    assert sharer._division.lending.level < 1.0
    assert (sharer.wait_s() or 0.0) >= 0.04


def test_who_waits_for_one_large_request_keeps_its_limit(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    device.loads, device.request_ms, device.piece_mb = {DB: (3.0, 0.0), ETL: (0.0, 60.0)}, 40, {ETL: 31.0}
    share(device, sharer, SharePlan(58.0, (Reserved(DB, 52.0),), (LatencyTarget(DB, 10.0),)))
    turns(device, sharer, 60)
    for _ in range(100):
        turns(device, sharer, 1)
        assert limits(tree) == {DB: 52, ETL: 6}


def test_new_limits_are_lower_until_what_was_in_flight_before_is_drained(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    device.loads = {DB: (60.0, 0.0), ETL: (0.0, 60.0)}
    device.request_ms = 300
    sharer.begin(PLAN, "bcache0")
    turns(device, sharer, 4)
    assert limits(tree) == {DB: 27, ETL: 14}
    device.request_ms = 20
    turns(device, sharer, 4)
    assert limits(tree) == {DB: 39, ETL: 19}


def test_limits_end_when_the_device_is_not_full_any_more(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    share(device, sharer)
    device.loads = {DB: (5.0, 0.0), ETL: (0.0, 5.0)}
    turns(device, sharer)
    assert limits(tree) == {}
    assert io_max(tree, ETL) == ""


@pytest.mark.parametrize("written", [0.0, 8.0, 19.0])
def test_a_steady_load_has_no_limit_rewritten(tree: Tree, device: SharedDevice, sharer: Sharer, written: float) -> None:
    device.loads = {DB: (38.0 - written, written), ETL: (0.0, 19.5)}
    share(device, sharer)
    before = len(tree.kernel.writes)
    turns(device, sharer, 40)
    assert len(tree.kernel.writes) == before


def test_a_limit_that_goes_down_is_written_as_it_is_and_then_by_half_at_most(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    share(device, sharer)
    sharer.begin(SharePlan(12.0), "bcache0")
    before, written = limits(tree), list[int]()
    device.on_sleep = lambda: written.append(len(tree.kernel.writes))
    turns(device, sharer, 1)  # the last sleep is between both
    assert written[-1] - written[-2] == len(tree.kernel.writes) - written[-1] == len(before)
    assert limits(tree) == {group: pytest.approx(LEAST * mb_s, abs=0.6) for group, mb_s in before.items()}
    turns(device, sharer)
    assert limits(tree) == {DB: 8, ETL: 4}


def test_a_limit_of_an_administrator_stays_and_its_cgroup_counts(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.max", ADMINISTRATOR)
    share(device, sharer)
    assert (io_max(tree, DB), limits(tree)) == (ADMINISTRATOR, {ETL: 27})
    sharer.end()
    assert (io_max(tree, DB), limits(tree)) == (ADMINISTRATOR, {})


def test_a_limit_that_an_administrator_sets_in_its_place_stays(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    share(device, sharer)
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.max", ADMINISTRATOR)
    turns(device, sharer)
    assert io_max(tree, DB) == ADMINISTRATOR
    assert throttle.release(tree.kernel) == (ETL,)
    assert io_max(tree, DB) == ADMINISTRATOR


def test_nothing_is_listed_or_written_while_nothing_is_shared(
    tree: Tree, device: SharedDevice, sharer: Sharer, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []

    def folders(name: str) -> tuple[str, ...]:
        listed.append(name)
        return ()

    monkeypatch.setattr(tree.kernel, "folders", folders)
    turns(device, sharer)
    sharer.end()
    with throttle.limited(sharer._guard, tree.kernel, ("bcache0",), throttle.STOP):
        pass
    assert listed == []
    assert {name for name, _ in tree.kernel.writes} == {f"{CGROUPS}/{g}/io.max" for g in ("system.slice", "user.slice")}
    assert sharer.wait_s() is None


def test_a_cgroup_that_is_gone_is_forgotten(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    share(device, sharer)
    device.remove(ETL)
    turns(device, sharer)
    assert sharer.is_sharing
    sharer.end()
    assert limits(tree) == {}


# --- whoever has to takes them back ----------------------------------------------------------------------------


def test_whoever_frees_applications_needs_nothing_but_the_record(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    share(device, sharer)
    assert set(throttle.release(tree.kernel)) == {DB, ETL}
    assert limits(tree) == {}
    assert share_limits.recorded(tree.kernel) is None
    assert throttle.release(tree.kernel) == ()


def test_a_record_that_is_gone_ends_the_sharing(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    share(device, sharer)
    tree.kernel.path("run/elastio/.shares").unlink()
    turns(device, sharer, 1)
    assert (sharer.is_sharing, limits(tree)) == (False, {})


def test_a_guard_that_is_dismissed_takes_them_back(
    tree: Tree, device: SharedDevice, sharer: Sharer, watch: Guard
) -> None:
    """So it does when the holder dies: its end of the socket is closed."""
    share(device, sharer)
    watch.dismiss()
    assert limits(tree) == {}


def test_they_end_with_the_heartbeat_of_the_agent(
    tree: Tree, device: SharedDevice, sharer: Sharer, watch: Guard
) -> None:
    share(device, sharer)
    watch.pulse.beat(float("-inf"))
    turns(device, sharer, 1)
    watch.dismiss()
    turns(device, sharer, 1)
    assert (sharer.is_sharing, limits(tree)) == (False, {})


def test_what_a_process_left_that_died_with_its_guard_shows_and_is_lifted(
    tree: Tree, device: SharedDevice, sharer: Sharer, watch: Guard
) -> None:
    share(device, sharer)
    assert shared_mb_s(tree) == 0.0  # the tree has no process of this ID
    later = Sharer(tree.kernel, watch, device.now, device.sleep)
    later.begin(PLAN, "bcache0")
    assert limits(tree) == {}


def test_a_process_that_only_has_the_id_of_the_one_that_shared_does_not_share(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    stat = f"proc/{os.getpid()}/stat"
    tree.kernel.lay(stat, "1 (a (b) S" + " 0" * 18 + " 4711 0")
    targets = (LatencyTarget("db", 50.0), LatencyTarget("etl", 20.0))
    share(device, sharer, replace(PLAN, latency=targets))
    found = share_limits.in_force(tree.kernel)
    assert found is not None
    assert (found.capacity_mb_s, found.target_s) == (PLAN.capacity_mb_s, 0.02)
    tree.kernel.lay(stat, "1 (a (b) S" + " 0" * 18 + " 4712 0")
    found = share_limits.in_force(tree.kernel)
    assert found is not None
    assert (found.capacity_mb_s, found.target_s, set(found.groups)) == (0.0, None, {DB, ETL}), "they are to be lifted"


def test_nothing_is_written_once_another_process_shares(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    sharer.begin(PLAN, "bcache0")
    tree.kernel.lay("run/elastio/.shares", f"58.0\n1 4711\n{NUMBER}")
    turns(device, sharer, 2)
    assert (sharer.is_sharing, limits(tree)) == (False, {})
    assert share_limits.recorded(tree.kernel) is not None


def test_who_takes_limits_back_waits_for_the_writer_and_else_leaves_the_record(
    tree: Tree, device: SharedDevice, sharer: Sharer, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(device, sharer)
    monkeypatch.setattr(share_limits, "LOCK_S", 0.0)
    with share_limits.alone(tree.kernel), refused(HostError, "limit.busy"):
        share_limits.release_shares(tree.kernel)
    assert limits(tree) == {}
    assert share_limits.recorded(tree.kernel) is not None
    share_limits.release_shares(tree.kernel)
    assert share_limits.recorded(tree.kernel) is None


def test_a_kernel_that_limits_no_cgroup_is_refused(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    for group in (DB, ETL, "system.slice", "user.slice"):
        tree.kernel.path(f"{CGROUPS}/{group}/io.max").unlink()
    with refused(HostError, "cgroup.no_limits"):
        sharer.begin(PLAN, "bcache0")
    assert share_limits.recorded(tree.kernel) is None


def test_where_no_record_can_be_written_nothing_is_shared(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    tree.kernel.path("run/elastio").rmdir()
    with refused(HostError, "limit.claim"):
        sharer.begin(PLAN, "bcache0")
    assert not sharer.is_sharing


def test_a_limit_that_the_kernel_refuses_ends_the_sharing(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    tree.kernel.refuses.add("io.max")
    share(device, sharer)
    assert not sharer.is_sharing


# --- requests that are held back ---------------------------------------------------------------------------------


def attached(tree: Tree, device: SharedDevice, host: BcacheHost) -> None:
    """A cache that writes go to, and cgroups that share the device."""
    tree.attached()
    host.sharer._seconds = device.now
    host.set_shares(PLAN)
    turns(device, host.sharer)
    assert limits(tree)


def test_no_limit_stays_over_a_bypass(tree: Tree, device: SharedDevice, host: BcacheHost) -> None:
    attached(tree, device, host)
    seen: list[dict[str, float]] = []
    tree.kernel.before_read = lambda name: seen.extend([limits(tree)] if name.endswith("/inflight") else [])
    host.bypass_cache()
    assert seen
    assert not any(seen)


HOLDING: dict[str, Callable[[BcacheHost], object]] = {
    "bypass": BcacheHost.bypass_cache,
    "slow writes": lambda host: host.limit_writes(8.0),
    "detach": lambda host: host.detach_cache_set(SET_UUID),
    "help with a detach": BcacheHost.help_detach,
}


@pytest.mark.parametrize("hold", HOLDING, ids=HOLDING)
def test_limits_go_once_requests_are_held_back(tree: Tree, device: SharedDevice, host: BcacheHost, hold: str) -> None:
    attached(tree, device, host)
    if hold == "detach":
        tree.attached(mode="none")
    if hold == "help with a detach":
        tree.detaching()
    tree.kernel.writes.clear()
    with suppress(HostError):  # nothing in the tree ends the detach that is helped
        HOLDING[hold](host)
    held, *_ = (n for n, (name, text) in enumerate(tree.kernel.writes) if name.endswith("io.max") and FREE not in text)
    lifted, *_ = (n for n, (name, _) in enumerate(tree.kernel.writes) if name == f"{CGROUPS}/{DB}/io.max")
    assert held < lifted
    assert limits(tree) == {}
    assert share_limits.recorded(tree.kernel) is None


def test_a_guard_is_not_dismissed_while_the_device_is_shared(
    tree: Tree, device: SharedDevice, host: BcacheHost
) -> None:
    host.sharer._seconds = device.now
    host.set_shares(PLAN)
    turns(device, host.sharer)
    host.release_cache_disk(SERIAL, 1, None)
    assert limits(tree)
    host.set_shares(None)
    assert limits(tree) == {}
