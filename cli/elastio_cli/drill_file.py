"""The file of a drill: written on the adaptive device's filesystem, compared once the cache is gone, and removed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elastio.core.policy import Policy
from elastio.errors import ElastioError, HostError
from elastio.host.sysfs import Sysfs
from elastio.host.usage import mounted_at
from elastio.units import MB, MIB
from elastio_cli.app import App
from elastio_setup.candidates import candidates
from elastio_setup.subprocess_timeout import call_with_timeout

BLOCK_BYTES = MIB
MOST_BLOCKS = 16
CONTENT = "drill.content"
KERNEL_S = 15.0
# A device that takes longer for the file hangs, or is so busy that a drill shows nothing.
FILE_S = 180.0


@dataclass(frozen=True, slots=True)
class DrillFile:
    """A file of so many MiB. `seed` makes the content, so that it is not kept in memory."""

    path: Path
    seed: bytes
    blocks: int

    def write(self) -> None:
        """Write the file and make it durable. Raises HostError."""
        call_with_timeout(lambda: _reporting(self._write), FILE_S)

    def compare(self) -> None:
        """Read the file from the device, not from memory. Raises HostError if it is not what was written."""
        call_with_timeout(lambda: _reporting(self._compare), FILE_S)

    def remove(self) -> None:
        """Remove the file; without one that is done."""
        call_with_timeout(lambda: _reporting(lambda: self.path.unlink(missing_ok=True)), FILE_S)

    def _write(self) -> None:
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "wb", buffering=0) as file:
            for block in self._blocks():
                file.write(block)
            os.fsync(descriptor)

    def _compare(self) -> None:
        with self.path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            for number, block in enumerate(self._blocks()):
                if file.read(len(block)) != block:
                    text = f"MiB {number} of {self.path} is not what was written; the file is kept: stop the agent"
                    raise HostError(f"{text}, and see docs/how-to/recover.md", code=CONTENT)

    def _blocks(self) -> Iterator[bytes]:
        for number in range(self.blocks):
            yield hashlib.shake_128(self.seed + number.to_bytes(8, "big")).digest(BLOCK_BYTES)


def blocks_for(policy: Policy, sample_interval_s: float) -> int:
    """MiB to write and read back: at most half of what the agent takes for a load, so that no boost begins for it.

    It is also far below what teaches a size.
    """
    load_bytes = policy.utilization_threshold * policy.backing_bandwidth_mb_s * MB * min(1.0, sample_interval_s)
    return max(1, min(MOST_BLOCKS, int(load_bytes / 2 / BLOCK_BYTES)))


def place_of(app: App, backing_uuid: str, say: Callable[[str], None], *, is_simulated: bool) -> Path | None:
    """Where the filesystem of the adaptive device is mounted. None for a simulated machine without such a device.

    Raises HostError if it is not mounted.
    """
    sysfs = app.sysfs()
    name = call_with_timeout(lambda: _adaptive(sysfs, backing_uuid), KERNEL_S)
    if name is None and is_simulated:
        say("the machine is simulated and has no filesystem: no file is written")
        return None
    for place in mounted_at(sysfs, name) if name else ():
        if Path(place).is_dir() and os.access(place, os.W_OK):
            return Path(place)
    shown = f"/dev/{name}" if name else "the adaptive device"
    raise HostError(f"{shown} is not mounted for writing: mount it, then begin the drill again", code="drill.mount")


def _adaptive(sysfs: Sysfs, backing_uuid: str) -> str | None:
    """The adaptive device; None if it does not run."""
    return next((c.adaptive for c in candidates(sysfs) if c.uuid == backing_uuid), None)


@contextmanager
def removed(place: Path | None, blocks: int) -> Iterator[DrillFile | None]:
    """A file of a new name at this place, which is gone in the end; none without a place.

    A file whose content is wrong is kept, because it shows what happened.
    """
    if place is None:
        yield None
        return
    file = DrillFile(place / f".elastio-drill-{secrets.token_hex(8)}", secrets.token_bytes(16), blocks)
    try:
        yield file
    except BaseException as error:
        if isinstance(error, ElastioError) and error.code == CONTENT:
            raise
        with contextlib.suppress(ElastioError):  # the first error is the one that matters
            file.remove()
        raise
    file.remove()


def _reporting(work: Callable[[], None]) -> None:
    """Raises HostError for what the filesystem refuses."""
    try:
        work()
    except OSError as error:
        raise HostError(f"the file of the drill: {error.strerror or error}", code="drill.file") from error
