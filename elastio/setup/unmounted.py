"""A filesystem is unmounted for as long as what it lies on changes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from elastio.errors import ElastioError, HostError
from elastio.host import mounts
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs

MOUNT_S = 120.0


@contextmanager
def unmounted(place: Path | None, sysfs: Sysfs, run: Run) -> Iterator[None]:
    """Inside it is not mounted; afterwards it is again, by fstab, whatever happened. None: nothing was mounted."""
    if place is None:
        yield
        return
    run(["umount", str(place)], timeout_s=MOUNT_S)
    try:
        yield
    except BaseException:
        with suppress(ElastioError):  # the first error is the one that matters
            _mount(place, sysfs, run)
        raise
    _mount(place, sysfs, run)


def _mount(place: Path, sysfs: Sysfs, run: Run) -> None:
    """systemd may have mounted it meanwhile, when its device appeared. Raises HostError."""
    try:
        run(["mount", str(place)], timeout_s=MOUNT_S)
    except HostError:
        if all(mount.place != str(place) for mount in mounts.read(sysfs)):
            raise
