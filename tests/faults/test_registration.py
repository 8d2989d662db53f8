"""The kernel dies if it lacks the memory to register a cache; the agent does not let it come to that.

The control registers as bcache-tools does, and loses the machine: without it, a kernel that was mended, or a memory
that is not fragmented enough, would go unnoticed. On user-mode Linux, where the kernel's end is the machine's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import UML, GuestError, Machine, define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import new_disk
from elastio_testbed.polling import until
from elastio_testbed.scratch import scratch_folder

pytestmark = pytest.mark.guest

SERIAL, DISK_BYTES, MEMORY_MIB = "vol0123456789abcdef0", 5 << 30, 768
LEFT_MIB = (24, 16, 12, 10, 8, 6)
END = "for set in /sys/fs/bcache/*-*; do [ ! -e $set ] || echo 1 > $set/unregister; done; sleep 1"
BOOT_S, WAIT_S = 300, 120
# Takes all memory but LEFT MiB, and keeps it where it is.
TAKE = """
import ctypes, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
with open("/proc/sys/vm/compact_unevictable_allowed", "w") as file:
    file.write("0")
with open("/proc/sys/vm/drop_caches", "w") as file:
    file.write("3")
with open("/proc/meminfo") as file:
    free = next(int(line.split()[1]) for line in file if line.startswith("MemFree")) << 10
size = free - (int(sys.argv[1]) << 20)
taken = libc.mmap(None, ctypes.c_size_t(size), 3, 0x22, -1, ctypes.c_long(0))
if libc.mlock(ctypes.c_void_p(taken), ctypes.c_size_t(size)):
    sys.exit("mlock failed")
open("/run/taken", "w").close()
signal.pause()
"""
AGENT = "import sys; sys.path.insert(0, '/usr/share/elastio')\n"
MAKE = f"""{AGENT}
import uuid
from elastio.errors import HostError
from elastio.host import blockdev, cache_disk, superblock
from elastio.host.sysfs import Sysfs, wait_for
kernel, name = Sysfs(), uuid.uuid4()
disk = blockdev.find(kernel, "{SERIAL}")
try:
    cache_disk.make(kernel, disk, name, 512)
    cache_disk.register(kernel, disk, str(name), wait_for, 10)
    print(superblock.read(disk.node).bucket_size_bytes)
except HostError as error:
    print(error.code)
"""


@pytest.fixture
def vm() -> Iterator[Machine]:
    with scratch_folder("elastio-registration-") as name:
        folder = Path(name)
        disks = [new_disk(folder, SERIAL, DISK_BYTES)]
        image, place = build_guest_image(), folder / "vm"
        with define_machine(image, disks=disks, hypervisor=UML, directory=place, memory_mib=MEMORY_MIB) as machine:
            machine.start(BOOT_S)
            # udev registers what it sees.
            sh(machine, "systemctl stop systemd-udevd-kernel.socket systemd-udevd-control.socket systemd-udevd")
            sh(machine, "modprobe bcache")
            for program, text in (("take", TAKE), ("make", MAKE)):
                machine.agent.write_file(f"/run/{program}.py", text.encode())
            yield machine


def sh(vm: Machine, script: str, timeout_s: float = WAIT_S) -> str:
    return vm.agent.check(["sh", "-c", script], timeout_s=timeout_s)


def node(vm: Machine) -> str:
    return sh(vm, f"lsblk -dnpo NAME,SERIAL | awk '$2 == \"{SERIAL}\" {{ print $1 }}'").strip()


@contextmanager
def all_taken_but(vm: Machine, left_mib: int) -> Iterator[None]:
    options = "-p OOMScoreAdjust=-1000 -p LimitMEMLOCK=infinity"
    sh(vm, f"systemd-run -q --collect --unit=take {options} python3 /run/take.py {left_mib}")
    assert until(lambda: vm.agent.run(["test", "-e", "/run/taken"], timeout_s=WAIT_S).returncode == 0, WAIT_S)
    yield
    sh(vm, "systemctl stop take; rm /run/taken")


def test_a_registration_without_memory_ends_the_kernel(vm: Machine) -> None:
    with pytest.raises(GuestError):
        register_with_ever_less_memory(vm)
    assert not vm.alive


def register_with_ever_less_memory(vm: Machine) -> None:
    disk = node(vm)
    for left_mib in LEFT_MIB:
        sh(vm, f"wipefs -aq {disk}; make-bcache -C --bucket 512k {disk}")
        with all_taken_but(vm, left_mib):
            sh(vm, f"echo {disk} > /sys/fs/bcache/register || true; sleep 2")
        sh(vm, END)


def test_the_agent_makes_the_buckets_smaller_and_then_refuses(vm: Machine) -> None:
    disk, found = node(vm), []
    for left_mib in LEFT_MIB:
        with all_taken_but(vm, left_mib):
            found.append(sh(vm, "python3 /run/make.py").strip())
        sh(vm, f"{END}; dd if=/dev/zero of={disk} bs=64K count=1 oflag=direct status=none")
    assert vm.alive
    assert "memory.fragmented" in found
    assert any(of.isdecimal() and int(of) < 512 << 10 for of in found)
