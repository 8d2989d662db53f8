"""The cache of build results: complete entries, named by the digests of their inputs."""

import fcntl
import os
from pathlib import Path

import pytest

from elastio_testbed.image.cache import cache_directory, cached, digest_of, discard, prune


def test_digest_follows_contents_names_and_executable_bits(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("one")
    seen = {digest_of(trees=[tree])}
    (tree / "a").write_text("two")
    seen.add(digest_of(trees=[tree]))
    (tree / "a").rename(tree / "b")
    seen.add(digest_of(trees=[tree]))
    (tree / "b").chmod(0o755)
    seen.add(digest_of(trees=[tree]))
    assert len(seen) == 4


def test_digest_ignores_byte_compiled_files_and_the_place_of_the_tree(tmp_path: Path) -> None:
    for place in ("here", "there"):
        (tmp_path / place / "package").mkdir(parents=True)
        (tmp_path / place / "package" / "module.py").write_text("x = 1\n")
    (tmp_path / "there/package/__pycache__").mkdir()
    (tmp_path / "there/package/__pycache__/module.cpython-311.pyc").write_bytes(b"\0")
    assert digest_of(trees=[tmp_path / "here/package"]) == digest_of(trees=[tmp_path / "there/package"])


def test_digest_separates_adjacent_values() -> None:
    assert digest_of(["ab", "c"]) != digest_of(["a", "bc"])


def test_builds_an_entry_once(tmp_path: Path) -> None:
    builds: list[Path] = []

    def build(directory: Path) -> None:
        builds.append(directory)
        (directory / "result").write_text("done")

    first = cached(tmp_path / "entry", build)
    second = cached(tmp_path / "entry", build)
    assert first == second == tmp_path / "entry"
    assert (second / "result").read_text() == "done"
    assert len(builds) == 1


def test_a_failed_build_leaves_no_files(tmp_path: Path) -> None:
    def build(directory: Path) -> None:
        (directory / "half").write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError):
        cached(tmp_path / "entry", build)
    assert [path.name for path in tmp_path.iterdir()] == ["entry.lock"]


def test_prune_keeps_the_most_recently_used_entries(tmp_path: Path) -> None:
    for age, name in enumerate(("guest-new", "guest-old", "guest-older", "debian-oldest")):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (10_000 - age, 10_000 - age))
    cached(tmp_path / "guest-older", lambda directory: None)
    prune(tmp_path, "guest-*", keep=2)
    kept = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert kept == {"guest-new", "guest-older", "debian-oldest"}


def test_what_this_process_uses_is_not_pruned(tmp_path: Path) -> None:
    """Whether it was built by it or was there before."""
    (tmp_path / "guest-found").mkdir()
    for name in ("guest-built", "guest-found"):
        cached(tmp_path / name, lambda directory: None)
    prune(tmp_path, "guest-*", keep=0)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"guest-built", "guest-found"}


def test_what_another_process_uses_is_not_pruned_until_it_ends(tmp_path: Path) -> None:
    """The kernel takes its lock back then."""
    entry = tmp_path / "guest"
    entry.mkdir()
    used = os.open(entry, os.O_RDONLY)
    fcntl.flock(used, fcntl.LOCK_SH)
    prune(tmp_path, "guest", keep=0)
    assert entry.is_dir()
    os.close(used)
    prune(tmp_path, "guest", keep=0)
    assert not entry.exists()


def test_what_was_discarded_is_built_again_and_then_kept_too(tmp_path: Path) -> None:
    entry = cached(tmp_path / "state", lambda directory: None)
    discard(entry)
    assert not entry.exists()
    cached(entry, lambda directory: None)
    prune(tmp_path, "state", keep=0)
    assert entry.is_dir()


def test_cache_directory_is_that_of_the_environment_or_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ELASTIO_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache/elastio"
    monkeypatch.setenv("ELASTIO_CACHE", "/somewhere")
    assert cache_directory() == Path("/somewhere")
