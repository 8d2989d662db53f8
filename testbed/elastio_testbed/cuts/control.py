"""The negative control: dm-writecache, which loses records that one fsync had made durable.

On an SSD it ignores FUA (writecache_map_write in drivers/md/dm-writecache.c): a filesystem's commit record, written
with FUA after the flush, is on the cache volume, but its metadata is not. The next flush, or one second, repairs that.
Only a block that is not in the cache yet is lost; `EMPTY` removes the journal that mkfs left in the cache. The loss
occurs with ext4 on Debian 12; with xfs on Debian 13 nothing was lost. The control proves that the harness detects a
loss, so it does not depend on the options of the test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from elastio_testbed.console import Say
from elastio_testbed.cuts.cut_result import CutResult
from elastio_testbed.cuts.cutter import Cutter, read_back
from elastio_testbed.cuts.plan import PlannedCut
from elastio_testbed.cuts.power import PowerStrip
from elastio_testbed.cuts.reader import BOOT_S, Assembly, Reader
from elastio_testbed.cuts.writer import CALL_S, PORT
from elastio_testbed.hypervisor import define_machine
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA, MAKE_FILESYSTEM, new_disk

SLOW_BYTES, FAST_BYTES = 1 << 30, 1 << 28
BLOCK = 4096
NAME = "control"
SUITE, FILESYSTEM = "bookworm", "ext4"
# Creates and reassembles: an empty cache volume gets a superblock, an existing superblock is used.
WRITECACHE = Assembly(
    make=f"""
disk() {{ basename $(dirname $(grep -lx $1 /sys/block/*/serial)); }}
modprobe -a dm-mod dm-writecache
dmsetup create front --table \\
  "0 {SLOW_BYTES // 512} writecache s /dev/$(disk slow) /dev/$(disk fast) {BLOCK} 0"
echo /dev/mapper/front
""",
    undo="dmsetup remove front",
)
EMPTY = ("dmsetup", "message", "front", "0", "flush")


def results(image: GuestImage, cuts: Sequence[PlannedCut], seed: int, folder: Path, say: Say) -> Iterator[CutResult]:
    """Yield the result of each cut, in guests of an image of SUITE. Raises HypervisorError."""
    records = folder / "records.port"
    disks = [new_disk(folder, "slow", SLOW_BYTES), new_disk(folder, "fast", FAST_BYTES)]
    with (
        PowerStrip() as strip,
        Reader(image, folder / "reader") as reader,
        define_machine(image, disks=disks, directory=folder / "vm", ports={PORT: records}, power=strip) as vm,
    ):
        say("booting the control")
        vm.start(BOOT_S)
        device = vm.agent.check(["sh", "-ec", WRITECACHE.make], timeout_s=CALL_S).split("\n")[-1]
        vm.agent.check([*MAKE_FILESYSTEM[FILESYSTEM], device], timeout_s=CALL_S)
        vm.agent.check(["mkdir", "-p", DATA], timeout_s=CALL_S)
        vm.agent.check(["mount", device, DATA], timeout_s=CALL_S)
        vm.agent.check(["sync"], timeout_s=CALL_S)
        vm.agent.check(EMPTY, timeout_s=CALL_S)
        cutter = Cutter(vm, strip, records, folder / "copies", seed)
        cutter.start_writer(NAME)
        for cut in cuts:
            say(str(cut))
            yield read_back(reader, cutter.take(cut, NAME), WRITECACHE, seed)
