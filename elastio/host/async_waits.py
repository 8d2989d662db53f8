"""Whether a task that sleeps waits for its requests of libaio or io_uring. From /proc; changes nothing.

A task that waits for such requests is in state S, as if it waited for a network. What tells is the system call that it
sleeps in, the first word of /proc/PID/task/TID/syscall (Documentation/filesystems/proc.rst;
CONFIG_HAVE_ARCH_TRACEHOOK). The file is for the task's user and root (ptrace(2), PTRACE_MODE_ATTACH), with Yama's scope
1 for descendants, which a command's tasks are. A task may sleep there without a request: a pool of idle threads, or a
server on io_uring that waits for its network. So its process must have read or written recently: /proc/PID/io
(CONFIG_TASK_IO_ACCOUNTING), to which the kernel adds when a direct request is submitted. In epoll, poll and select a
task waits for anything; for requests only if its process has such a ring, in /proc/PID/fd or /proc/PID/maps.

Where a file cannot be read, a task that sleeps while its process reads or writes, or may do so, is unclear: who watches
any program, and not one of its own, may say that it counts as asleep (`if_hidden`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum

from elastio.host.sysfs import Sysfs

# io_getevents, io_pgetevents, io_uring_enter; then poll, select, epoll_wait, pselect6, ppoll, epoll_pwait and
# epoll_pwait2. From arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h.
SYSCALLS = {
    "x86_64": (frozenset({208, 333, 426}), frozenset({7, 23, 232, 270, 271, 281, 441})),
    "aarch64": (frozenset({4, 292, 426}), frozenset({22, 72, 73, 441})),
}
# A process that submits nothing for so long has no requests in flight, or only ones that are slower than this.
OF_LATE_S = 1.0
RINGS = ("anon_inode:[io_uring]", "anon_inode:io_uring")
AIO_RING = "/[aio]"


class Sleep(Enum):
    """What a task in state S does."""

    ASLEEP = "asleep"
    PENDING = "pending"
    UNCLEAR = "unclear"


@dataclass(slots=True)
class _Process:
    """What a process has read and written when it was read last, and when that grew; None: it cannot be read."""

    done_bytes: int | None
    grew_at: float | None = None
    read_at: float = -1.0
    ring: bool | None = None
    ring_at: float = -1.0


class AsyncWaits:
    """Remembers of each process what it has read and written."""

    def __init__(self, sysfs: Sysfs, machine: str | None = None, if_hidden: Sleep = Sleep.UNCLEAR) -> None:
        self._sysfs, self._if_hidden = sysfs, if_hidden
        self._known = SYSCALLS.get(machine or os.uname().machine)
        self._processes: dict[int, _Process] = {}

    def sleep_of(self, pid: int, thread: str, at: float) -> Sleep:
        """What this task, which sleeps, waits for, `at` this moment of a monotonic clock."""
        called = self._sysfs.read_or(f"proc/{pid}/task/{thread}/syscall", "").partition(" ")[0]
        if called and self._known is None:
            called = ""
        waits, polls = self._known or (frozenset(), frozenset())
        if called and (not called.isdecimal() or int(called) not in waits | polls):
            return Sleep.ASLEEP
        process = self._read(pid, at)
        if process.done_bytes is not None and (process.grew_at is None or at - process.grew_at > OF_LATE_S):
            return Sleep.ASLEEP
        if not called or process.done_bytes is None:
            return self._if_hidden
        if int(called) in waits:
            return Sleep.PENDING
        return Sleep.UNCLEAR if self._has_ring(pid, process, at) else Sleep.ASLEEP

    def keep(self, pids: frozenset[int], at: float) -> None:
        """Forget the others: a number may belong to another process by and by. What is new is read from now on."""
        self._processes = {pid: self._processes.get(pid) or self._read(pid, at) for pid in pids}

    def _read(self, pid: int, at: float) -> _Process:
        known = self._processes.get(pid)
        if known is not None and known.read_at == at:
            return known
        done = _done_bytes(self._sysfs.read_or(f"proc/{pid}/io", ""))
        if known is None:
            known = self._processes[pid] = _Process(done)
        elif done is not None and known.done_bytes is not None and done > known.done_bytes:
            known.grew_at = at
        known.done_bytes, known.read_at = done, at
        return known

    def _has_ring(self, pid: int, process: _Process, at: float) -> bool:
        """Also where it cannot be read. Read once in a while: it is as long as the process has files and mappings."""
        if process.ring is None or at - process.ring_at > OF_LATE_S:
            process.ring_at = at
            files = self._sysfs.names(f"proc/{pid}/fd")
            has_ring = any((self._sysfs.target(f"proc/{pid}/fd/{name}") or "") in RINGS for name in files)
            process.ring = has_ring or not files or AIO_RING in self._sysfs.read_or(f"proc/{pid}/maps", AIO_RING)
        return process.ring


def _done_bytes(text: str) -> int | None:
    """Bytes that were read and written below the page cache; None: the kernel does not say, or not to us."""
    values = dict(line.split(": ") for line in text.splitlines() if line.count(": ") == 1)
    if not {"read_bytes", "write_bytes"} <= values.keys():
        return None
    return int(values["read_bytes"]) + int(values["write_bytes"])
