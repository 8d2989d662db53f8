"""How many requests may be in flight: by the rate at which a disk completes them."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.model import Depth
from elastio.core.shares import LatencyTarget, SharePlan
from elastio.errors import HostError
from elastio.host.depth import (
    FEWER_S,
    KEPT_S,
    LEAST_KB,
    MOST_PER_QUEUE,
    PROMPT_FEWER_S,
    WAIT_S,
    Depths,
    Prompt,
    changed,
    per_queue,
)
from elastio.host.share_limits import DIRECTORY, record
from elastio.host.tuning import tune
from elastio.host.view import scan
from elastio.units import MIB, SECTOR
from tests.fixtures.sysfs_tree import BACKING_UUID, SET_UUID, Tree

DISK = "vdb"
CAP_MB_S, LARGE_KIB = 125.0, 128


class Watched:
    """A disk under a load, scanned once a second; what is needed is put in force at once."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.depths, self.now, self.completed = tree, Depths(CAP_MB_S), 100.0, 0
        tree.kernel.lay(f"sys/block/{DISK}/queue/max_sectors_kb", LARGE_KIB)

    def after(self, seconds: int, requests_s: int) -> int:
        """What is in force after so many seconds at this rate."""
        for _ in range(seconds):
            self.now, self.completed = self.now + 1, self.completed + requests_s
            self.tree.kernel.completed(DISK, self.completed)
            self.scan()
        return self.scan()

    def scan(self) -> int:
        needed = self.depths.needed(self.tree.kernel, DISK, None, self.now).backing
        self.tree.kernel.lay(f"sys/block/{DISK}/queue/nr_requests", needed)
        return needed


@pytest.fixture
def watched(tree: Tree) -> Watched:
    return Watched(tree)


def test_nothing_is_known_of_a_disk_at_first(watched: Watched) -> None:
    assert watched.scan() == 8, "and not what the kernel has by default"


def test_large_requests_need_the_least(watched: Watched) -> None:
    assert watched.after(10, 126) == 8, "128 KiB at 16.5 MB/s"


def test_small_requests_get_as_many_as_complete_in_the_time(watched: Watched) -> None:
    assert watched.after(2, 4000) == 80


def test_a_change_that_is_small_is_not_made(watched: Watched) -> None:
    watched.after(2, 4000)
    assert watched.after(1, 7900) == 80
    assert watched.after(1, 8000) == 160
    assert watched.after(10, 4100) == 160


def test_a_pause_of_the_load_changes_nothing_and_its_end_does(watched: Watched) -> None:
    watched.after(2, 4000)
    assert watched.after(int(FEWER_S) - 1, 0) == 80
    assert watched.after(1, 4000) == 80
    assert watched.after(int(FEWER_S) + 1, 100) == 8


def test_hardware_queues_have_their_part_each(watched: Watched) -> None:
    for queue in range(4):
        watched.tree.kernel.path(f"sys/block/{DISK}/mq/{queue}").mkdir(exist_ok=True)
    assert watched.scan() == 4, "the kernel accepts no fewer"
    assert watched.after(2, 4000) == 20


def test_no_more_are_allowed_than_complete_in_half_a_second_if_all_are_large(tree: Tree) -> None:
    slow = Watched(tree)
    slow.depths = Depths(16.5)
    assert slow.after(2, 100_000) == 62
    slow.depths = Depths(1.0)
    assert slow.after(int(FEWER_S) + 2, 100_000) == 8, "the least, on a volume that takes longer for it"


