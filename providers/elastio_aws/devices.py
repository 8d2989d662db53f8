"""Device names for AttachVolume. On Nitro instances a name is only a label; the disk is found by its serial."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from string import ascii_lowercase

# EC2 documents /dev/xvd[a-d][a-x] for HVM instances ("Device names for volumes on Amazon EC2 instances"). Without xvda,
# the prefix of the root device, and xvdc, which the EBS CSI driver leaves out of its list, too.
NAMES = tuple(f"/dev/xvd{first}{second}" for first in "bd" for second in ascii_lowercase[: ascii_lowercase.index("y")])
_REMEMBERED = 26  # a name that is reused too soon can leave the volume in "attaching"


class DeviceNames:
    """Proposes names: the same one for the same volume, and none that another volume got recently."""

    def __init__(self) -> None:
        self._recent: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)

    def propose(self, volume_id: str) -> Iterator[str]:
        """Names in the order to try. The first follows from the volume's id, so it is the same after a restart."""
        start = zlib.crc32(volume_id.encode()) % len(NAMES)
        for name in NAMES[start:] + NAMES[:start]:
            if not any(name == used and volume_id != user for used, user in self._recent):
                yield name

    def remember(self, name: str, volume_id: str) -> None:
        """Record that the name was accepted for this volume, or, with an empty id, that it is taken."""
        self._recent.append((name, volume_id))
