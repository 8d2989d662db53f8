"""How many writes a bcache device had in flight when its cache was attached or bypassed, told by the guest's kernel.

Probes on the functions by which bcache has its requests counted, and on the one that takes what is written to the
attributes of a backing device. Polling from outside would see neither instant. Nothing else in the guest has its
requests counted that way: no other driver there takes whole requests (bios).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError

# Enough for some minutes of requests, of which only the writes are kept.
BUFFER_KB = 8192
# A bio begins with two pointers and then the operation, odd if it writes; an attribute begins with its name.
_START = f"""
cd /sys/kernel/tracing
echo {BUFFER_KB} > buffer_size_kb
echo mono > trace_clock
echo 'p:elastio/begun bio_start_io_acct operation=+16(%di):u32
p:elastio/ended bio_end_io_acct_remapped operation=+16(%di):u32
p:elastio/store bch_cached_dev_store attribute=+0(+0(%si)):string value=+0(%dx):string' > kprobe_events
for event in begun ended; do echo 'operation & 1' > events/elastio/$event/filter; done
echo > trace
echo 1 > events/elastio/enable
"""
_STOP = """
cd /sys/kernel/tracing
echo 0 > events/elastio/enable
cat trace
echo > kprobe_events
echo > trace
"""
_CALL_S = 120.0
_COUNTED = re.compile(r": (begun|ended): \(")
_STORE = re.compile(r'store: \(.*\) attribute="(\w+)" value="([^"\\\n]*)')
_LOST = "LOST"


@dataclass(frozen=True, slots=True)
class Store:
    """What was written to which attribute, with so many writes in flight."""

    attribute: str
    value: str
    writes: int

    @property
    def is_switch(self) -> bool:
        """Whether requests go another way from then on: a cache is attached, or is bypassed."""
        return self.attribute == "attach" or (self.attribute, self.value) == ("cache_mode", "none")


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything written to the attributes, in its order, and the most writes that ever were in flight."""

    stores: tuple[Store, ...]
    most_writes: int


def start(lab: Lab) -> None:
    """From now on, with no write in flight. Raises GuestError."""
    lab.guest.check(["sh", "-ec", _START], timeout_s=_CALL_S)


def stop(lab: Lab) -> Seen:
    """What was seen since `start`. Raises GuestError when the kernel could not keep it all."""
    return seen(lab.guest.check(["sh", "-ec", _STOP], timeout_s=_CALL_S))


def seen(trace: str) -> Seen:
    """Read off the kernel's text. Raises GuestError for one with a gap."""
    writes = most = 0
    stores = []
    for line in trace.splitlines():
        if line.startswith("CPU:") and _LOST in line:
            raise GuestError(f"the kernel's trace is not whole: {line}")
        if event := _COUNTED.search(line):
            writes += 1 if event[1] == "begun" else -1
            most = max(most, writes)
        elif told := _STORE.search(line):
            stores.append(Store(told[1], told[2], writes))
    return Seen(tuple(stores), most)
