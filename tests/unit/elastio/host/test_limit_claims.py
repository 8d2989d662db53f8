"""Limits on applications belong to one of several agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, HostError
from elastio.host import cgroups, throttle
from elastio.host.guard import Guard
from elastio.host.share_limits import claim, claimed_by_others
from elastio.host.sysfs import Sysfs
from tests.fixtures.errors import refused

HELD = throttle.STOP


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two adaptive devices, and one cgroup."""
    for disk, number in (("bcache0", "251:0"), ("bcache1", "251:128")):
        (tmp_path / "sys/block" / disk).mkdir(parents=True)
        (tmp_path / "sys/block" / disk / "dev").write_text(number)
    (tmp_path / "run/elastio").mkdir(parents=True)
    group = tmp_path / cgroups.CGROUPS / "user.slice"
    group.mkdir(parents=True)
    (group / "io.max").write_text("")
    return tmp_path


@contextmanager
def limited(sysfs: Sysfs, device: str) -> Iterator[None]:
    watch = Guard(partial(throttle.release, sysfs))
    try:
        with throttle.limited(watch, sysfs, (device,), throttle.STOP):
            yield
    finally:
        watch.dismiss()


def limits(root: Path) -> str:
    return (root / cgroups.CGROUPS / "user.slice/io.max").read_text()


def test_an_agent_that_ends_its_limits_leaves_those_of_another(root: Path) -> None:
    ours, others = Sysfs(root, "elastio"), Sysfs(root, "data")
    with limited(others, "bcache1"):
        (root / cgroups.CGROUPS / "user.slice/io.max").write_text(f"251:128 {HELD}\n")
        assert throttle.release(ours) == ()
        with limited(ours, "bcache0"):
            assert limits(root).startswith(f"251:0 {throttle.STOP}"), "its own is written"
        (root / cgroups.CGROUPS / "user.slice/io.max").write_text(f"251:0 {HELD}\n251:128 {HELD}\n")
        assert throttle.release(ours) == ("user.slice",)
        assert limits(root).startswith(f"251:0 {cgroups.FREE}")


def test_an_agent_claims_all_devices_above_its_own_from_the_first_limit_to_the_last(root: Path) -> None:
    """Those on top are limited first: their limits stay claimed when the ones below are set."""
    sysfs, watch = Sysfs(root, "elastio"), Guard(lambda: None)
    for disk, number in (("bcache0", "251:0"), ("dm-0", "253:0")):
        (root / "sys/block" / disk / "holders").mkdir(parents=True, exist_ok=True)
        (root / "sys/block" / disk / "dev").write_text(number)
        (root / "sys/block" / disk / "inflight").write_text("0 0")
    (root / "sys/block/bcache0/holders/dm-0").symlink_to("../../dm-0")
    claims = []

    def wait(condition: Callable[[], bool], _: float) -> bool:
        claims.append(claimed_by_others(Sysfs(root, "data")))
        is_done = condition()
        claims.append(claimed_by_others(Sysfs(root, "data")))
        return is_done

    with suppress(DeviceBusyError), throttle.drained(watch, sysfs, "bcache0", throttle.STOP, wait):
        pass
    watch.dismiss()
    throttle.limit_writes(sysfs, "bcache0", 0.0)
    assert [*claims, claimed_by_others(Sysfs(root, "data"))] == 3 * [{"251:0", "253:0"}]


def test_what_a_killed_agent_left_is_removed_by_its_next_run_and_by_nobody_else(root: Path) -> None:
    claim(Sysfs(root, "data"), ["251:128"])
    (root / cgroups.CGROUPS / "user.slice/io.max").write_text(f"251:128 {HELD}\n")
    assert throttle.release(Sysfs(root, "elastio")) == ()
    assert throttle.release(Sysfs(root, "data")) == ("user.slice",)


def test_a_limit_that_nobody_has_claimed_is_removed_by_anybody(root: Path) -> None:
    """That of a release before claims, or of the only agent of a machine."""
    (root / cgroups.CGROUPS / "user.slice/io.max").write_text(f"251:7 {HELD}\n")
    assert throttle.release(Sysfs(root, "elastio")) == ("user.slice",)


def test_a_device_that_two_have_claimed_is_freed_by_both(root: Path) -> None:
    """The numbers of devices change with each registration: a claim may be old."""
    for owner in ("elastio", "data"):
        claim(Sysfs(root, owner), ["251:0"])
    assert claimed_by_others(Sysfs(root, "data")) == frozenset()


def registered(root: Path, number: str, sequence: int) -> None:
    folder = root / "sys/dev/block" / number
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "diskseq").write_text(f"{sequence}\n")


def test_a_claim_ends_with_its_device_and_is_not_one_to_the_next_of_that_number(root: Path) -> None:
    first, second = Sysfs(root, "elastio"), Sysfs(root, "data")
    registered(root, "251:0", 7)
    claim(first, ["251:0"])
    assert claimed_by_others(second) == {"251:0"}
    registered(root, "251:0", 8)
    assert claimed_by_others(second) == frozenset()
    claim(second, ["251:0"])
    (root / cgroups.CGROUPS / "user.slice/io.max").write_text(f"251:0 {HELD}\n")
    assert throttle.release(first) == ()
    assert throttle.release(second) == ("user.slice",)
    claim(first, ["251:0"])
    assert claimed_by_others(first) == frozenset(), "it is written again for the device of today"


def test_a_claim_without_a_sequence_number_counts(root: Path) -> None:
    """That of an earlier release, or of a kernel that has none."""
    claim(Sysfs(root, "elastio"), ["251:0"])
    registered(root, "251:0", 8)
    assert claimed_by_others(Sysfs(root, "data")) == {"251:0"}


def test_no_limit_is_set_that_cannot_be_claimed(root: Path) -> None:
    (root / "run/elastio/data.limits").mkdir()
    with refused(HostError, "limit.claim"), limited(Sysfs(root, "data"), "bcache1"):
        pytest.fail("it was limited")
    assert limits(root) == ""
