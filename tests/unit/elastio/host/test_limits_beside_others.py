"""Limits of the agent beside those of others, of another kind, on another device, and where it may set none."""

from __future__ import annotations

from contextlib import suppress

import pytest

from elastio.errors import HostError
from elastio.host import throttle
from elastio.host.bcache import BcacheHost
from elastio.host.cgroups import CGROUPS
from elastio.host.sharer import Sharer
from tests.fixtures.shared_device import DB, ETL, NUMBER, SharedDevice
from tests.fixtures.sysfs_tree import Tree

from .test_sharer import ADMINISTRATOR, HOLDING, attached, io_max, limits, share, turns

USER = f"{CGROUPS}/user.slice/io.max"


@pytest.mark.parametrize("hold", HOLDING, ids=HOLDING)
def test_nothing_of_a_share_stays_below_a_limit_that_holds_requests_back(
    tree: Tree, device: SharedDevice, host: BcacheHost, hold: str
) -> None:
    """A cgroup directly below the root has both kinds, one after the other."""
    tree.kernel.lay(USER, "")
    device.loads = {"user.slice": (60.0, 0.0), ETL: (0.0, 28.0)}
    attached(tree, device, host)
    assert "user.slice" in limits(tree)
    if hold == "detach":
        tree.attached(mode="none")
    if hold == "help with a detach":
        tree.detaching()
    with suppress(HostError):  # nothing in the tree ends the detach that is helped
        HOLDING[hold](host)
    throttle.release(tree.kernel)
    assert io_max(tree, "user.slice") == ""


def test_a_share_goes_where_somebody_has_set_another_kind_of_limit_since(
    tree: Tree, device: SharedDevice, sharer: Sharer
) -> None:
    share(device, sharer)
    tree.kernel.write(f"{CGROUPS}/{DB}/io.max", f"{NUMBER} wbps=10000000")
    turns(device, sharer, 2)
    assert io_max(tree, DB) == ADMINISTRATOR
    sharer.end()
    assert io_max(tree, DB) == ADMINISTRATOR


def test_a_cgroup_that_refuses_its_limit_shares_without_one_and_the_others_are_limited(
    tree: Tree, device: SharedDevice, sharer: Sharer, caplog: pytest.LogCaptureFixture
) -> None:
    """The files of a cgroup that is delegated are its owner's."""
    tree.kernel.denied.add(f"{CGROUPS}/{ETL}/io.max")
    share(device, sharer)
    assert sharer.is_sharing
    assert DB in limits(tree)
    assert ETL not in limits(tree)
    assert sum(ETL in record.getMessage() for record in caplog.records) == 1


def test_another_device_with_the_same_number_is_not_shared(tree: Tree, device: SharedDevice, sharer: Sharer) -> None:
    tree.kernel.lay(f"sys/dev/block/{NUMBER}/diskseq", "7")
    share(device, sharer)
    tree.kernel.lay(f"sys/dev/block/{NUMBER}/diskseq", "8")
    turns(device, sharer)
    assert not sharer.is_sharing
    assert limits(tree) == {}


@pytest.mark.parametrize(
    ("shown", "left"),
    [
        ("rbps=2 wbps=10485760 riops=max wiops=max", "rbps=max wbps=10485760 riops=max wiops=max"),
        ("rbps=9000000 wbps=1111 riops=max wiops=max", "rbps=9000000 wbps=max riops=max wiops=max"),
        ("rbps=max wbps=2 riops=500 wiops=max", "rbps=max wbps=max riops=500 wiops=max"),
        ("rbps=9000000 wbps=max riops=11 wiops=11", "rbps=9000000 wbps=max riops=max wiops=max"),
    ],
)
def test_what_somebody_set_beside_our_limit_stays_and_ours_goes(
    tree: Tree, device: SharedDevice, shown: str, left: str
) -> None:
    tree.kernel.lay(USER, f"{NUMBER} {shown}")
    assert throttle.release(tree.kernel) == ("user.slice",)
    assert tree.kernel.read(USER) == f"{NUMBER} {left}"


@pytest.mark.parametrize("shown", ["rbps=2000 wbps=max riops=max wiops=max", "rbps=max wbps=max riops=11 wiops=100"])
def test_a_limit_of_somebody_else_that_looks_a_little_like_ours_stays(
    tree: Tree, device: SharedDevice, shown: str
) -> None:
    tree.kernel.lay(USER, f"{NUMBER} {shown}")
    assert throttle.release(tree.kernel) == ()
