"""The tree of cgroups: who shares a device, with which weight, and what the kernel counts."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from elastio.core.moved import Moved
from elastio.errors import HostError
from elastio.host import cgroups
from elastio.host.cgroups import CGROUPS
from tests.fixtures.sysfs_tree import Kernel

DB, CRON = "system.slice/db.service", "system.slice/cron.service"


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    """Two services in a slice; below one of them and in `user.slice` the io controller is not enabled."""
    made = Kernel(tmp_path)
    made.lay(f"{CGROUPS}/cgroup.controllers", "cpuset cpu io memory")
    made.lay(f"{CGROUPS}/cgroup.subtree_control", "cpu io memory")
    for group in ("system.slice", DB, CRON, "user.slice"):
        made.lay(f"{CGROUPS}/{group}/io.stat", "")
        made.lay(f"{CGROUPS}/{group}/io.weight", "default 100")
    for group in (f"{DB}/worker", "user.slice/user-0.slice"):
        made.lay(f"{CGROUPS}/{group}/cgroup.procs", "")
    return made


def test_those_share_that_are_counted_and_have_no_counted_child(kernel: Kernel) -> None:
    assert cgroups.counted(kernel) == ("system.slice", CRON, DB, "user.slice")
    assert cgroups.sharers(kernel) == (CRON, DB, "user.slice")


def test_a_cgroup_whose_name_is_no_text_is_left_out(kernel: Kernel) -> None:
    for name in (b"system.slice/\xff.service", b"system.slice/a\x01.service"):
        folder = kernel.path(CGROUPS) / os.fsdecode(name)
        folder.mkdir()
        (folder / "io.stat").write_text("")
    assert cgroups.sharers(kernel) == (CRON, DB, "user.slice")
    assert cgroups.chosen(kernel, ["system.slice/*"]) == (CRON, DB)


def test_weights_are_the_kernels_along_each_path(kernel: Kernel) -> None:
    kernel.lay(f"{CGROUPS}/{DB}/io.weight", "default 800\n254:16 300")
    kernel.path(f"{CGROUPS}/{CRON}/io.weight").unlink()
    assert cgroups.weights(kernel, (DB, CRON)) == {"system.slice": 100.0, DB: 800.0, CRON: 100.0}


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        ("", None),
        ("251:16 rbytes=5 wbytes=6", None),
        ("251:0 ", None),
        ("8:0 rbytes=1 wbytes=1 rios=1 wios=1\n251:0 rbytes=30 wbytes=7 rios=2 wios=3 dbytes=0", Moved(30, 7, 5)),
        ("7:7 7:6 251:0 rbytes=30 wbytes=7", Moved(30, 7)),
        ("251:0 cost.vrate=100.00 rbytes=30 wbytes=7\n251:16 ", Moved(30, 7)),
    ],
)
def test_what_a_cgroup_has_moved_is_that_of_the_device(kernel: Kernel, shown: str, expected: Moved | None) -> None:
    kernel.lay(f"{CGROUPS}/{DB}/io.stat", shown)
    assert cgroups.moved(kernel, DB, "251:0") == expected


def test_a_cgroup_that_is_gone_has_moved_nothing(kernel: Kernel) -> None:
    shutil.rmtree(kernel.path(f"{CGROUPS}/{DB}"))
    assert cgroups.moved(kernel, DB, "251:0") is None


def test_a_machine_that_counts_is_accepted(kernel: Kernel) -> None:
    cgroups.check_counted(kernel)


@pytest.mark.parametrize(
    ("file", "text", "code"),
    [
        ("cgroup.controllers", None, "cgroup.version"),
        ("cgroup.controllers", "cpuset cpu memory", "cgroup.controller"),
        ("cgroup.subtree_control", "cpu memory", "cgroup.disabled"),
    ],
)
def test_one_that_does_not_is_refused_with_the_reason(kernel: Kernel, file: str, text: str | None, code: str) -> None:
    if text is None:
        kernel.path(f"{CGROUPS}/{file}").unlink()
    else:
        kernel.lay(f"{CGROUPS}/{file}", text)
    with pytest.raises(HostError) as refused:
        cgroups.check_counted(kernel)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (("*.slice",), ("system.slice", "user.slice")),
        (("*.slice", "system.slice/*.service"), (CRON, DB, "user.slice")),
        (("system.slice/d*", "*/db.service"), (DB,)),
        (("*/*/*",), ()),
        (("/system.slice/",), ("system.slice",)),
        ((), ()),
    ],
)
def test_cgroups_are_chosen_by_the_parts_of_their_paths(
    kernel: Kernel, patterns: tuple[str, ...], found: tuple[str, ...]
) -> None:
    """Those without `io.stat` are not, and none that contains another one."""
    assert cgroups.chosen(kernel, patterns) == found
