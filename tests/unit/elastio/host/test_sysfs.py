"""Reading and writing small kernel files."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs, parse_size
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
