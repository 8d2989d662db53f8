"""Which cgroups are looked at where there are many, and whose bandwidth limit is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.core.moved import Moved
from elastio.host.cgroups import CGROUPS
from elastio.host.group_watch import LIST_S, MOST_GROUPS
from elastio.strategy.account import account
from tests.unit.elastio.host.test_group_watch import DB, NUMBER, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.proc.task(10, "D")
    made.group(DB, 10)
    return made


@pytest.mark.parametrize(("limit", "cap_mb_s", "limited"), [("max", 9, 0), ("9900000", 99, 1), ("11000000", 9, 0)])
def test_the_lower_limit_of_cgroup_and_device_is_in_force(
    machine: Machine, limit: str, cap_mb_s: float, limited: float
) -> None:
    machine.kernel.lay(f"{CGROUPS}/{DB}/io.max", f"{NUMBER} rbps=max wbps={limit} riops=max wiops=max")
    machine.look()
    machine.use(DB, 500)
    seen = machine.look(cap_mb_s=cap_mb_s).groups[DB]
    assert account(seen).bandwidth_s == pytest.approx(seen.seconds)
    assert seen.limited.seconds == pytest.approx(limited * seen.seconds)


NAMES = [f"system.slice/many{number:03}.service" for number in range(MOST_GROUPS + 20)]


@pytest.fixture
def many(machine: Machine) -> Machine:
    """More cgroups than can be followed, each with a task that waits, and without one that uses the device."""
    machine.remove(DB)
    for pid, name in enumerate(NAMES, 1000):
        machine.proc.task(pid, "D")
        machine.group(name, pid)
    return machine


def test_of_many_cgroups_those_are_followed_that_have_moved_most_since_the_last_list(many: Machine) -> None:
    many.look(token="a")
    for name in NAMES:
        many.use(name, 500)
    many.use(NAMES[-1], 900_000)
    many.use(NAMES[-2], 1_000)
    moved = many.look(token="a").moved
    assert moved.keys() == {*NAMES[: MOST_GROUPS - 2], *NAMES[-2:]}
    assert moved[NAMES[-1]] == Moved(0, 900_000)
    many.sleep(LIST_S)
    many.use(NAMES[-3], 700)
    assert many.look(token="a").moved == {NAMES[-3]: Moved(0, 200)}
    many.sleep(LIST_S)
    for name in NAMES:
        many.use(name, 1_000_000)
    assert NAMES[-1] not in many.look(token="a").moved, "it has moved most since it exists, and least since then"


def test_one_that_moves_little_stays_where_others_move_as_little(many: Machine) -> None:
    many.look()
    many.use(NAMES[-1], 500)
    assert NAMES[-1] in many.look().groups
    many.sleep(LIST_S)
    for _ in range(3):
        many.look()
    assert NAMES[-1] in many.look().groups, "nobody has moved anything since"


def test_the_first_look_of_a_burst_is_at_one_that_is_the_last_by_name(many: Machine) -> None:
    many.look(begun_at=1.0)
    many.use(NAMES[-1], 900_000)
    many.clock.at += 60
    many.look(begun_at=150.0)
    many.use(NAMES[-1], 990_000)
    assert many.look(begun_at=150.0).groups.keys() == {NAMES[-1]}


def test_more_cgroups_than_are_followed_are_one_remark_however_many_they_are(many: Machine) -> None:
    found = many.look(begun_at=1.0).remarks
    many.group("system.slice/another.service")
    assert many.look(begun_at=2.0).remarks == found
    assert len(found) == 1
    for name in NAMES[:20]:
        many.remove(name)
    many.remove("system.slice/another.service")
    assert not many.look(begun_at=3.0).remarks
