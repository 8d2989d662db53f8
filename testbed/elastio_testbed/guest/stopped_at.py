"""Run a command of elastio up to its N-th change, and stop there: `stopped_at.py N FILE ARGUMENT...`.

A change is a program that is run, an fsync, a write to a block device or to a file below /sys, an ioctl, or a file that
is renamed or removed. Before the N-th one the command stops, and its processes are in FILE, so that the laboratory can
cut the power or kill it there: a write by a child stops both. A command with fewer changes ends as usual. `tombstone
write|remove`, which is no command, moves the first sectors of the adopted volume as the agent does.
"""

from __future__ import annotations

import fcntl
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

MODULES = "/usr/share/elastio"
# Programs that only read.
READING = ("blkid", "wipefs", "dumpe2fs", "e2fsck", "xfs_logprint", "xfs_repair", "btrfs", "cryptsetup", "lvs", "pvs")


def main(number: int, file: str, arguments: list[str]) -> None:
    """Stop before the change `number`, counted from 0."""
    seen, command_id = 0, os.getpid()

    def counted(work: Callable[..., Any], is_change: Callable[..., bool]) -> Callable[..., Any]:
        def change(*args: Any, **options: Any) -> Any:
            nonlocal seen
            if is_change(*args):
                if seen == number:
                    processes = sorted({command_id, os.getpid()})  # a child comes last
                    pathlib.Path(file).write_text(" ".join(map(str, processes)))
                    for process_id in processes:
                        os.kill(process_id, signal.SIGSTOP)
                seen += 1
            return work(*args, **options)

        return change

    os.fsync = counted(os.fsync, lambda fd: not is_synchronous(fd))
    for name in ("pwritev", "unlink", "replace", "rename"):
        setattr(os, name, counted(getattr(os, name), lambda *_: True))
    in_sys = counted(os.write, lambda fd, *_: os.readlink(f"/proc/self/fd/{fd}").startswith("/sys/"))
    setattr(os, "write", in_sys)  # noqa: B010  mypy knows better types
    setattr(fcntl, "ioctl", counted(fcntl.ioctl, lambda *_: True))  # noqa: B010
    programs = counted(subprocess.run, lambda argv, *_: argv[0] not in READING)
    setattr(subprocess, "run", programs)  # noqa: B010

    sys.path.insert(0, MODULES)
    if arguments[0] == "tombstone":
        move(arguments[1])
        return
    from elastio_cli.main import main as command  # noqa: PLC0415  on the path from here on

    sys.argv = ["elastio", *arguments]
    command()


def is_synchronous(descriptor: int) -> bool:
    """What was written is durable without an fsync."""
    return bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DSYNC)


def move(what: str) -> None:
    from elastio.host import composed, recompose  # noqa: PLC0415
    from elastio.host.sysfs import Sysfs, wait_for  # noqa: PLC0415

    sysfs = Sysfs()
    (device,) = composed.all_of(sysfs)
    work = {"write": recompose.write_tombstone, "remove": recompose.remove_tombstone}[what]
    work(sysfs, device, wait_for)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
