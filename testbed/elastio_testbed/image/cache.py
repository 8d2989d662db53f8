"""A directory of build results, each named by the digest of what it was built from.

An entry is complete or absent: it is built beside its place and renamed into it, under a lock, so that two
builders never see each other's halves and the second one uses what the first one made.
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_IGNORED_PARTS = {"__pycache__"}
_IGNORED_SUFFIXES = {".pyc"}
# Length of a digest in a file name: 80 bits, far beyond the number of images anyone keeps.
_DIGEST_CHARACTERS = 20


def cache_directory() -> Path:
    """Where build results are kept: $ELASTIO_CACHE, else ~/.cache/elastio."""
    named = os.environ.get("ELASTIO_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "elastio"


def digest_of(values: Iterable[str] = (), trees: Iterable[Path] = ()) -> str:
    """A short digest of `values`, and of names, executable bits and contents of the files under `trees`.

    A tree may be a single file, and may be absent. Byte-compiled files do not count.
    """
    hasher = hashlib.sha256()
    for value in values:
        _feed(hasher.update, value.encode())
    for tree in trees:
        for path in _files(tree):
            _feed(hasher.update, str(path.relative_to(tree.parent)).encode())
            _feed(hasher.update, str(path.stat().st_mode & 0o111).encode())
            _feed(hasher.update, path.read_bytes())
    return hasher.hexdigest()[:_DIGEST_CHARACTERS]


def cached(entry: Path, build: Callable[[Path], None]) -> Path:
    """Return the directory `entry`, calling `build(directory)` to fill it when it does not exist yet.

    What `build` raises goes through, and then nothing is left behind.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.with_name(entry.name + ".lock")):
        if entry.is_dir():
            # The time of last use, for `prune`.
            os.utime(entry)
            return entry
        unfinished = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
        try:
            unfinished.chmod(0o755)
            build(unfinished)
            unfinished.rename(entry)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return entry


def prune(directory: Path, pattern: str, *, keep: int) -> None:
    """Remove the entries that match `pattern`, except for the `keep` used last."""
    entries = [path for path in directory.glob(pattern) if path.is_dir()]
    for entry in sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
        with _locked(entry.with_name(entry.name + ".lock")):
            shutil.rmtree(entry)


def _feed(update: Callable[[bytes], None], data: bytes) -> None:
    # The length keeps neighbouring fields apart.
    update(len(data).to_bytes(8, "big"))
    update(data)


def _files(tree: Path) -> list[Path]:
    if tree.is_file():
        return [tree]
    return sorted(
        path
        for path in tree.rglob("*")
        if path.is_file() and path.suffix not in _IGNORED_SUFFIXES and not _IGNORED_PARTS & set(path.parts)
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