def test_no_more_are_allowed_than_a_small_part_of_the_cache(watched: Watched) -> None:
    kernel = watched.tree.kernel
    watched.tree.cache_disk()
    kernel.lay("sys/block/vdc/size", 160 * MIB // SECTOR)
    kernel.lay("sys/block/vdc/queue/max_sectors_kb", 512)
    watched.depths.needed(kernel, DISK, "vdc", watched.now)
    kernel.lay("sys/block/vdc/queue/nr_requests", 8)
    kernel.completed("vdc", 100_000)
    assert watched.depths.needed(kernel, DISK, "vdc", watched.now + 1) == Depth(8, 20)


def test_a_load_in_a_shorter_span_than_a_rate_needs_is_not_judged(watched: Watched) -> None:
    watched.scan()
    watched.now += 0.25
    watched.tree.kernel.completed(DISK, 4000)
    assert watched.scan() == 8


def test_counters_that_begin_again_are_not_a_load(watched: Watched) -> None:
    watched.after(2, 4000)
    watched.completed = 0
    watched.tree.kernel.completed(DISK, 0)
    watched.now += 1
    assert watched.scan() == 8


def test_a_disk_that_comes_and_goes_is_new_each_time(watched: Watched) -> None:
    kernel, now = watched.tree.kernel, watched.now
    watched.tree.cache_disk()
    assert watched.depths.needed(kernel, DISK, "vdc", now) == Depth(8, 8)
    kernel.lay("sys/block/vdc/queue/nr_requests", 8)
    watched.tree.kernel.completed("vdc", 10_000)
    assert watched.depths.needed(kernel, DISK, "vdc", now + 1) == Depth(8, 200)
    assert watched.depths.needed(kernel, DISK, None, now + 2) == Depth(8, None)
    watched.tree.kernel.completed("vdc", 20_000)
    assert watched.depths.needed(kernel, DISK, "vdc", now + 3) == Depth(8, 8)


def test_only_a_change_is_named(watched: Watched) -> None:
    kernel = watched.tree.kernel
    assert watched.depths.change(kernel, DISK, None, watched.now) == Depth(8, None)
    kernel.lay(f"sys/block/{DISK}/queue/nr_requests", 8)
    assert watched.depths.change(kernel, DISK, None, watched.now) is None


class Prompted(Watched):
    """While a cgroup has a latency target of so many ms; None: none has."""

    def __init__(self, tree: Tree, target_ms: float | None, mb_s: float = CAP_MB_S) -> None:
        super().__init__(tree)
        self.depths, self.mb_s, self.target_ms = Depths(mb_s), mb_s, target_ms

    def scan(self) -> int:
        prompt = None if self.target_ms is None else Prompt(self.target_ms / 1000, self.mb_s)
        found = self.depths.needed(self.tree.kernel, DISK, None, self.now, prompt)
        self.tree.kernel.lay(f"sys/block/{DISK}/queue/nr_requests", found.backing)
        self.tree.kernel.lay(f"sys/block/{DISK}/queue/max_sectors_kb", found.backing_kb or LARGE_KIB)
        return found.backing

    @property
    def request_kb(self) -> int:
        return int(self.tree.kernel.read(f"sys/block/{DISK}/queue/max_sectors_kb"))


@pytest.mark.parametrize(
    ("mb_s", "target_ms", "request_kb"),
    [(16.5, 20.0, 32), (16.5, 100.0, 64), (16.5, 0.01, 32), (125.0, 20.0, 128), (125.0, 10.0, 64), (1000.0, 1.0, 128)],
)
def test_requests_are_so_large_that_the_least_number_takes_half_of_a_latency_target(
    tree: Tree, mb_s: float, target_ms: float, request_kb: int
) -> None:
    prompted = Prompted(tree, target_ms, mb_s)
    prompted.scan()
    assert prompted.request_kb == request_kb
    prompted.scan()
    assert prompted.request_kb == request_kb, "and stay so"


def test_they_are_large_again_some_time_after_nobody_has_a_target_any_more(tree: Tree) -> None:
    prompted = Prompted(tree, 20.0, 16.5)
    prompted.scan()
    prompted.target_ms = None
    prompted.after(int(KEPT_S) - 1, 0)
    assert prompted.request_kb == LEAST_KB, "shares begin again with each change of the device"
    prompted.after(2, 0)
    assert prompted.request_kb == LARGE_KIB


def test_a_capacity_that_changes_little_changes_no_request(tree: Tree) -> None:
    prompted, sizes = Prompted(tree, 40.0, 16.5), set()
    prompted.scan()
    for mb_s in (16.5, 13.0, 16.5, 20.0, 30.0, 16.5):
        prompted.depths._backing_mb_s = mb_s
        prompted.after(1, 0)
        sizes.add(prompted.request_kb)
    assert sizes == {32}


def test_a_disk_that_takes_no_large_requests_keeps_its_own_bound(tree: Tree) -> None:
    kernel, watched = tree.kernel, Watched(tree)
    for most_kb in (64, 124):
        kernel.lay(f"sys/block/{DISK}/queue/max_hw_sectors_kb", most_kb)
        kernel.lay(f"sys/block/{DISK}/queue/max_sectors_kb", most_kb)
        for prompt in (None, Prompt(1.0, CAP_MB_S)):
            assert watched.depths.needed(kernel, DISK, None, watched.now, prompt) == Depth(8)


def test_requests_are_smaller_while_shares_with_a_latency_target_are_in_force(tree: Tree) -> None:
    def found() -> Depth | None:
        view = scan(tree.kernel, BACKING_UUID, (), now=1.0, boot_id="b").backing
        return view.depth if view else None

    tree.kernel.path(DIRECTORY).mkdir(parents=True, exist_ok=True)
    tree.kernel.lay(f"proc/{os.getpid()}/stat", "1 (a) S" + " 0" * 18 + " 4711 0")
    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    record(tree.kernel, SharePlan(16.0), "252:0", ())
    assert found() is None
    record(tree.kernel, SharePlan(30.0, latency=(LatencyTarget("db", 20.0),)), "252:0", ())
    # Of 10 MB/s, as of a backing volume of which nothing is known, and of what is shared.
    assert found() == Depth(8, 8, 32, 32)
    record(tree.kernel, SharePlan(60.0, latency=(LatencyTarget("db", 20.0),)), "252:0", ())
    assert found() == Depth(8, 8, 32, 64)


def test_with_a_target_what_small_requests_needed_does_not_stay_long(tree: Tree) -> None:
    prompted = Prompted(tree, 20.0, 16.5)
    assert prompted.after(2, 4000) == 40, "what completes in half of the target"
    assert prompted.after(int(PROMPT_FEWER_S) + 1, 500) == 8


def test_a_disk_that_is_gone_is_an_error(watched: Watched) -> None:
    with pytest.raises(HostError):
        watched.depths.needed(watched.tree.kernel, "vdz", None, watched.now)


@given(st.floats(0, 1e7), st.integers(1, 64))
def test_all_queues_together_hold_what_completes_in_the_time(requests_s: float, queues: int) -> None:
    each = per_queue(requests_s, queues, 10**9)
    assert 4 <= each <= MOST_PER_QUEUE
    assert each == MOST_PER_QUEUE or each * queues >= requests_s * WAIT_S
    assert each == 4 or (each - 1) * queues < max(8, requests_s * WAIT_S)


@given(st.integers(4, 256), st.lists(st.integers(4, 256), min_size=1))
def test_what_is_in_force_is_never_less_than_half_of_the_need_nor_changed_twice(now: int, needed: list[int]) -> None:
    wanted = changed(now, needed)
    assert 2 * wanted > needed[-1]
    assert wanted in (now, *needed)
    assert changed(wanted, needed) == wanted or wanted == needed[-1] < max(needed)
