"""A file is replaced as a whole: its content, mode, owner and durability, and what a failure leaves."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.whole_file import is_replaceable, replace, sync_directory
from tests.fixtures.synced import syncs


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.json"
    path.write_text("old")
    return path


@pytest.fixture
def mask() -> Iterator[int]:
    before = os.umask(0o027)
    yield 0o640
    os.umask(before)


def test_who_has_the_file_open_reads_the_old_text_to_its_end(path: Path) -> None:
    with path.open() as reader:
        replace(path, b"new")
        assert (reader.read(), path.read_text()) == ("old", "new")
    assert list(path.parent.iterdir()) == [path]


def test_the_new_file_is_private_until_it_is_whole_and_no_reader_of_the_directory_takes_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []

    def given(descriptor: int, mode: int) -> None:
        (fresh,) = [p for p in path.parent.iterdir() if p != path]
        is_hidden = fresh.name.startswith(".") and fresh.suffix == ".new"
        seen.append((is_hidden, stat.S_IMODE(os.fstat(descriptor).st_mode)))

    monkeypatch.setattr(os, "fchmod", given)
    replace(path, b"new", mode=0o644)
    assert seen == [(True, 0o600)]


@pytest.mark.parametrize("mode", [0o600, 0o666])
@pytest.mark.usefixtures("mask")
def test_a_mode_is_given_whatever_the_mask_is(mode: int, path: Path) -> None:
    replace(path, b"new", mode=mode)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_without_a_mode_the_mask_counts(path: Path, mask: int) -> None:
    path.chmod(0o600)
    replace(path, b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mask


@pytest.mark.parametrize("owner", [None, (1, 6)])
def test_the_owner_is_the_one_that_is_named_or_this_process(owner: tuple[int, int] | None, path: Path) -> None:
    os.chown(path, 2, 2)
    replace(path, b"new", owner=owner)
    seen = path.stat()
    assert (seen.st_uid, seen.st_gid) == (owner or (os.geteuid(), os.getegid()))


@pytest.mark.parametrize(("sync", "before"), [(False, []), (True, ["a.json.new"])])
def test_only_who_asks_for_it_gets_a_file_that_is_durable_before_it_takes_the_name(
    sync: bool, before: list[str], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = syncs(monkeypatch)
    replace(path, b"new", sync=sync)
    assert seen == [*before, "a.json.new -> a.json"]


def test_a_directory_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = syncs(monkeypatch)
    sync_directory(tmp_path)
    assert seen == [tmp_path.name]


@pytest.mark.parametrize("call", ["fsync", "fchown", "replace"])
def test_after_a_failure_the_old_file_is_there_and_nothing_else(
    call: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path if call == "replace" else os, call, full)
    with pytest.raises(OSError, match="space"):
        replace(path, b"new", owner=(0, 0), sync=True)
    assert [(p.name, p.read_text()) for p in path.parent.iterdir()] == [("a.json", "old")]


def test_a_link_is_replaced_and_what_it_names_is_not(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    replace(link, b"new")
    assert (link.is_symlink(), link.read_text(), path.read_text()) == (False, "new", "old")


def test_only_a_regular_file_or_none_is_replaceable(path: Path) -> None:
    path.with_name("link").symlink_to(path)
    os.mkfifo(path.with_name("pipe"))
    assert [is_replaceable(path.with_name(name)) for name in ("a.json", "none")] == [True, True]
    assert [is_replaceable(each) for each in (path.with_name("link"), path.with_name("pipe"), path.parent)] == [
        False
    ] * 3
