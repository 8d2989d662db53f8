"""Whose load counts: what the counters of a few cgroups add up to is what those with the right have moved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastio.core.shares import ALL_MAY, BoostRights, path

DB, CRON, TAR = "system.slice/db.service", "system.slice/cron.service", "backup.slice/tar.service"
GROUPS = ("backup.slice", TAR, "system.slice", CRON, DB, f"{DB}/worker", "user.slice")
NAMES = st.sampled_from(("*", "a", "b", "a/b", "c", "*/c", "[ab]", "?"))


@pytest.mark.parametrize(
    ("may", "no", "group", "is_included"),
    [
        (("*",), (), DB, True),
        (("*",), ("backup.slice",), TAR, False),
        (("*",), ("tar.service",), TAR, False),
        (("*",), ("backup.slice",), "backup.slice", False),
        (("*",), ("backup",), TAR, True),
        (("*",), ("*.service",), f"{DB}/worker", False),
        (("db.service",), (), f"{DB}/worker", True),
        (("db.service",), (), CRON, False),
        (("system.slice",), ("cron.service",), CRON, False),
        (("system.slice",), ("cron.service",), DB, True),
        (("cron.service",), ("system.slice",), CRON, False),
    ],
)
def test_a_cgroup_counts_with_all_that_is_below_it(
    may: tuple[str, ...], no: tuple[str, ...], group: str, is_included: bool
) -> None:
    assert BoostRights(may, no).includes(group) is is_included


def test_what_is_read_is_as_little_as_possible() -> None:
    counted = BoostRights(no=("*.service",)).counted(GROUPS)
    assert (counted.everybody, counted.added, counted.subtracted) == (True, (), (TAR, CRON, DB))
    counted = BoostRights(("system.slice", "user.slice"), ("db.service", TAR)).counted(GROUPS)
    assert (counted.everybody, counted.added, counted.subtracted) == (False, ("system.slice", "user.slice"), (DB,))
    assert ALL_MAY.is_everybody
    assert not BoostRights(("*",), ("a",)).is_everybody


@given(
    leaves=st.dictionaries(st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join), st.integers(0, 9)),
    may=st.lists(NAMES, max_size=3),
    no=st.lists(NAMES, max_size=2),
)
def test_the_counters_add_up_to_the_bytes_of_those_with_the_right(
    leaves: dict[str, int], may: list[str], no: list[str]
) -> None:
    """A counter of the kernel has the bytes of the cgroup and of all below it."""
    rights = BoostRights(tuple(may), tuple(no))
    groups = sorted({node for leaf in leaves for node in path(leaf)})
    below = {g: sum(n for leaf, n in leaves.items() if g in path(leaf)) for g in groups}
    counted = rights.counted(groups)
    added = sum(leaves.values()) if counted.everybody else sum(below[g] for g in counted.added)
    total = added - sum(below[g] for g in counted.subtracted)
    assert total == sum(n for leaf, n in leaves.items() if rights.includes(leaf))
