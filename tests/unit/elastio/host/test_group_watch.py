"""Looks at the tasks of cgroups: who is looked at, what of a look is believed, and what it may cost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.agent.daemon import REST_S
from elastio.core.moved import Moved
from elastio.host.cgroups import CGROUPS
from elastio.host.group_watch import CREDIT_S, FIRST_GROUPS, LIST_S, MOST_THREADS, SHARE, GroupWatch
from elastio.strategy.account import account
from elastio.strategy.watched_bursts import Seen, Watch
from tests.fixtures.sysfs_tree import Kernel
from tests.unit.elastio.host.test_task_states import Proc

NUMBER = "252:0"
DB, CRON = "system.slice/db.service", "system.slice/cron.service"
PATTERNS = ("*.slice", "*.service", "system.slice/*.service")


class Clock:
    at = 100.0

    def now(self) -> float:
        return self.at

    def wall(self) -> float:
        return self.at


class Counting(Kernel):
    reads = 0

    def read_or(self, name: str, default: str) -> str:
        self.reads += 1
        return super().read_or(name, default)


class Machine:
    """A tree with cgroups and their tasks. Time passes where the watch sleeps, and each read costs `cost_s`.

    `tick_s`: the step in which processor time is counted; 0: none. `users`: cgroups that use the device all the time.
    """

    def __init__(self, root: Path) -> None:
        self.kernel, self.proc, self.clock = Counting(root), Proc(root), Clock()
        self.cost_s = self.tick_s = 0.0
        self.moved, self.rate_mb_s = 0, 10.0
        self.users: tuple[str, ...] = ()
        self.kernel.lay(f"{CGROUPS}/cgroup.controllers", "cpu io")
        self.kernel.lay(f"{CGROUPS}/cgroup.subtree_control", "io")
        self.kernel.lay(f"{CGROUPS}/system.slice/io.stat", "")
        for device in ("bcache0", "bcache1"):
            self.kernel.lay(f"sys/block/{device}/dev", NUMBER)
        self.watch = GroupWatch(self.kernel, self.clock, self.sleep, self.spent)
        self._move()

    def group(self, name: str, *pids: int, used: int = 0) -> None:
        self.kernel.lay(f"{CGROUPS}/{name}/cgroup.procs", "\n".join(map(str, pids)))
        self.use(name, used)

    def use(self, name: str, used: int) -> None:
        shown = f"{NUMBER} rbytes=0 wbytes={used} rios=0 wios=0" if used else ""
        self.kernel.lay(f"{CGROUPS}/{name}/io.stat", shown)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.kernel.root / CGROUPS / name)

    def sleep(self, seconds: float) -> None:
        """The disk moves `rate_mb_s`."""
        self.clock.at += seconds
        self.moved += round(seconds * self.rate_mb_s * 1_000_000)
        self._move()
        for name in self.users if int(4 * self.clock.at) > int(4 * (self.clock.at - seconds)) else ():
            self.use(name, self.moved)

    def spent(self) -> float:
        spent_s = self.kernel.reads * self.cost_s
        return spent_s // self.tick_s * self.tick_s if self.tick_s else spent_s

    def burst(self, seconds: float) -> list[Seen]:
        """The looks at one burst. They are asked for with each sample; one that goes on makes the next one wait."""
        begin, seen = self.clock.at, []
        self.sleep(1.0)
        while self.clock.at < begin + seconds:
            asked_at = self.clock.at
            seen.append(self.watch.look(Watch(begin, "bcache0", 10.0, PATTERNS)))
            self.sleep(1.0 - (self.clock.at - asked_at) % 1.0)
        return seen

    def look(
        self, begun_at: float = 1.0, cap_mb_s: float | None = 10.0, token: str | None = None, device: str = "bcache0"
    ) -> Seen:
        """One look a second, as the agent asks for them."""
        self.clock.at += 1.0
        return self.watch.look(Watch(begun_at, device, cap_mb_s, PATTERNS, token))

    def count(self, token: str | None) -> Seen:
        return self.watch.look(Watch(1.0, "bcache0", None, PATTERNS, token, only_counts=True))

    def _move(self) -> None:
        sectors, busy_ms = self.moved // 512, round(self.clock.at * 1000)
        line = f"252 0 bcache0 0 0 0 0 {self.moved // 65536} 0 {sectors} 0 0 {busy_ms} 0"
        self.kernel.lay("proc/diskstats", line)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.proc.task(10, "D")
    made.proc.task(20, "R")
    made.group(DB, 10)
    made.group(CRON, 20)
    return made


def test_only_who_has_used_the_device_in_the_burst_is_looked_at(machine: Machine) -> None:
    machine.use(CRON, 700)
    assert machine.look().groups == {}
    machine.use(DB, 500)
    assert list(machine.look().groups) == [DB]
    machine.use(CRON, 800)
    assert list(machine.look().groups) == [DB]
    machine.clock.at += LIST_S
    machine.group("system.slice/job.service", 20, used=40)  # it begins within the burst
    assert sorted(machine.look().groups) == [CRON, DB, "system.slice/job.service"]
    assert machine.look(begun_at=2.0).groups == {}


def test_what_cgroups_move_is_counted_once_and_in_the_boost_that_was_there(machine: Machine) -> None:
    machine.use(CRON, 700)
    assert not machine.look().moved  # when it was moved is not known
    machine.use(DB, 500)
    first = machine.look()
    assert (first.token, first.moved) == (None, {DB: Moved(0, 500)})
    machine.use(DB, 600)
    assert not machine.look().moved
    before = machine.look(token="a")
    assert (before.token, before.moved) == (None, {DB: Moved(0, 100)})
    machine.use(DB, 650)
    machine.use(CRON, 30)  # another one, of the same name
    machine.clock.at += LIST_S
    boosted = machine.look(token="a")
    assert (boosted.token, boosted.moved) == ("a", {DB: Moved(0, 50), CRON: Moved(0, 30)})
    machine.use(DB, 660)
    after = machine.look()
    assert (after.token, after.moved) == ("a", {DB: Moved(0, 10)})
    machine.use(DB, 900)
    assert not machine.look(begun_at=2.0).moved


def test_a_count_reads_no_tasks_and_is_of_the_boost_that_was_there(machine: Machine) -> None:
    machine.look(token="a")
    machine.use(DB, 400)
    machine.look(token="a")
    machine.use(DB, 500)
    ended = machine.count(token="a")
    assert (ended.token, ended.moved, ended.groups) == ("a", {DB: Moved(0, 100)}, {})
    machine.use(DB, 530)
    machine.group("system.slice/job.service", used=40)  # it may have been there for long, and not been listed
    after = machine.count(token=None)
    assert (after.token, after.moved) == ("a", {DB: Moved(0, 30)})


def test_between_two_bursts_of_one_boost_nothing_is_lost(machine: Machine) -> None:
    machine.look(begun_at=1.0, token="a")
    machine.use(DB, 500)
    second = machine.look(begun_at=2.0, token="a")
    assert (second.token, second.moved) == ("a", {DB: Moved(0, 500)})
    machine.use(DB, 600)
    assert not machine.look(begun_at=3.0, token="b").moved
    machine.use(DB, 700)
    assert not machine.look(begun_at=4.0, token="b", device="bcache1").moved


def test_a_cgroup_that_was_not_in_the_last_list_of_a_boost_is_known_from_then_on(machine: Machine) -> None:
    new = "system.slice/new.service"
    machine.look(begun_at=1.0, token="a")
    machine.group(new, used=900_000_000)
    assert new not in machine.look(begun_at=2.0, token="a").moved
    machine.use(new, 900_000_500)
    assert machine.look(begun_at=3.0, token="a").moved[new] == Moved(0, 500)


def test_a_look_stands_for_the_time_since_the_last_and_for_what_was_moved(machine: Machine) -> None:
    machine.look()
    machine.use(DB, 500)
    seen = machine.look().groups[DB]
    machine.sleep(2)
    machine.rate_mb_s = 0.1
    machine.proc.task(10, "S")
    machine.sleep(6)
    seen = seen.plus(machine.look().groups[DB])
    assert account(seen).bandwidth_s == pytest.approx(seen.seconds - 8, abs=0.3)
    machine.rate_mb_s = 0.0
    seen, reads = machine.look().groups[DB], machine.kernel.reads
    assert [machine.look().groups for _ in range(4)] == [{}] * 4
    assert machine.kernel.reads - reads < 10, "the device moves nothing, and no task is read"
    seen = seen.plus(machine.look().groups[DB])  # it may hang
    assert not machine.look().groups
    machine.rate_mb_s = 1.0
    machine.proc.task(10, "D")
    machine.sleep(0.1)
    seen = seen.plus(machine.look().groups[DB])
    assert account(seen).latency_s == pytest.approx(2.1, abs=0.1), "since it was known that nothing moves"
    assert (round(account(seen).asleep_s + 2.1), seen.instants) == (round(seen.seconds), 30)


def test_a_cgroup_that_comes_late_has_not_waited_before(machine: Machine) -> None:
    machine.use(DB, 500)
    for used in (600, 700, 800):
        machine.look()
        machine.use(DB, used)
        machine.clock.at += 2 * LIST_S
    machine.use(CRON, 900)
    assert machine.look().groups[CRON].seconds < 3 * LIST_S


def test_a_cgroup_that_is_gone_is_a_remark(machine: Machine) -> None:
    machine.look()
    machine.use(DB, 500)
    machine.look()
    machine.remove(DB)
    machine.clock.at += LIST_S
    seen = machine.look()
    assert (seen.groups, len(seen.remarks)) == ({}, 1)
    assert not machine.look().remarks


def test_a_device_that_is_gone_and_a_kernel_that_counts_nothing_are_remarks(machine: Machine) -> None:
    machine.look()
    machine.use(DB, 500)
    machine.kernel.lay("proc/diskstats", "")
    gone = machine.look()
    machine.kernel.lay(f"{CGROUPS}/cgroup.subtree_control", "cpu")
    for seen in (gone, machine.look(begun_at=9.0)):
        assert (seen.groups, len(seen.remarks)) == ({}, 1)


def test_of_many_threads_some_are_looked_at_at_a_time(machine: Machine) -> None:
    for tid in range(1000, 999 + 2 * MOST_THREADS):
        machine.proc.task(10, "S", tid=tid)
    machine.look()
    machine.use(DB, 500)
    first, second = machine.look(), machine.look()
    assert [len(seen.remarks) for seen in (first, second)] == [1, 1]
    waits = [account(seen.groups[DB]).bandwidth_s > 0 for seen in (first, second)]
    assert sorted(waits) == [False, True]


def busy(machine: Machine, groups: int) -> list[str]:
    names = [f"system.slice/app{number}.service" for number in range(groups)]
    for pid, name in enumerate(names, 100):
        machine.proc.task(pid, "D")
        machine.group(name, pid)
    machine.users = tuple(names)
    machine.sleep(1.0)
    return names


def in_advance(machine: Machine, work: Callable[[], object]) -> float:
    """The most that looks cost, in any time, beyond SHARE of that time: in processor time without steps."""
    look, advance, last_at = machine.watch.look, 0.0, machine.clock.at
    most = 0.0

    def counted(watch: Watch) -> Seen:
        nonlocal advance, last_at, most
        at, before = machine.clock.at, machine.kernel.reads
        found = look(watch)
        advance = max(0.0, advance - SHARE * (at - last_at)) + (machine.kernel.reads - before) * machine.cost_s
        last_at, most = at, max(most, advance)
        return found

    machine.watch.look = counted  # type: ignore[method-assign]
    work()
    return most


@pytest.mark.parametrize(("groups", "cost_s", "tick_s"), [(2, 0.0012, 0.0), (2, 0.0012, 0.01), (30, 0.0001, 0.01)])
def test_looks_cost_no_more_than_their_share_and_the_credit_over_any_time(
    machine: Machine, groups: int, cost_s: float, tick_s: float
) -> None:
    names = busy(machine, groups)
    machine.cost_s, machine.tick_s = cost_s, tick_s
    begin, before = machine.clock.at, machine.kernel.reads
    seen: set[str] = set()

    def bursts() -> None:
        for seconds in (90.0, 20.0, 20.0, 5.0, 5.0):
            seen.update(name for each in machine.burst(seconds) for name in each.groups)
            machine.clock.at += 31.0

    one_look_s = 40 * cost_s
    assert in_advance(machine, bursts) < CREDIT_S + one_look_s + 2 * tick_s
    assert (machine.kernel.reads - before) * cost_s > SHARE * (machine.clock.at - begin) / 2
    assert seen == set(names)


def test_a_minute_and_an_hour_of_looks_are_within_what_is_promised() -> None:
    assert SHARE * 60 + CREDIT_S < 0.0046 * 60
    assert SHARE * 3600 + CREDIT_S < 0.0026 * 3600
    assert CREDIT_S < SHARE * REST_S, "a child that was ended at rest is followed by one with the whole credit"


@pytest.mark.parametrize("tick_s", [0.0, 0.01])
@pytest.mark.parametrize("seconds", [5.0, 10.0, 15.0])
def test_short_bursts_are_seen_nearly_whole_also_where_the_clock_goes_in_steps(
    machine: Machine, tick_s: float, seconds: float
) -> None:
    """One after the other, as soon as they count as two; a look costs as much as in a guest of user-mode Linux."""
    machine.users = (DB,)
    machine.sleep(1.0)
    machine.cost_s, machine.tick_s = 0.0001, tick_s
    for _ in range(3):
        seen = machine.burst(seconds)
        found = sum(each.groups[DB].seconds for each in seen if DB in each.groups)
        assert found >= seconds - 3
        machine.clock.at += 31.0


def test_where_lists_are_dear_they_are_made_more_rarely_and_looks_are_not(machine: Machine) -> None:
    for number in range(45):
        machine.group(f"system.slice/idle{number}.service")
    machine.users, machine.cost_s = (DB,), 0.0003
    machine.sleep(1.0)
    assert sum(DB in each.groups for each in machine.burst(60.0)) >= 24


def test_after_a_long_burst_the_first_seconds_of_the_next_one_are_seen(machine: Machine) -> None:
    """It has used all of the credit, and the quiet has paid for half of it."""
    names = busy(machine, FIRST_GROUPS)
    machine.cost_s = 0.0004
    machine.burst(120.0)
    machine.clock.at += 31.0
    found = machine.burst(5.0)
    assert sum(len(each.groups) for each in found) >= 2 * len(names)


def test_who_has_moved_since_the_list_before_is_looked_at_first_and_counts_only_if_it_goes_on(
    machine: Machine,
) -> None:
    machine.users = (DB,)
    machine.sleep(1.0)
    machine.use(CRON, 900_000_000)
    first, *later = machine.burst(6.0)
    assert list(first.groups) == [DB]
    assert first.groups[DB].seconds == pytest.approx(2.0, abs=0.1)
    assert {name for each in later for name in each.groups} == {DB}


def test_who_has_moved_most_is_looked_at_first_and_most_and_no_task_counts_in_two_cgroups(machine: Machine) -> None:
    machine.look()
    machine.use("system.slice", 900)
    machine.use(CRON, 900)
    machine.use(DB, 10**6)
    assert list(machine.look().groups) == [DB, CRON]
    machine.cost_s = 0.0006
    looks = [name for _ in range(200) for name in machine.look().groups]
    assert looks.count(DB) > 3 * looks.count(CRON) > 0


def test_the_first_look_is_at_the_few_that_have_moved_most_since_the_last_list(machine: Machine) -> None:
    names = busy(machine, 2 * FIRST_GROUPS)
    machine.use(DB, 10)
    machine.use(CRON, 20)
    first, second, *_ = machine.burst(6.0)
    assert len(first.groups) == FIRST_GROUPS
    assert set(names) <= {*first.groups, *second.groups}
    assert {DB, CRON} & first.groups.keys() == set()


def test_a_task_that_cannot_be_traced_sleeps_elsewhere(machine: Machine) -> None:
    machine.proc.task(10, "S")
    (machine.kernel.root / "proc/10/task/10/syscall").unlink()
    machine.look()
    machine.use(DB, 500)
    seen = machine.look().groups[DB]
    assert account(seen).elsewhere_s == pytest.approx(seen.seconds)
