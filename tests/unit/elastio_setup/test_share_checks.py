"""What an operator is told of weights, limits and latencies that do not do what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.config.schema import parse
from elastio.host import throttle
from elastio.host.cgroups import CGROUPS
from elastio_setup.check_result import CheckResult, Machine, Verdict
from elastio_setup.share_checks import check_shares
from tests.fixtures.least_configuration import least
from tests.fixtures.shared_device import DB, ETL, SharedDevice
from tests.fixtures.sysfs_tree import BACKING_UUID, Tree, build

FOREIGN = "251:0 rbps=max wbps=1000000 riops=max wiops=max"
ROOT_MOUNT = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Two services use the device, each with the default weight."""
    made = build(tmp_path)
    SharedDevice(made)
    made.kernel.lay(f"{CGROUPS}/{DB}/io.weight", "default 100")
    return made


def found(tree: Tree, **share: object) -> list[CheckResult]:
    config = parse({**least("aws", uuid=BACKING_UUID, bandwidth_mb_s=60), "share": share})
    results = check_shares(Machine(tree.kernel), config)
    assert all(result.verdict is Verdict.WARN and result.remedy for result in results)
    return results


def codes(tree: Tree) -> list[str]:
    return [result.code for result in found(tree)]


def stack(tree: Tree) -> None:
    """A logical volume on the adaptive device."""
    tree.kernel.lay("sys/block/dm-0/dev", "253:0")
    tree.kernel.tie("sys/block/bcache0/holders/dm-0", "sys/block/dm-0")


def mount(tree: Tree, kind: str, number: str = "251:0") -> None:
    line = f"36 22 {number} / /data rw shared:2 - {kind} /dev/bcache0 rw"
    tree.kernel.lay("proc/self/mountinfo", f"{ROOT_MOUNT}\n{line}")


def test_nothing_is_said_where_all_is_well(tree: Tree) -> None:
    assert codes(tree) == []


def test_a_device_that_does_not_run_is_the_matter_of_another_check(tree: Tree) -> None:
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.weight", "default 800")
    tree.cache_missing()
    assert codes(tree) == []


# --- weights ---------------------------------------------------------------------------------------------------


def test_a_weight_without_effect_is_named(tree: Tree) -> None:
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.weight", "default 800")
    (result,) = found(tree)
    assert (result.code, DB in result.sentence, ETL in result.sentence) == ("weight", True, False)


def test_of_many_weights_some_are_named(tree: Tree) -> None:
    for number in range(5):
        tree.kernel.lay(f"{CGROUPS}/pod{number}/io.stat", "")
        tree.kernel.lay(f"{CGROUPS}/pod{number}/io.weight", "default 39")
    (result,) = found(tree)
    assert "pod0, pod1, pod2 and 2 more" in result.sentence


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (f"{CGROUPS}/io.cost.qos", "254:16 enable=1 ctrl=user rpct=95.00", []),
        (f"{CGROUPS}/io.cost.qos", "254:16 enable=0 ctrl=auto", ["weight"]),
        (f"{CGROUPS}/io.cost.qos", "254:0 enable=1 ctrl=user", ["weight"]),
        ("sys/block/vdb/queue/scheduler", "none mq-deadline [bfq]", []),
    ],
)
def test_a_weight_has_an_effect_where_somebody_enabled_iocost_or_bfq(
    tree: Tree, file: str, text: str, expected: list[str]
) -> None:
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.weight", "default 800")
    tree.kernel.lay(file, text)
    assert codes(tree) == expected


# --- limits of others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [DB, "user.slice"])
def test_a_limit_of_somebody_else_is_named(tree: Tree, group: str) -> None:
    tree.kernel.lay(f"{CGROUPS}/{group}/io.max", FOREIGN)
    (result,) = found(tree)
    assert (result.code, group in result.sentence) == ("limit", True)


def test_one_on_a_slice_at_the_top_is_in_the_way_of_an_attach(tree: Tree) -> None:
    remedies = {}
    for group in (DB, "user.slice"):
        tree.kernel.lay(f"{CGROUPS}/{group}/io.max", FOREIGN)
        remedies[group] = found(tree)[0].remedy
    assert remedies[DB] != remedies["user.slice"]


@pytest.mark.parametrize(
    "line",
    [
        FOREIGN.replace("251:0", "8:0"),
        f"251:0 {throttle.STOP} riops=max wiops=max",
        "251:0 rbps=max wbps=7000111 riops=max wiops=max",
    ],
)
def test_a_limit_on_another_device_or_of_the_agent_is_not(tree: Tree, line: str) -> None:
    tree.kernel.lay(f"{CGROUPS}/user.slice/io.max", line)
    assert codes(tree) == []


def test_a_limit_on_a_device_above_is_one(tree: Tree) -> None:
    stack(tree)
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.max", FOREIGN.replace("251:0", "253:0"))
    assert codes(tree) == ["limit"]


# --- latency targets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("node", [DB, "system.slice"])
@pytest.mark.parametrize("number", ["251:0", "254:16"])
def test_a_latency_target_on_a_shared_ext4_is_named(tree: Tree, node: str, number: str) -> None:
    mount(tree, "ext4")
    tree.kernel.lay(f"{CGROUPS}/{node}/io.latency", f"{number} target=10000")
    (result,) = found(tree)
    assert (result.code, DB in result.sentence) == ("latency", True)


def test_a_latency_target_of_the_agent_is_one_while_it_shares(tree: Tree) -> None:
    mount(tree, "ext4")
    target = {"latency_ms": {"db.service": 20}}
    assert found(tree, **target) == []
    (result,) = found(tree, enabled=True, **target)
    assert (result.code, DB in result.sentence) == ("latency", True)


def test_an_ext4_on_a_logical_volume_above_is_one(tree: Tree) -> None:
    stack(tree)
    mount(tree, "ext4", "253:0")
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.latency", "251:0 target=10000")
    assert codes(tree) == ["latency"]


@pytest.mark.parametrize(
    ("kind", "number", "target"),
    [("xfs", "251:0", "251:0"), ("ext4", "254:99", "251:0"), ("ext4", "251:0", "254:0")],
)
def test_another_filesystem_or_a_target_for_another_disk_is_not(
    tree: Tree, kind: str, number: str, target: str
) -> None:
    mount(tree, kind, number)
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.latency", f"{target} target=10000")
    assert codes(tree) == []


def test_a_cgroup_that_is_alone_on_its_ext4_is_not(tree: Tree) -> None:
    mount(tree, "ext4")
    tree.kernel.lay(f"{CGROUPS}/{DB}/io.latency", "251:0 target=10000")
    tree.kernel.lay(f"{CGROUPS}/{ETL}/io.stat", "")
    assert codes(tree) == []
