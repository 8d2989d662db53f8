"""Reading and writing small kernel files."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs, parse_size, wait_for
from tests.fixtures.errors import refused


@pytest.fixture
def sysfs(tmp_path: Path) -> Sysfs:
    (tmp_path / "mode").write_text("writethrough [writeback] writearound none\n")
    (tmp_path / "percent").write_text("10\n")
    (tmp_path / "link").symlink_to("../../fs/bcache/cf27dac6")
    return Sysfs(tmp_path)


def test_reads_values_choices_and_links(sysfs: Sysfs) -> None:
    assert (sysfs.read("percent"), sysfs.shown("percent"), sysfs.shown("mode")) == ("10", "10", "writeback")
    assert (sysfs.link("link"), sysfs.link("percent"), sysfs.link("gone")) == ("cf27dac6", None, None)
    assert (sysfs.names(""), sysfs.names("gone")) == (("link", "mode", "percent"), ())
    assert (sysfs.read_or("percent", "-"), sysfs.read_or("gone", "-")) == ("10", "-")


def test_a_missing_file_is_an_error(sysfs: Sysfs) -> None:
    with refused(HostError, "ENOENT"):
        sysfs.read("gone")
    with refused(HostError, "ENOENT"):
        sysfs.write("gone", 1)
    assert not sysfs.exists("gone")


def test_the_kernels_reason_is_kept() -> None:
    with refused(HostError, "ENOSPC"):
        Sysfs(Path("/dev")).write("full", "x")


def test_writes_only_what_differs(sysfs: Sysfs) -> None:
    sysfs.ensure("percent", 40)
    sysfs.ensure("mode", "writeback")
    assert (sysfs.read("percent"), sysfs.read("mode")) == ("40", "writethrough [writeback] writearound none")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0.0k", 0),
        ("711.0M", 711 * 2**20),
        ("1.1G", int(1.1 * 2**30)),
        ("-4.0k", -4096),
        ("2.5T", int(2.5 * 2**40)),
        ("512", 512),
        (" 64k\n", 65536),
    ],
)
def test_rounded_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "  ", "k", "many", "1.0X"])
def test_a_malformed_size_is_an_error(text: str) -> None:
    with pytest.raises(HostError):
        parse_size(text)


def test_a_write_apart_is_a_write(sysfs: Sysfs) -> None:
    sysfs.write_apart("percent", 40, 10)
    assert sysfs.read("percent") == "40"
    with refused(HostError, "ENOENT"):
        sysfs.write_apart("gone", 1, 10)
    with refused(HostError, "ENOSPC"):
        Sysfs(Path("/dev")).write_apart("full", "x", 10)


@pytest.fixture
def slow(tmp_path: Path) -> Sysfs:
    """A file whose writes wait until somebody reads it."""
    os.mkfifo(tmp_path / "slow")
    return Sysfs(tmp_path)


def test_a_write_apart_outlives_a_killed_process(slow: Sysfs) -> None:
    caller = os.fork()
    if caller == 0:
        try:
            os.setsid()
            slow.write_apart("slow", "late", 60)
        finally:
            os._exit(1)
    until_forked(caller)
    os.killpg(caller, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(caller, 0)[1]) == -signal.SIGKILL
    assert slow.read("slow") == "late"


def until_forked(process: int) -> None:
    """Wait until it has a child in a session of its own."""
    children = Path(f"/proc/{process}/task/{process}/children")
    assert wait_for(lambda: any(os.getsid(int(child)) == int(child) for child in children.read_text().split()), 10)


def test_a_write_apart_leaves_the_unit_of_its_caller(sysfs: Sysfs) -> None:
    own = "sys/fs/cgroup/cgroup.procs"
    sysfs.path(own).parent.mkdir(parents=True)
    sysfs.path(own).touch()
    sysfs.write_apart("percent", 40, 10)
    assert int(sysfs.read(own)) != os.getpid()


def test_no_second_write_apart_begins_while_one_hangs(slow: Sysfs) -> None:
    for _ in range(2):
        with refused(HostError, "ETIMEDOUT"):
            slow.write_apart("slow", "late", 0.05)
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children")
    assert len([child for child in children.read_text().split() if os.getsid(int(child)) == int(child)]) == 1
    assert slow.read("slow") == "late"
    (slow.root / "next").touch()
    assert wait_for(lambda: takes(slow), 10), "the one that has ended is reaped"
    assert slow.read("next") == "1"


def takes(kernel: Sysfs) -> bool:
    try:
        kernel.write_apart("next", 1, 10)
    except HostError:
        return False
    return True


def test_a_write_apart_may_take_effect_after_its_time(slow: Sysfs) -> None:
    ours, theirs = os.pipe()
    with refused(HostError, "ETIMEDOUT"):
        slow.write_apart("slow", "late", 0.05)
    os.close(theirs)
    is_closed = bool(select.select([ours], [], [], 5)[0])
    os.close(ours)
    assert slow.read("slow") == "late"
    os.wait()
    assert is_closed, "the process that writes keeps nothing of its parent's open"
