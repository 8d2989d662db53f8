"""What was written through, from the kernel's histogram."""

from __future__ import annotations

import pytest

from elastio.host.tuning import EVENT, TRIGGER, count_written_through, written_through_bytes
from tests.fixtures.sysfs_tree import Tree

ACTIVE = "hist:keys=writeback,bypass:vals=hitcount,nr_sector:sort=hitcount:size=2048 [active]"


def test_an_empty_histogram_is_zero(tree: Tree) -> None:
    tree.counting(f"# event histogram\n#\n# trigger info: {ACTIVE}\n#\n\nTotals:\n    Hits: 0\n")
    assert written_through_bytes(tree.kernel) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# trigger info: hist:keys=dev:vals=hitcount,nr_sector:sort=hitcount:size=2048 [active]\n",
        "# trigger info: hist:keys=writeback,bypass:vals=hitcount:sort=hitcount:size=2048 [active]\n",
    ],
)
def test_without_the_right_trigger_nothing_is_known(tree: Tree, text: str) -> None:
    tree.counting(text)
    assert written_through_bytes(tree.kernel) is None


def test_a_kernel_without_the_tracepoint_counts_nothing(tree: Tree) -> None:
    count_written_through(tree.kernel)
    assert written_through_bytes(tree.kernel) is None
    assert tree.kernel.writes == []


@pytest.mark.parametrize(
    ("shown", "refuses", "written"),
    [
        ("# Available triggers:", set(), [(f"{EVENT}/trigger", TRIGGER)]),
        (ACTIVE, set(), []),
        ("# Available triggers:", {"trigger"}, []),
    ],
    ids=["starts", "one that runs is left alone", "a refusal is no error"],
)
def test_counting_starts(tree: Tree, shown: str, refuses: set[str], written: list[tuple[str, str]]) -> None:
    tree.counting()
    tree.kernel.lay(f"{EVENT}/trigger", shown)
    tree.kernel.refuses |= refuses
    count_written_through(tree.kernel)
    assert tree.kernel.writes == written
