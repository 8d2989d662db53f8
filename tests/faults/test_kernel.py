"""The behaviour of bcache when its cache fails, without an agent: the flaw that safety.md describes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import Disk, Machine, define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.polling import until
from elastio_testbed.scratch import scratch_folder

pytestmark = pytest.mark.guest

BACKING_BYTES, CACHE_BYTES = 2 << 30, 1 << 30
SECTORS = CACHE_BYTES // 512
BLOCK = 4096
DURABLE_AT, IN_FLIGHT_AT = 1 << 20, 2 << 20
# Longer than the test, so that only an fsync writes the journal.
JOURNAL_DELAY_MS = 60_000
WAIT_S = 60
# One block is durable; another is written, and its fsync begins once the file `go` exists, a second fsync once `again`
# does. Each step is printed when it is made: that the first fsync waits for the journal is part of the proof.
WRITER = f"""
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
block = mmap.mmap(-1, {BLOCK})
def put(byte, at):
    block[:] = byte * {BLOCK}
    os.pwrite(fd, block, at)
put(b"D", {DURABLE_AT})
os.fdatasync(fd)
put(b"F", {IN_FLIGHT_AT})
open("/run/written", "w").close()
for go in ("/run/go", "/run/again"):
    deadline = time.monotonic() + {WAIT_S}
    while not os.path.exists(go):
        if time.monotonic() > deadline:
            sys.exit("there is no " + go)
        time.sleep(0.05)
    print("begun", flush=True)
    try:
        os.fdatasync(fd)
        print("success", flush=True)
    except OSError as error:
        print(error.strerror, flush=True)
"""


class Bench:
    """A guest with bcache on two disks; the cache is behind a device-mapper target that can be made to fail."""

    def __init__(self, vm: Machine) -> None:
        self.vm = vm
        self.backing, self.cache = self._disk("backing"), self._disk("cache")

    def sh(self, script: str) -> str:
        return self.vm.agent.check(["sh", "-c", script], timeout_s=120)

    def _disk(self, serial: str) -> str:
        return self.sh(f"basename $(dirname $(grep -lx {serial} /sys/block/*/serial))")

    def assemble(self) -> None:
        self.sh("systemctl stop elastiod; modprobe -a bcache dm-mod")
        self.sh(f"elastio device create /dev/{self.backing} --yes")
        self.sh(f"dmsetup create front --table '0 {SECTORS} linear /dev/{self.cache} 0'")
        self.sh("make-bcache -C -w 512 -b 512k /dev/mapper/front")
        self.register("/dev/mapper/front")
        cache_set = "/sys/fs/bcache/*-*"
        self.wait_until(lambda: self.succeeds(f"test -d {cache_set}"), "the cache set")
        folder = f"/sys/block/{self.backing}/bcache"
        self.sh(
            f"set -e; echo writeback > {folder}/cache_mode; basename {cache_set} > {folder}/attach;"
            f"echo 0 > {folder}/sequential_cutoff; echo 0 > {folder}/writeback_running;"
            f"echo {JOURNAL_DELAY_MS} > $(echo {cache_set})/journal_delay_ms"
        )

    def register(self, device: str) -> None:
        """Register a device. An error means that udev has done so already."""
        self.sh(f"echo {device} > /sys/fs/bcache/register || true")

    def suspend(self) -> None:
        """Suspend requests to the cache."""
        self.sh("dmsetup suspend --noflush --nolockfs front")

    def resume(self, target: str) -> None:
        """Resume them with another target."""
        self.sh(f"dmsetup load front --table '0 {SECTORS} {target}' && dmsetup resume front")

    def output(self) -> list[str]:
        """The lines of the writer so far."""
        return self.sh("cat /run/output").split("\n")

    def succeeds(self, condition: str) -> bool:
        return self.vm.agent.run(["sh", "-c", condition], timeout_s=60).returncode == 0

    def is_writer_blocked(self) -> bool:
        """Whether the writer has begun an fsync and waits in the kernel for it, uninterruptibly."""
        state = "grep -q '^State:.*D' /proc/$(systemctl show -P MainPID writer)/status"
        return self.output() == ["begun"] and self.succeeds(state)

    def wait_until(self, condition: Callable[[], bool], what: str, seconds: float = WAIT_S) -> None:
        assert until(condition, seconds), f"{what}: not within {seconds:.0f} s\n{self.vm.console_tail()}"

    def byte_at(self, position: int) -> str:
        read = f"dd if=/dev/bcache0 bs={BLOCK} count=1 skip={position // BLOCK} iflag=direct status=none"
        return self.sh(f"{read} | head -c 1 | tr '\\0' 0")


@pytest.fixture
def bench() -> Iterator[Bench]:
    with scratch_folder("elastio-kernel-") as name:
        disks = []
        for serial, size_bytes in (("backing", BACKING_BYTES), ("cache", CACHE_BYTES)):
            path = Path(name) / serial
            with path.open("wb") as file:
                file.truncate(size_bytes)
            disks.append(Disk(serial, path, None))
        with define_machine(build_guest_image(), disks=disks, memory_mib=1024) as vm:
            vm.start(240)
            made = Bench(vm)
            made.assemble()
            yield made


def test_an_fsync_whose_journal_could_not_be_written_is_acknowledged_and_lost(bench: Bench) -> None:
    """If this fails, the kernel was fixed, and safety.md can promise more."""
    bench.vm.agent.write_file("/run/writer.py", WRITER.encode())
    bench.sh("systemd-run --unit=writer -p StandardOutput=file:/run/output python3 /run/writer.py /dev/bcache0")
    bench.wait_until(lambda: bench.succeeds("test -e /run/written"), "the blocks to be written")
    bench.suspend()
    bench.sh("touch /run/go")
    bench.wait_until(bench.is_writer_blocked, "the fsync to wait for the journal")
    assert bench.output() == ["begun"]
    bench.resume("error")
    bench.wait_until(lambda: bench.succeeds("dmesg | grep -q bch_cache_set_error"), "the cache set to fail")
    bench.wait_until(lambda: len(bench.output()) == 2, "the first answer")
    bench.sh("touch /run/again")
    bench.wait_until(lambda: len(bench.output()) == 4, "the second answer")
    assert bench.output() == ["begun", "success", "begun", "Input/output error"]

    bench.wait_until(lambda: not bench.succeeds("test -e /sys/block/bcache0"), "the device to be stopped")
    bench.suspend()
    bench.resume(f"linear /dev/{bench.cache} 0")
    for device in ("/dev/mapper/front", f"/dev/{bench.backing}"):
        bench.register(device)
    bench.wait_until(lambda: bench.succeeds("test -e /dev/bcache0"), "the device to appear")
    assert bench.byte_at(DURABLE_AT) == "D"
    assert bench.byte_at(IN_FLIGHT_AT) == "0"
