"""The settings of every phase, and the order in which they are written."""

from __future__ import annotations

from elastio.core.model import Depth
from elastio.host.depth import CACHE_REQUEST_KB
from elastio.host.tuning import tune, tune_queue
from tests.fixtures.sysfs_tree import SET_UUID, Tree


def test_the_scheduler_comes_first_because_it_resets_the_queue(tree: Tree) -> None:
    tune_queue(tree.kernel, "vdb", 8, 256)
    queue = "sys/block/vdb/queue"
    assert tree.kernel.writes == [
        (f"{queue}/scheduler", "mq-deadline"),
        (f"{queue}/nr_requests", "8"),
        (f"{queue}/max_sectors_kb", "256"),
    ]
    assert tree.kernel.read(f"{queue}/nr_requests") == "8"


def test_a_request_is_no_larger_than_the_hardware_takes(tree: Tree) -> None:
    tree.kernel.lay("sys/block/vdb/queue/max_hw_sectors_kb", 128)
    tune_queue(tree.kernel, "vdb", 8, CACHE_REQUEST_KB)
    assert tree.kernel.read("sys/block/vdb/queue/max_sectors_kb") == "128"


def depths(tree: Tree) -> tuple[str, str]:
    return tuple(tree.kernel.read(f"sys/block/{disk}/queue/nr_requests") for disk in ("vdb", "vdc"))  # type: ignore[return-value]


def test_the_depth_that_a_load_needs_is_put_in_force_on_both_disks(tree: Tree) -> None:
    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID, Depth(64, 128))
    assert depths(tree) == ("64", "128")
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    assert depths(tree) == ("64", "128"), "as it is"
    tree.kernel.lay("sys/block/vdb/queue/scheduler", "mq-deadline [none]")
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    assert depths(tree) == ("8", "128"), "a change of the scheduler allows more than any load needs"


def test_requests_are_as_large_as_the_depth_says(tree: Tree) -> None:
    def sizes() -> list[str]:
        return [tree.kernel.read(f"sys/block/{disk}/queue/max_sectors_kb") for disk in ("vdb", "vdc")]

    tree.attached()
    tune(tree.kernel, tree.directory, "vdb", SET_UUID, Depth(8, 8, 32, 64))
    assert sizes() == ["32", "64"]
    tune(tree.kernel, tree.directory, "vdb", SET_UUID, Depth(8, 8))
    assert sizes() == ["128", "512"]


def test_without_a_cache_the_device_is_made_ready_for_one(tree: Tree) -> None:
    """One superblock write less when the cache comes, and no sleeping flush thread."""
    tune(tree.kernel, tree.directory, "vdb", None)
    shown = {
        k: tree.kernel.shown(f"{tree.directory}/{k}") for k in ("cache_mode", "writeback_delay", "writeback_percent")
    }
    assert shown == {"cache_mode": "writeback", "writeback_delay": "0", "writeback_percent": "0"}
    assert tree.kernel.shown(f"{tree.directory}/sequential_cutoff") == "0"
    assert tree.kernel.shown(f"{tree.directory}/io_error_limit") == "2147483647"


def test_with_a_cache_the_phase_is_left_as_it_is(tree: Tree) -> None:
    tree.attached("dirty", mode="none")
    tune(tree.kernel, tree.directory, "vdb", SET_UUID)
    written = {name.rsplit("/", 1)[1] for name, _ in tree.kernel.writes}
    assert written & {"cache_mode", "writeback_delay", "writeback_percent", "writeback_running"} == set()
    assert "congested_write_threshold_us" in written
