"""A lower limit is written after what is in force, in time, and by half at most."""

from __future__ import annotations

import pytest

from elastio.core.device_queue import TURN_S
from elastio.core.shares import Reserved, SharePlan
from elastio.host import share_limits
from elastio.host.cgroups import CGROUPS
from elastio.host.guard import Guard
from elastio.host.sharer import LATE_TURNS, LATEST_S, LEAST, SETTLES_S, Sharer, allowed, lowered, window
from tests.fixtures.shared_device import DB, ETL, NUMBER, SharedDevice
from tests.fixtures.sysfs_tree import Tree
from tests.unit.elastio.host.test_sharer import ADMINISTRATOR, PLAN, io_max, limits, share, turns

IN_FORCE = {"up": 4.0, "down": 8.0, "far down": 8.0}
NEW = {"new": 1.0, "up": 5.0, "down": 6.0, "far down": 1.0}
FIRST = {"down": 8.0, "far down": 8.0}
LATE_S = LATEST_S - SETTLES_S + 0.001


def test_first_those_that_go_down_are_written_as_they_are() -> None:
    assert lowered(NEW, IN_FORCE) == FIRST


def test_none_is_lower_than_half_of_what_was_in_force() -> None:
    assert allowed(NEW, FIRST) == {**NEW, "far down": LEAST * 8.0}
    assert [*allowed(NEW, FIRST)][:2] == [*FIRST]


def test_both_ends_of_the_window_allow_for_what_the_first_step_takes() -> None:
    assert window(10.0, 11.0) == (11.0 + SETTLES_S, 10.0 + LATEST_S)


def test_the_first_step_writes_a_share_as_it_is_and_nothing_of_somebody_else(
    tree: Tree, device: SharedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    share_limits.put(tree.kernel, ETL, NUMBER, 5.0)
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.max", ADMINISTRATOR)
    before, written = io_max(tree, ETL), list[str]()
    monkeypatch.setattr(tree.kernel, "write", lambda name, text: written.append(text))
    for group in (DB, ETL):
        share_limits.repeat(tree.kernel, group, NUMBER)
    assert written == [before]


@pytest.mark.parametrize("group", [DB, ETL])
def test_a_limit_that_is_set_between_both_steps_stays(
    tree: Tree, device: SharedDevice, sharer: Sharer, group: str
) -> None:
    """That of ETL goes down meanwhile, and that of DB up."""
    share(device, sharer, SharePlan(58.0, (Reserved(ETL, 38.0),)))
    before = limits(tree)
    sharer.begin(PLAN, "bcache0")
    device.sleep(TURN_S)
    device.on_sleep = lambda: tree.kernel.lay(f"{CGROUPS}/{group}/io.max", ADMINISTRATOR)
    sharer.turn()
    device.on_sleep = lambda: None
    assert io_max(tree, group) == ADMINISTRATOR
    assert limits(tree).keys() == before.keys() - {group}
    assert limits(tree).items().isdisjoint(before.items())
    turns(device, sharer)
    sharer.end()
    assert io_max(tree, group) == ADMINISTRATOR


def test_a_limit_whose_turns_are_always_late_goes_down_in_the_end(
    tree: Tree, device: SharedDevice, watch: Guard, caplog: pytest.LogCaptureFixture
) -> None:
    sharer = Sharer(tree.kernel, watch, device.now, lambda seconds: device.sleep(seconds + LATE_S))
    share(device, sharer)
    before = limits(tree)
    sharer.begin(SharePlan(12.0), "bcache0")
    turns(device, sharer, LATE_TURNS)
    assert (limits(tree), caplog.records) == (before, [])
    for part in (LEAST, LEAST**2):
        turns(device, sharer, 1)
        assert limits(tree) == {group: pytest.approx(part * mb_s, abs=0.6) for group, mb_s in before.items()}
    turns(device, sharer, 20)
    assert limits(tree) == {DB: 8, ETL: 4}
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_limit_that_is_late_once_stays_for_a_turn(tree: Tree, device: SharedDevice, watch: Guard) -> None:
    late = [LATE_S, 0.0, LATE_S, LATE_S, 0.0]
    sharer = Sharer(tree.kernel, watch, device.now, lambda seconds: device.sleep(seconds + late.pop(0)))
    share(device, sharer)
    for capacity, changes in ((40.0, (False, True)), (12.0, (False, False, True))):
        sharer.begin(SharePlan(capacity), "bcache0")
        for is_changed in changes:
            before = limits(tree)
            turns(device, sharer, 1)
            assert (limits(tree) != before) is is_changed


def test_many_that_take_long_to_write_are_not_late(
    tree: Tree, device: SharedDevice, sharer: Sharer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both together take longer than there is between the ends of one window."""
    share(device, sharer)
    sharer.begin(SharePlan(12.0), "bcache0")
    before, write = limits(tree), tree.kernel.write

    def slowly(name: str, text: str) -> None:
        write(name, text)
        device.at += 0.6 * (LATEST_S - SETTLES_S)

    monkeypatch.setattr(tree.kernel, "write", slowly)
    turns(device, sharer, 1)
    assert limits(tree) == {group: pytest.approx(LEAST * mb_s, abs=0.6) for group, mb_s in before.items()}
