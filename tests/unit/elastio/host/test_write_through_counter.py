"""What the cache could not absorb, from the kernel's own histogram."""

from __future__ import annotations

import pytest

from elastio.host.write_through_counter import EVENT, TRIGGER, parse, read, start
from tests.fixtures.sysfs_tree import HISTOGRAM, Tree

ACTIVE = "hist:keys=writeback,bypass:vals=hitcount,nr_sector:sort=hitcount:size=2048 [active]"


def test_counts_writes_that_were_neither_written_back_nor_bypassed() -> None:
    assert parse(HISTOGRAM) == 30720 * 512


def test_an_empty_histogram_is_zero(tree: Tree) -> None:
    tree.counting(f"# event histogram\n#\n# trigger info: {ACTIVE}\n#\n\nTotals:\n    Hits: 0\n")
    assert read(tree.kernel) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# trigger info: hist:keys=dev:vals=hitcount,nr_sector:sort=hitcount:size=2048 [active]\n",
        "# trigger info: hist:keys=writeback,bypass:vals=hitcount:sort=hitcount:size=2048 [active]\n",
    ],
)
def test_nobody_counts_is_not_zero(tree: Tree, text: str) -> None:
    tree.counting(text)
    assert read(tree.kernel) is None


def test_a_kernel_without_the_tracepoint_cannot_tell(tree: Tree) -> None:
    assert not start(tree.kernel)
    assert read(tree.kernel) is None
    assert tree.kernel.writes == []


def test_counting_starts(tree: Tree) -> None:
    tree.counting()
    assert start(tree.kernel)
    assert tree.kernel.writes == [(f"{EVENT}/trigger", TRIGGER)]


def test_counting_that_runs_goes_on(tree: Tree) -> None:
    tree.counting()
    tree.kernel.lay(f"{EVENT}/trigger", ACTIVE)
    assert start(tree.kernel)
    assert tree.kernel.writes == []


def test_a_refused_trigger_stops_nothing_else(tree: Tree) -> None:
    tree.counting()
    tree.kernel.refuses.add("trigger")
    assert not start(tree.kernel)
