"""The number of writes in flight when a cache was attached or bypassed, from kprobes in the guest's kernel.

The probes are on the functions with which bcache accounts its requests, and on the one that stores the attributes of a
backing device. Polling would miss these instants. No other driver of the guest uses these functions: bcache is the only
bio-based one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError

# Enough for some minutes of writes.
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
    """A write to an attribute in sysfs, and the number of requests that were in flight: `writes`."""

    attribute: str
    value: str
    writes: int

    @property
    def is_switch(self) -> bool:
        """Whether the path of requests changes: a cache is attached or bypassed."""
        return self.attribute == "attach" or (self.attribute, self.value) == ("cache_mode", "none")


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything written to the attributes, in order, and the highest number of writes in flight."""

    stores: tuple[Store, ...]
    most_writes: int


def start(lab: Lab) -> None:
    """Start the trace. No write may be in flight. Raises GuestError."""
    lab.guest.check(["sh", "-ec", _START], timeout_s=_CALL_S)


def stop(lab: Lab) -> Trace:
    """The trace since `start`. Raises GuestError if the kernel's buffer overflowed."""
    return parse(lab.guest.check(["sh", "-ec", _STOP], timeout_s=_CALL_S))


def parse(trace: str) -> Trace:
    """Parse the kernel's text. Raises GuestError for one with a gap."""
    writes = most = 0
    stores = []
    for line in trace.splitlines():
        if line.startswith("CPU:") and _LOST in line:
            raise GuestError(f"the kernel's trace has a gap: {line}")
        if event := _COUNTED.search(line):
            writes += 1 if event[1] == "begun" else -1
            most = max(most, writes)
        elif found := _STORE.search(line):
            stores.append(Store(found[1], found[2], writes))
    return Trace(tuple(stores), most)
