"""What happens in a guest just before its state is stored, and first of all in each copy.

A program waits in the stored guest, loaded and blocked on a pipe. In a copy it reads the time and 64 random bytes of
the host from there, which takes no time: a program that is started then needs a second under emulation, in which
others could draw the bytes that all copies draw. Programs that ran when the state was stored have no random bytes in
stock, as Debian's draw them from the kernel, except for hash keys.

Linux's random(4) describes the requests: RNDADDENTROPY mixes bytes into the pool and credits them, but the generators
of the processors continue with their keys; RNDRESEEDCRNG lets all of them take new keys from the pool.
"""

import os
import struct
import time

from elastio_testbed.hypervisor.errors import GuestError
from elastio_testbed.hypervisor.qemu.agent import GuestAgent

_PIPE = "/run/elastio-wake"
# The first random bytes and UUID after that: evidence that two copies draw different ones.
DRAWN = "/run/elastio-drawn"
_ENTROPY_BYTES = 64
_MESSAGE = f"<q{_ENTROPY_BYTES}s"
_REST_S, _WAKE_S = 120.0, 60.0
# The clock of the host in nanoseconds, and entropy. rand_pool_info: bits of entropy, bytes, the bytes.
PROGRAM = f"""
import fcntl, os, struct, time
random = os.open("/dev/urandom", os.O_RDWR)
os.mkfifo("{_PIPE}", 0o600)
pipe = os.open("{_PIPE}", os.O_RDONLY)
now, entropy = struct.unpack("{_MESSAGE}", os.read(pipe, {8 + _ENTROPY_BYTES}))
time.clock_settime_ns(time.CLOCK_REALTIME, now)
fcntl.ioctl(random, 0x40085203, struct.pack("ii", 8 * len(entropy), len(entropy)) + entropy)
fcntl.ioctl(random, 0x5207)
with open("/proc/sys/kernel/random/uuid") as uuid, open("{DRAWN}", "w") as drawn:
    drawn.write(os.read(random, 16).hex() + " " + uuid.read())
os.unlink("{_PIPE}")
"""
# A degraded system is at rest, too. Without a page cache the state is half as large.
_REST = f"""
systemctl is-system-running --wait > /dev/null
until [ -p {_PIPE} ]; do sleep 0.1; done
udevadm settle
sync
echo 3 > /proc/sys/vm/drop_caches
"""
# An NVMe disk pads its serial, which `read` strips, and has no size at first. Each program would take a tenth of a
# second in a guest that was just resumed.
_SHOWN = """
is_shown() {
    for disk in /sys/block/*; do
        serial= size=0
        for file in $disk/serial $disk/device/serial; do [ ! -r $file ] || read -r serial < $file; done
        read -r size < $disk/size
        [ "$serial" = "$1" ] && [ "$size" != 0 ] && [ -b /dev/${disk##*/} ] && return
    done
    return 1
}
until is_shown "$0"; do sleep 0.1; done
udevadm settle
"""


def lull(agent: GuestAgent) -> int:
    """Bring a booted guest to rest. Returns the PID of the program that waits in it."""
    waiting = agent.spawn(["python3", "-S", "-c", PROGRAM])
    agent.check(["sh", "-c", _REST], timeout_s=_REST_S)
    return waiting


def wake(agent: GuestAgent, waiting: int) -> None:
    """Give a copy the time and entropy. Raises GuestError."""
    agent.wait_ready(_WAKE_S)
    # The guest's memory of the pipe is that of the agent, which writes without starting a program.
    agent.feed(_PIPE, lambda: struct.pack(_MESSAGE, time.time_ns(), os.urandom(_ENTROPY_BYTES)))
    done = agent.wait(waiting, _WAKE_S)
    if done is None or done.returncode != 0:
        said = "it does not answer" if done is None else done.stderr.decode(errors="replace").strip()
        raise GuestError(f"the program that waits in the stored guest failed: {said}")


def await_disk(agent: GuestAgent, serial: str, timeout_s: float) -> None:
    """Wait until the guest shows a disk that was plugged. Raises GuestTimeout."""
    agent.check(["sh", "-c", _SHOWN, serial], timeout_s=timeout_s)
