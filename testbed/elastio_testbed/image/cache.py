"""A cache directory of build results, each named by the digest of its inputs.

An entry is complete or absent: it is built in a temporary directory and renamed, under a lock. Of two concurrent
builders the second uses the result of the first.

What a process has got from the cache stays as long as the process: guests run on it, and boot from it again. So each
holds a shared lock of what it uses, which ends with it however it ends.
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
# Length of a digest in a file name: 80 bits.
_DIGEST_CHARACTERS = 20
# Descriptors of the entries that this process uses, each with a shared lock.
_in_use: dict[Path, int] = {}


def cache_directory() -> Path:
    """The directory of build results: $ELASTIO_CACHE, else ~/.cache/elastio."""
    named = os.environ.get("ELASTIO_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "elastio"


def digest_of(values: Iterable[str] = (), trees: Iterable[Path] = ()) -> str:
    """A short digest of `values`, and of the names, executable bits and contents of the files in `trees`.

    A tree may be a single file or missing. Byte-compiled files are ignored.
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
    """Return the directory `entry`; if it does not exist, `build(directory)` fills it first.

    Exceptions of `build` are passed on; then nothing is created.
    """
    entry.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.with_name(entry.name + ".lock")):
        if entry.is_dir():
            # The time of last use, for `prune`.
            os.utime(entry)
            _hold(entry)
            return entry
        unfinished = Path(tempfile.mkdtemp(prefix=f".{entry.name}.", dir=entry.parent))
        try:
            unfinished.chmod(0o755)
            build(unfinished)
            unfinished.rename(entry)
            _hold(entry)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return entry


def prune(directory: Path, pattern: str, *, keep: int) -> None:
    """Delete the entries that match `pattern`, except for the `keep` most recently used ones and those in use."""
    entries = [path for path in directory.glob(pattern) if path.is_dir()]
    for entry in sorted(entries, key=lambda path: path.stat().st_mtime, reverse=True)[keep:]:
        with _locked(entry.with_name(entry.name + ".lock")):
            if not _is_in_use(entry):
                shutil.rmtree(entry, ignore_errors=True)  # another process may have deleted it meanwhile


def discard(entry: Path) -> None:
    """Delete an entry that proved useless, whoever uses it."""
    with _locked(entry.with_name(entry.name + ".lock")):
        shutil.rmtree(entry, ignore_errors=True)


def _hold(entry: Path) -> None:
    """Until this process ends. The lock is of the directory itself, so one that is built again has another."""
    before, _in_use[entry] = _in_use.get(entry), _opened(entry)
    fcntl.flock(_in_use[entry], fcntl.LOCK_SH)
    if before is not None:
        os.close(before)


def _is_in_use(entry: Path) -> bool:
    """By this process or another one."""
    try:
        directory = _opened(entry)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(directory)
    return False


def _opened(entry: Path) -> int:
    return os.open(entry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _feed(update: Callable[[bytes], None], data: bytes) -> None:
    # The length separates adjacent fields.
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
