"""Replaces a file as a whole: whoever reads it sees the old text or the new one, never a part.

The new file is written under a name of its own beside the old one, and then renamed. That name begins with a dot and
ends in `.new`, so no reader of a directory takes it for one of its files. A process that is killed between the two
leaves such a file. A link is replaced, not followed: a caller that wants it followed resolves the path first. Source:
rename(2).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path


def replace(
    path: Path, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None, sync: bool = False
) -> None:
    """Replace the file or create it. Raises OSError; the old file is then unchanged, and nothing is left beside it.

    `mode`: of the new file; None: as the process's mask has it. `owner`: user and group; None: this process's. `sync`:
    after a power cut the name has the old content or the new one. Which of them: `sync_directory`.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    # Nobody else may read it before it has its mode.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if owner is not None:
                os.fchown(descriptor, *owner)
            if mode is not None:
                os.fchmod(descriptor, mode)
            if sync:
                os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one that matters
            fresh.unlink()
        raise


def left_of(path: Path) -> tuple[Path, ...]:
    """What writers that were killed have left of this file, or are writing. Raises OSError."""
    return tuple(path.parent.glob(f".{path.name}.*.new"))


def is_replaceable(path: Path) -> bool:
    """Whether it is a regular file or none: a rename over a device, pipe or link would remove it. Raises OSError."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return True


def sync_directory(directory: Path) -> None:
    """Make its names durable: without this, after a power cut a name may refer to its earlier file. Raises OSError."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
