"""How many writes a bcache device had in flight when its cache was attached or bypassed, told by the guest's kernel.

A probe on the function that takes what is written to the attributes of a backing device, and the block layer's own
events of the device. Polling from outside would see neither instant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError

# Enough for some minutes of requests, of which only the writes are kept.
BUFFER_KB = 8192
_START = f"""
cd /sys/kernel/tracing
echo {BUFFER_KB} > buffer_size_kb
echo mono > trace_clock
echo 'p:elastio/store bch_cached_dev_store attribute=+0(+0(%si)):string value=+0(%dx):string' > kprobe_events
number=$(cat /sys/block/$0/dev)
for event in block_bio_queue block_bio_complete; do
    echo "dev == $(( (${{number%:*}} << 20) | ${{number#*:}} )) && rwbs ~ \\"*W*\\"" > events/block/$event/filter
    echo 1 > events/block/$event/enable
done
echo 1 > events/elastio/store/enable
echo > trace
"""
_STOP = """
cd /sys/kernel/tracing
cat trace
for event in block/block_bio_queue block/block_bio_complete elastio/store; do echo 0 > events/$event/enable; done
echo > kprobe_events
echo > trace
"""
_CALL_S = 120.0
_BLOCK = re.compile(r"block_bio_(queue|complete): \d+,\d+ (\w+) \d+ \+ (\d+) ")
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


def start(lab: Lab) -> None:
    """From now on, with no write in flight. Raises GuestError."""
    lab.guest.check(["sh", "-ec", _START, lab.device()], timeout_s=_CALL_S)


def stop(lab: Lab) -> tuple[Store, ...]:
    """Everything written to the attributes since `start`. Raises GuestError when the kernel could not keep it all."""
    return tuple(stores(lab.guest.check(["sh", "-ec", _STOP], timeout_s=_CALL_S)))


def stores(trace: str) -> Iterator[Store]:
    """Read off the kernel's text. A flush without data is no write."""
    writes = 0
    for line in trace.splitlines():
        if line.startswith("CPU:") and _LOST in line:
            raise GuestError(f"the kernel's trace is not whole: {line}")
        if (event := _BLOCK.search(line)) and int(event[3]):
            writes += 1 if event[1] == "queue" else -1
        elif told := _STORE.search(line):
            yield Store(told[1], told[2], writes)
