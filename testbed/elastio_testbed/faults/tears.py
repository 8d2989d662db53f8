"""A cache torn off under load: what the kernel and the writer said of it, and which loss that excuses. Pure.

bcache answers an fsync with success though it could not write the journal that the fsync waited for. With one writer
that can cost one record: the last one acknowledged, in the place that was fsynced last. Both have to be witnessed: the
kernel reports before that answer that its journal failed, or that it has given up the cache set and so the journal, and
the writer gets an error for the very next record.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elastio_testbed.faults.acks import WriteOutcome, acknowledged, failures
from elastio_testbed.guest.records import is_twice

# From the kernel's error to the answer, and from the answer to the writer's next error.
NEAR_S = 10.0
# What a writer is told by a device that has gone, and by a filesystem that has met an error of it.
GONE = (errno.EIO, errno.EROFS)
# More than one loss, and in more than one of so many runs, is not that flaw any more.
ONE_IN = 5
MOST_LINES = 200

_STAMPED = re.compile(r"\[ *(\d+\.\d+)\] (.*)")
# The journal's own error; or the cache set is given up because of another one, and from then on bcache fails every
# request to it, the journal's too, without a word more (bch_cache_set_error, closure_bio_submit).
_GIVEN_UP = re.compile(r"bcache: bch_cache_set_error\(\) error on ")
_CLOCK = re.compile(r"records: (\S+) (\d+\.\d+)")


@dataclass(frozen=True, slots=True)
class Tear:
    """One life of the writer, `name`, that its cache's end has ended. Times: the guest's monotonic clock.

    `began_s` is not later than the tear. None: nobody has said so.
    """

    name: str
    began_s: float
    kernel_error_s: float | None = None
    acknowledged: WriteOutcome | None = None
    failed: WriteOutcome | None = None
    kernel_log: tuple[str, ...] = ()

    @property
    def is_witnessed(self) -> bool:
        """After the tear began the kernel gave up the cache, a record was acknowledged, and the next one failed."""
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
    """How many lost records the kernel's flaw explains: 1 or 0. `found` is what `records.verify` returns."""
    last = found["checked"]
    where = "table" if is_twice(last) else "once"
    is_the_last = tear.acknowledged is not None and tear.acknowledged.number == last
    return int(found["examples"] == [{"number": last, "where": where}] and is_the_last and tear.is_witnessed)


def is_plausible(torn_runs: int, tears: int) -> bool:
    """Whether so many runs with a loss, of so many whose cache was torn off, may still be put down to the kernel."""
    return torn_runs <= 1 or torn_runs * ONE_IN <= tears


def tear(name: str, began_s: float, port: str, log: Sequence[str]) -> Tear:
    """What the lines of the port and of the kernel's log say of this life of the writer."""
    return Tear(
        name,
        began_s,
        kernel_error_s(log, name, began_s),
        acknowledged(port).get(name),
        failures(port).get(name),
        excerpt(log, began_s),
    )


def kernel_error_s(log: Sequence[str], name: str, began_s: float) -> float | None:
    """When the kernel first gave up a cache set since then, on the clock of the writer's last mark in the log."""
    marks = [at_s - float(mark[2]) for at_s, text in _stamped(log) if (mark := _CLOCK.search(text)) and mark[1] == name]
    if not marks:
        return None
    errors = (at_s - marks[-1] for at_s, text in _stamped(log) if _GIVEN_UP.search(text))
    return min((at_s for at_s in errors if at_s >= began_s), default=None)


def excerpt(log: Iterable[str], began_s: float) -> tuple[str, ...]:
    """What the kernel said from the tear on, and the marks of the clock; bounded."""
    # The two clocks differ by less than this.
    kept = [line for line in log if _CLOCK.search(line) or any(at >= began_s - 5 for at, _ in _stamped([line]))]
    return tuple(kept[:MOST_LINES])


def _stamped(log: Iterable[str]) -> list[tuple[float, str]]:
    return [(float(found[1]), found[2]) for line in log if (found := _STAMPED.match(line))]
