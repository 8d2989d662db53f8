"""Device names for AttachVolume. On Nitro a name is only a label; the disk is always found by its serial."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from string import ascii_lowercase

# EC2 lists /dev/xvd[a-d][a-x] for HVM instances ("Device names for volumes on Amazon EC2 instances"). Of these, xvda is
# also the root's prefix, and the CSI driver for EBS, which found its list by trying, has none of xvdc.
NAMES = tuple(f"/dev/xvd{first}{second}" for first in "bd" for second in ascii_lowercase[: ascii_lowercase.index("y")])
_REMEMBERED = 26  # a name used a moment ago can hang in "attaching" when it is used again


class DeviceNames:
    """Proposes names: the same for the same volume, others than those lately given to other volumes."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)

    def propose(self, volume_id: str) -> Iterator[str]:
        """Names in the order to try. The volume's id sets the first, so that a restart changes nothing."""
        start = zlib.crc32(volume_id.encode()) % len(NAMES)
        for name in NAMES[start:] + NAMES[:start]:
            if not any(name == used and volume_id != user for used, user in self._recent):
                yield name

    def remember(self, name: str, volume_id: str) -> None:
        """The name was asked for and accepted for this volume, or turned out to be taken."""
        self._recent.append((name, volume_id))
