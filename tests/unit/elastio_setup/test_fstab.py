"""The line of /etc/fstab: found in every spelling, added once, written as a whole."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from elastio.errors import ConfigError
from elastio_setup import fstab
from tests.fixtures.errors import refused
from tests.fixtures.synced import syncs

UUID = "6d0c4a57-9d55-4f3a-8b1c-2d3e0b6f4c1e"
PLACE = Path("/data")
TEXT = "# /etc/fstab\nUUID=0000-0001 / ext4 errors=remount-ro 0 1\n\nnot an entry\n"


@pytest.mark.parametrize(
    "source",
    [f"UUID={UUID}", f'UUID="{UUID}"', f"UUID={UUID.upper()}", f"/dev/disk/by-uuid/{UUID}", "/dev/bcache0"],
)
@pytest.mark.parametrize("place", ["/data", "/data/"])
def test_a_line_is_found_in_every_spelling(source: str, place: str) -> None:
    text = f"{TEXT}{source} {place} ext4 rw,nofail 0 2\n"
    assert fstab.has_line(text, UUID, "bcache0", PLACE)


def test_a_comment_is_no_line() -> None:
    assert not fstab.has_line(f"{TEXT}#UUID={UUID} /data ext4 nofail 0 2\n", UUID, "bcache0", PLACE)


def test_a_line_of_another_filesystem_at_the_place_is_a_contradiction() -> None:
    with refused(ConfigError, "fstab.mountpoint"):
        fstab.has_line(f"{TEXT}/dev/vdb /data ext4 nofail 0 2\n", UUID, "bcache0", PLACE)


@pytest.mark.parametrize(("kind", "number"), [("ext4", 2), ("xfs", 0)])
@pytest.mark.parametrize("place", ["/data", "/srv/with space", "/srv/a#b\\c"])
def test_the_line_is_read_as_it_was_written(kind: str, number: int, place: str) -> None:
    line = fstab.line_for(UUID, Path(place), kind)
    (*_, entry) = fstab.entries(fstab.with_line(TEXT, line))
    assert (entry.place, entry.kind, entry.options) == (place, kind, fstab.OPTIONS)
    assert "nofail" in entry.options
    assert len(line.split()) == 6
    assert line.endswith(f" 0 {number}")
    assert fstab.has_line(fstab.with_line(TEXT, line), UUID, "bcache0", Path(place))


@pytest.mark.parametrize("text", ["", "last line without an end", "last line\n"])
def test_every_line_stays_and_ends(text: str) -> None:
    assert fstab.with_line(text, "new").splitlines() == [*text.splitlines(), "new"]
    assert fstab.with_line(text, "new").endswith("\n")


def test_owner_and_mode_stay_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "fstab"
    path.write_text(TEXT)
    path.chmod(0o640)
    os.chown(path, 0, 6)
    fstab.write(path, "new\n")
    seen = path.stat()
    assert (path.read_text(), stat.S_IMODE(seen.st_mode), seen.st_gid) == ("new\n", 0o640, 6)
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_is_durable_before_it_takes_the_name_and_the_name_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = syncs(monkeypatch)
    fstab.write(tmp_path / "fstab", "new\n")
    assert seen == ["fstab.new", "fstab.new -> fstab", tmp_path.name]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/fstab").write_text(TEXT)
    (tmp_path / "fstab").symlink_to("real/fstab")
    fstab.write(tmp_path / "fstab", "new\n")
    assert (tmp_path / "fstab").is_symlink()
    assert fstab.read(tmp_path / "real/fstab") == "new\n"


def test_what_is_not_utf_8_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "fstab"
    path.write_bytes(b"# caf\xe9\n")
    fstab.write(path, fstab.with_line(fstab.read(path), "new"))
    assert path.read_bytes() == b"# caf\xe9\nnew\n"


def test_a_file_that_cannot_be_replaced_is_unchanged(tmp_path: Path) -> None:
    with refused(ConfigError, "fstab.unwritable"):
        fstab.write(tmp_path / "none" / "fstab", "new\n")
    (tmp_path / "directory").mkdir()
    with refused(ConfigError, "fstab.not_regular"):
        fstab.write(tmp_path / "directory", "new\n")


def test_a_missing_file_is_empty(tmp_path: Path) -> None:
    assert fstab.read(tmp_path / "fstab") == ""


@pytest.mark.parametrize(
    ("line", "is_one"),
    [
        ("/data/x /srv none bind 0 0", True),
        ("/srv/y /opt none bind", True),
        ("/dev/sdz /data/inner ext4", True),
        ("/data/image /mnt ext4 loop", True),
        ("overlay /merged overlay lowerdir=/usr:/data/low,upperdir=/up,workdir=/work", True),
        ("/dev/sdz /late ext4 x-systemd.requires-mounts-for=/data", True),
        ("/database /srv2 none bind", False),
        ("/dev/sdz /other ext4 defaults", False),
        ("/other /data2 none bind", False),
    ],
)
def test_what_is_mounted_only_after_another_one_is_known(line: str, is_one: bool) -> None:
    first, *others = fstab.entries(f"UUID={UUID} /data ext4\n/data/x /srv none bind 0 0\n{line}\n")
    assert (first.kind, first.options) == ("ext4", ("",))
    found = fstab.dependents((first, *others), [first])
    assert first not in found
    assert (others[-1] in found) is is_one
