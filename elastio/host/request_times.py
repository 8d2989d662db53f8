"""How long the requests of a block device took. Source: Documentation/block/stat.rst. Takes no lock of bcache.

Those of bcacheN are counted from where limits of cgroups have let them pass.
"""

from __future__ import annotations

from elastio.core.lending import Requests
from elastio.host.sysfs import Sysfs

# Fields of /sys/block/NAME/stat: requests and milliseconds of reads, then of writes.
READS, WRITES = (0, 3), (4, 7)


def finished(sysfs: Sysfs, name: str) -> tuple[Requests, Requests]:
    """Reads and writes that the device has finished; none if it is gone."""
    words = sysfs.read_or(f"sys/block/{name}/stat", "").split()
    if len(words) <= max(WRITES):
        return Requests(), Requests()
    reads, writes = (Requests(int(words[count]), int(words[ms]) / 1000) for count, ms in (READS, WRITES))
    return reads, writes
