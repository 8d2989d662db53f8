"""The agent and its guard are killed while the write is in flight that decides whether a volume has its tombstone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from elastio_testbed.adoption import RECOGNIZE
from tests.operator.test_adopt import REACHED, SMALL, SMALL_DISKS, TOMBSTONE, Adopted
from tests.operator.test_adopt import guest as guest  # noqa: PLC0414  the fixture

pytestmark = pytest.mark.guest

OPPOSITE = {"write": "remove", "remove": "write"}
# With it, a write of 4 KiB takes a quarter of a minute.
SLOW_BYTES_S = 256
IN_FLIGHT = "awk '{ exit !$2 }' /sys/block/${V#/dev/}/inflight"
PF_MEMALLOC_NOIO = 1 << 19  # of the flags in proc_pid_stat(5)
# The first sector decides.
HAS_TOMBSTONE = "head -c 8 $V | grep -qx elastio: && echo yes; true"
KILL = "pkill -KILL -f [s]topped_at.py"
SUSPENDED = "dmsetup info --noheadings -c -o suspended $(dmsetup ls | grep -o '^elastio-[^[:space:]]*')"


@pytest.fixture(scope="module")
def composed(guest: Adopted) -> Iterator[Adopted]:
    found = Adopted(guest.vm, SMALL_DISKS)
    found.make("ext4")
    found.adopt()
    yield found
    found.release()


def decides(composed: Adopted, what: str) -> int:
    """The number of the change that decides. The tombstone is there, or not, as before."""
    before, number = composed.shell(HAS_TOMBSTONE), 0
    while True:
        assert composed.stop_before(number + 1, f"tombstone {what}"), "nothing has changed at its end"
        has_changed = composed.shell(HAS_TOMBSTONE) != before
        composed.run(f"{KILL}; elastio free")  # or its guard was faster
        if has_changed:
            composed.shell(f"{TOMBSTONE} {OPPOSITE[what]}")
            return number
        number += 1


@pytest.mark.parametrize("what", OPPOSITE)
def test_requests_wait_until_that_write_has_ended_and_go_where_it_says(composed: Adopted, what: str) -> None:
    if what == "remove":
        composed.shell(f"{TOMBSTONE} write")
    assert composed.stop_before(decides(composed, what), f"tombstone {what}")
    flags = composed.shell(f"cut -d ' ' -f 9 /proc/$(cat {REACHED})/stat")
    assert int(flags) & PF_MEMALLOC_NOIO, "it may wait for a request to the device that it has suspended"
    composed.shell("pkill -STOP -f [s]topped_at.py")  # the guard, which does not wait for so long
    composed.vm.set_limit(SMALL, SLOW_BYTES_S)
    composed.shell("dd if=$V of=/dev/null bs=4k count=1 iflag=direct status=none")  # the next request has to wait
    continued = f"kill -CONT $(cat {REACHED}); until {IN_FLIGHT}; do sleep 0.05; done; sleep 0.5; {IN_FLIGHT}"
    composed.shell(f"{continued} && {KILL}")
    code, said = composed.run("elastio free")
    assert (code != 0, composed.shell(f"{IN_FLIGHT} && {SUSPENDED}")) == (True, "Suspended"), said
    composed.vm.set_limit(SMALL, None)
    composed.shell(f"while {IN_FLIGHT}; do sleep 0.1; done; elastio free")
    assert composed.shell(SUSPENDED) == "Active"
    has_tombstone = composed.shell(RECOGNIZE) == ""
    assert has_tombstone == (what == "write")
    composed.require_same(is_composed=True, has_tombstone=has_tombstone)
