"""States of tasks from a recorded /proc."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.async_waits import AsyncWaits
from elastio.host.sysfs import Sysfs
from elastio.host.task_states import CgroupMembers, ProcessState, TaskStates
from elastio.strategy.waits import NO_TIMES, ThreadTimes, Times
from elastio_adviser.command_tasks import Descendants


class Proc:
    """A tree with /proc of some tasks."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def task(
        self, pid: int, state: str, tid: int | None = None, children: str = "", delayed: int = 0, name: str = "a (b) c"
    ) -> None:
        folder = f"proc/{pid}/task/{tid or pid}"
        rest = ["0"] * 49  # fields 4 to 52
        rest[38] = str(delayed)
        self.write(f"{folder}/stat", f"{tid or pid} ({name}) {state} {' '.join(rest)}")
        self.write(f"{folder}/children", children)
        self.write(f"{folder}/syscall", "61 0x1 0x0")  # it waits for a child

    def end(self, pid: int) -> None:
        for path in sorted((self.root / f"proc/{pid}").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def states(proc: Proc, pid: int = 10) -> TaskStates:
    sysfs = Sysfs(proc.root)
    return TaskStates(sysfs, Descendants(sysfs, pid), ticks_per_s=100)


def test_all_threads_of_a_process_are_counted_and_its_main_thread_names_it(proc: Proc) -> None:
    proc.task(10, "S")
    proc.task(10, "D", tid=9, name="worker")
    proc.task(10, "R", tid=12, name="worker")
    proc.task(10, "Z", tid=13, name="worker")
    assert states(proc).read(1.0) == {10: ProcessState("a (b) c", 1, 1, None)}


def test_what_a_command_starts_belongs_to_it_also_when_its_parent_has_ended(proc: Proc) -> None:
    proc.task(10, "S", children="11 ")
    proc.task(11, "S", children="12 13 ")
    proc.task(12, "D")
    proc.task(99, "D")
    found = states(proc)
    assert set(found.read(1.0)) == {10, 11, 12}
    proc.end(11)
    proc.task(10, "S")
    assert set(found.read(1.0)) == {10, 12}


def test_a_process_that_has_ended_is_not_read_again(proc: Proc) -> None:
    proc.task(10, "S", children="11")
    proc.task(11, "R")
    found = states(proc)
    found.read(1.0)
    proc.end(11)
    proc.task(10, "S")
    assert set(found.read(1.0)) == {10}
    proc.task(11, "D")  # the number belongs to another process now
    assert set(found.read(1.0)) == {10}


def test_a_zombie_computes_nothing_and_waits_for_nothing(proc: Proc) -> None:
    proc.task(10, "Z")
    assert states(proc).read(1.0) == {}


# --- delay accounting --------------------------------------------------------------------------------------


def test_delays_count_from_the_first_reading_on_and_those_of_new_threads_from_their_beginning(proc: Proc) -> None:
    proc.write("proc/sys/kernel/task_delayacct", "1")
    proc.task(10, "D", delayed=500)
    found = states(proc)
    assert found.read(1.0)[10].delayed_s == 0
    proc.task(10, "D", delayed=530)
    proc.task(10, "D", tid=11, delayed=20)
    assert found.read(1.0)[10].delayed_s == pytest.approx(0.5)
    assert found.read(1.0)[10].delayed_s == 0


@pytest.mark.parametrize("value", ["0", None], ids=["off", "a kernel without it"])
def test_without_delay_accounting_there_are_none(value: str | None, proc: Proc) -> None:
    if value is not None:
        proc.write("proc/sys/kernel/task_delayacct", value)
    proc.task(10, "D", delayed=500)
    found = states(proc)
    assert not found.has_delays
    assert found.read(1.0)[10].delayed_s is None


# --- the scheduler's times ---------------------------------------------------------------------------------


def test_times_of_a_thread_are_those_since_they_were_read_before(proc: Proc) -> None:
    proc.task(10, "R")
    proc.write("proc/10/task/10/schedstat", "5000000000 1000000000 7")
    found = states(proc)
    assert found.read(1.0)[10].times == NO_TIMES
    proc.task(10, "D")
    assert found.read(3.0)[10].times == NO_TIMES
    proc.task(10, "R")
    proc.write("proc/10/task/10/schedstat", "5500000000 1500000000 9")
    assert found.read(5.0, with_times=True)[10].times == Times(ThreadTimes(2, 2, 0), ThreadTimes(1, 3, 0), 0.5)
    proc.write("proc/10/task/10/schedstat", "6500000000 1500000000 9")
    third = found.read(6.0, with_times=True)[10].times
    assert third == Times(ThreadTimes(1, 0, 0), ThreadTimes(1, 0, 0))


def test_a_thread_that_has_just_begun_has_times(proc: Proc) -> None:
    proc.task(10, "R")
    proc.write("proc/10/task/10/schedstat", "0 0 0")
    found = states(proc)
    found.read(1.0)
    proc.task(10, "D")
    found.read(2.0)
    proc.write("proc/10/task/10/schedstat", "500000000 0 1")
    assert found.read(3.0, with_times=True)[10].times.exact == ThreadTimes(0.5, 1.5, 0)


def test_a_second_in_which_a_thread_was_never_met_off_a_processor_is_corrected_by_its_other_ones(proc: Proc) -> None:
    proc.task(10, "D")
    proc.write("proc/10/task/10/schedstat", "1000000000 0 7")
    found = states(proc)
    found.read(1.0)
    found.read(2.0)
    proc.task(10, "R")
    proc.write("proc/10/task/10/schedstat", "1500000000 0 7")
    times = found.read(3.0, with_times=True)[10].times
    proc.write("proc/10/task/10/schedstat", "1700000000 0 7")
    times = times.plus(found.read(4.0, with_times=True)[10].times)
    assert times.sampled == ThreadTimes(1.5, 1.5, 0)
    assert times.exact.ran_s == pytest.approx(0.7)
    assert times.exact.waited_s == pytest.approx(2.3)


@pytest.mark.parametrize("text", ["", "0 0 0", None], ids=["ended meanwhile", "not counted", "a kernel without it"])
def test_without_times_the_samples_stand(text: str | None, proc: Proc) -> None:
    proc.task(10, "D")
    if text is not None:
        proc.write("proc/10/task/10/schedstat", text)
    found = states(proc)
    found.read(1.0)
    assert found.read(2.0, with_times=True)[10].times == NO_TIMES


def test_time_in_the_queue_for_a_processor_is_told_apart(proc: Proc) -> None:
    proc.task(10, "R")
    proc.write("proc/10/task/10/schedstat", "1000000000 0 7")
    found = states(proc)
    found.read(1.0)
    proc.write("proc/10/task/10/schedstat", "1100000000 900000000 9")
    assert found.read(2.0, with_times=True)[10].times.queued_s == pytest.approx(0.9)
    proc.write("proc/10/task/10/schedstat", "1100000000 1900000000 9")
    assert found.read(3.0, with_times=True)[10].times.queued_s == pytest.approx(1.0)


# --- requests of libaio and io_uring -----------------------------------------------------------------------


def sleeping(proc: Proc, syscall: str | None, *written: int | None, machine: str = "x86_64") -> ProcessState:
    """A task that sleeps in this system call, read each tenth of a second, while its process has written so much."""
    sysfs = Sysfs(proc.root)
    found = TaskStates(sysfs, Descendants(sysfs, 10), 100, AsyncWaits(sysfs, machine))
    proc.task(10, "S")
    (proc.root / "proc/10/task/10/syscall").unlink()
    if syscall is not None:
        proc.write("proc/10/task/10/syscall", f"{syscall} 0x1 0x2")
    for number, count in enumerate(written):
        if count is not None:
            proc.write("proc/10/io", f"rchar: 1\nread_bytes: 4096\nwrite_bytes: {count}\ncancelled_write_bytes: 0")
        state = found.read(1.0 + number / 10)[10]
    return state


@pytest.mark.parametrize(
    ("syscall", "machine"),
    [("208", "x86_64"), ("333", "x86_64"), ("426", "x86_64"), ("4", "aarch64"), ("426", "aarch64")],
    ids=["io_getevents", "io_pgetevents", "io_uring_enter", "io_getevents, arm", "io_uring_enter, arm"],
)
def test_a_task_that_sleeps_for_its_requests_is_pending_while_its_process_makes_any(
    syscall: str, machine: str, proc: Proc
) -> None:
    assert sleeping(proc, syscall, 0, 4096, machine=machine).pending == 1
    assert sleeping(proc, syscall, 8192, 8192, machine=machine) == ProcessState("a (b) c", 0, 0, None)
    assert sleeping(proc, syscall, 0, 4096, *[4096] * 12, machine=machine).pending == 0


def test_a_pending_task_waits_by_the_schedulers_times_too(proc: Proc) -> None:
    sysfs = Sysfs(proc.root)
    found = TaskStates(sysfs, Descendants(sysfs, 10), 100, AsyncWaits(sysfs, "x86_64"))
    proc.task(10, "S")
    proc.write("proc/10/task/10/syscall", "208 0x1")
    for number in range(3):
        proc.write("proc/10/io", f"read_bytes: 0\nwrite_bytes: {number}")
        proc.write("proc/10/task/10/schedstat", f"{1 + number * 100_000_000} 0 7")
        times = found.read(1.0 + number, with_times=True)[10].times
    assert times.exact == pytest.approx(ThreadTimes(0.2, 1.8, 0).less(ThreadTimes(0.1, 0.9, 0)), abs=1e-3)


def test_requests_that_a_process_made_before_its_first_sleep_count(proc: Proc) -> None:
    sysfs = Sysfs(proc.root)
    found = TaskStates(sysfs, Descendants(sysfs, 10), 100, AsyncWaits(sysfs, "x86_64"))
    proc.task(10, "R")
    proc.write("proc/10/io", "read_bytes: 0\nwrite_bytes: 0")
    found.read(1.0)
    proc.task(10, "S")
    proc.write("proc/10/task/10/syscall", "208 0x1")
    proc.write("proc/10/io", "read_bytes: 0\nwrite_bytes: 4096")
    assert found.read(5.0)[10].pending == 1


@pytest.mark.parametrize(
    ("syscall", "written", "machine"),
    [
        (None, (0, 4096), "x86_64"),
        ("208", (None, None), "x86_64"),
        (None, (None, None), "x86_64"),
        ("208", (0, 4096), "riscv64"),
    ],
    ids=["system call not readable", "counters not readable", "neither", "an unknown architecture"],
)
def test_what_cannot_be_told_is_unclear(
    syscall: str | None, written: tuple[int | None, ...], machine: str, proc: Proc
) -> None:
    assert sleeping(proc, syscall, *written, machine=machine).unclear == 1


@pytest.mark.parametrize("syscall", ["61", "running", "-1", "232"], ids=["wait4", "runs", "no call", "epoll, no ring"])
def test_a_task_that_sleeps_for_something_else_is_asleep(syscall: str, proc: Proc) -> None:
    proc.write("proc/10/maps", "7f00-7f01 r--p 00000000 fe:00 1 /usr/lib/libc.so.6")
    (proc.root / "proc/10/fd").mkdir()
    (proc.root / "proc/10/fd/3").symlink_to("socket:[1]")
    assert sleeping(proc, syscall, 0, 4096) == ProcessState("a (b) c", 0, 0, None)


@pytest.mark.parametrize(
    ("ring", "maps"),
    [("anon_inode:[io_uring]", "x"), ("socket:[1]", "7f00-7f01 rw-s 00000000 00:0e 1 /[aio] (deleted)")],
)
def test_a_task_in_epoll_is_unclear_if_its_process_has_a_ring(ring: str, maps: str, proc: Proc) -> None:
    proc.write("proc/10/maps", maps)
    (proc.root / "proc/10/fd").mkdir()
    (proc.root / "proc/10/fd/3").symlink_to(ring)
    assert sleeping(proc, "232", 0, 4096).unclear == 1
    assert sleeping(proc, "232", 4096, 4096).unclear == 0


# --- cgroups -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mounted", ["sys/fs/cgroup", "sys/fs/cgroup/unified"])
def test_a_cgroup_has_the_processes_of_those_below_it(mounted: str, proc: Proc) -> None:
    proc.write(f"{mounted}/system.slice/db.service/cgroup.procs", "10\n11")
    proc.write(f"{mounted}/system.slice/db.service/cgroup.stat", "")
    proc.write(f"{mounted}/system.slice/db.service/one.scope/cgroup.procs", "12")
    proc.write(f"{mounted}/system.slice/other.service/cgroup.procs", "99")
    for pid in (10, 12, 99):
        proc.task(pid, "D")
    sysfs = Sysfs(proc.root)
    found = TaskStates(sysfs, CgroupMembers(sysfs, "/system.slice/db.service"), ticks_per_s=100)
    assert set(found.read(1.0)) == {10, 12}


def test_a_cgroup_that_vanishes_is_an_error_with_a_sentence(proc: Proc) -> None:
    proc.write("sys/fs/cgroup/a.slice/cgroup.procs", "10")
    proc.task(10, "R")
    sysfs = Sysfs(proc.root)
    found = TaskStates(sysfs, CgroupMembers(sysfs, "a.slice"))
    found.read(1.0)
    (proc.root / "sys/fs/cgroup/a.slice/cgroup.procs").unlink()
    with pytest.raises(HostError) as refused:
        found.read(1.0)
    assert refused.value.code == "cgroup.gone"


@pytest.mark.parametrize("name", ["nope.slice", "", "/", "a.slice/../../..", ".."])
def test_what_is_not_a_cgroup_is_refused(name: str, proc: Proc) -> None:
    proc.write("sys/fs/cgroup/a.slice/cgroup.procs", "10")
    proc.write("sys/fs/cgroup/cgroup.procs", "1")
    with pytest.raises(HostError) as refused:
        CgroupMembers(Sysfs(proc.root), name)
    assert refused.value.code == "cgroup.missing"
