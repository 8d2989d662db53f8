"""A cache that was removed under load ("torn off"): what kernel and writer logged, and which loss that explains. Pure.

bcache completes an fsync successfully even if it could not write the journal that the fsync waited for. With one writer
this can cost one record: the last one acknowledged, in the file that was fsynced last. Two pieces of evidence are
required: before the acknowledgement the kernel reports that its journal failed or that it gave up the cache set, and
the writer gets an error for the next record.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio_testbed.faults.acks import WriteOutcome, acknowledged, failures
from elastio_testbed.guest.records import is_twice

# The longest time from the kernel's error to the acknowledgement, and from there to the writer's next error.
NEAR_S = 10.0
# The errors of a device that has gone, and of a filesystem on it.
GONE = (errno.EIO, errno.EROFS)
# More than one loss, and in more than one of this many runs, has another cause.
ONE_IN = 5
MOST_LINES = 200

_STAMPED = re.compile(r"\[ *(\d+\.\d+)\] (.*)")
# An error of the journal or another one: from then on bcache fails every request to the cache set, those of the journal
# included, without logging them (bch_cache_set_error, closure_bio_submit).
_GIVEN_UP = re.compile(r"bcache: bch_cache_set_error\(\) error on ")
_CLOCK = re.compile(r"records: (\S+) (\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Tear:
    """The writer `name`, which stopped because its cache was removed. Times are those of the guest's monotonic clock.

    `began_s` is not later than the removal. None: not observed.
    """

    name: str
    began_s: float
    kernel_error_s: float | None = None
    acknowledged: WriteOutcome | None = None
    failed: WriteOutcome | None = None
    kernel_log: tuple[str, ...] = ()

    @property
    def is_proved(self) -> bool:
        """Whether the kernel gave up the cache, then a record was acknowledged, and then the next one failed."""
        if self.kernel_error_s is None or self.acknowledged is None or self.failed is None:
            return False
        answered_s = self.acknowledged.at_s
        return (
            self.began_s <= self.kernel_error_s <= answered_s <= self.kernel_error_s + NEAR_S
            and answered_s < self.failed.at_s <= answered_s + NEAR_S
            and self.failed.number == self.acknowledged.number + 1
            and self.failed.code in GONE
        )


def torn(found: Mapping[str, Any], tear: Tear) -> int:
    """The number of lost records that the kernel's flaw explains: 1 or 0. `found` is the result of `records.verify`."""
    last = found["checked"]
    where = "table" if is_twice(last) else "once"
    is_the_last = tear.acknowledged is not None and tear.acknowledged.number == last
    return int(found["examples"] == [{"number": last, "where": where}] and is_the_last and tear.is_proved)


def is_plausible(torn_runs: int, tears: int) -> bool:
    """Whether the kernel can explain this many runs with a loss, given the number of caches torn off."""
    return torn_runs <= 1 or torn_runs * ONE_IN <= tears


def tear(name: str, began_s: float, port: str, log: Sequence[str]) -> Tear:
    """The tear of one writer, from the lines of its port and of the kernel's log."""
    return Tear(
        name,
        began_s,
        kernel_error_s(log, name, began_s),
        acknowledged(port).get(name),
        failures(port).get(name),
        excerpt(log, began_s),
    )


def kernel_error_s(log: Sequence[str], name: str, began_s: float) -> float | None:
    """When the kernel first gave up a cache set since `began_s`, on the clock of the writer's last line in the log."""
    clocks = [(at_s, line) for at_s, text in _stamped(log) if (line := _CLOCK.search(text))]
    offsets = [at_s - float(line[2]) for at_s, line in clocks if line[1] == name]
    if not offsets:
        return None
    errors = (at_s - offsets[-1] for at_s, text in _stamped(log) if _GIVEN_UP.search(text))
    return min((at_s for at_s in errors if at_s >= began_s), default=None)


def excerpt(log: Iterable[str], began_s: float) -> tuple[str, ...]:
    """The kernel's lines since the removal, and the clock lines; limited to MOST_LINES."""
    # The two clocks differ by less than 5 s.
    kept = [line for line in log if _CLOCK.search(line) or any(at >= began_s - 5 for at, _ in _stamped([line]))]
    return tuple(kept[:MOST_LINES])


def _stamped(log: Iterable[str]) -> list[tuple[float, str]]:
    return [(float(found[1]), found[2]) for line in log if (found := _STAMPED.match(line))]
