"""Make a blank volume the backing device. Nothing is written before every check has passed."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host import commands
from elastio.host.blockdev import is_mounted_or_swap, run_wipefs
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs
from elastio.units import SECTOR

# The superblock takes 8 KiB; a whole MiB keeps the filesystem behind it aligned as it would be in a partition.
DATA_OFFSET_SECTORS = 2048
MIN_SIZE_BYTES = 64 * 1024 * 1024
UDEV_S = 3.0
APPEAR_S = 15.0
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Blank:
    """A device that passed every check."""

    path: Path  # as it was named
    name: str
    size_bytes: int
    block_size_bytes: int


@dataclass(frozen=True, slots=True)
class Made:
    """The new backing device. `adaptive` is the bcacheN to use from now on."""

    uuid: str
    adaptive: str


def examine(path: Path, sysfs: Sysfs, run: Run = commands.run) -> Blank:
    """Read-only. Raises HostError, DeviceBusyError or NotOursError with the one reason that forbids it."""
    name = _name_of(path)
    directory = f"sys/class/block/{name}"
    if not sysfs.exists(directory):
        raise HostError(f"{path} is not known to the kernel as a block device")
    if sysfs.exists(f"{directory}/partition"):
        raise NotOursError(f"{path} is a partition; give the whole volume")
    if sysfs.read_or(f"{directory}/ro", "0") != "0":
        raise HostError(f"{path} is read-only")
    _require_unused(path, name, directory, sysfs)
    found = run_wipefs(path, run)
    if found:
        raise NotOursError(f"{path} is not blank, it carries {', '.join(found)}; nothing was changed")
    size = int(sysfs.read(f"{directory}/size")) * SECTOR
    if size < MIN_SIZE_BYTES:
        raise HostError(f"{path} has {size} bytes, which is too small to be of use")
    return Blank(path, name, size, int(sysfs.read(f"{directory}/queue/logical_block_size")))


def _name_of(path: Path) -> str:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise HostError(f"{path} cannot be looked at: {error.strerror}") from error
    if not stat.S_ISBLK(mode):
        raise HostError(f"{path} is not a block device")
    return path.resolve().name


def _require_unused(path: Path, name: str, directory: str, sysfs: Sysfs) -> None:
    if is_mounted_or_swap(sysfs, name):
        raise DeviceBusyError(f"{path} is mounted or used as swap; nothing was changed")
    parts = [n for n in sysfs.names(directory) if sysfs.exists(f"{directory}/{n}/partition")]
    if parts:
        raise DeviceBusyError(f"{path} has partitions ({', '.join(parts)}); nothing was changed")
    holders = sysfs.names(f"{directory}/holders")
    if holders or sysfs.exists(f"{directory}/bcache"):
        raise DeviceBusyError(f"{path} is in use by {', '.join(holders) or 'bcache'}; nothing was changed")


def make(
    blank: Blank,
    sysfs: Sysfs,
    run: Run = commands.run,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Made:
    """Write the superblock and wait for bcacheN. Raises HostError; the message says what is left behind.

    The block size is the device's own: a larger one could not carry a filesystem with smaller sectors, and it may
    not be below that of a cache set, which is given this one when it is made.
    """
    run(["modprobe", "bcache"], timeout_s=30)
    argv = ["make-bcache", "-B", "-w", str(blank.block_size_bytes), "--data-offset", str(DATA_OFFSET_SECTORS)]
    text = run([*argv, str(blank.path)], timeout_s=60)
    said = re.search(r"^UUID:\s+([0-9a-f-]{36})$", text, re.MULTILINE)
    if said is None:
        raise HostError(f"make-bcache wrote to {blank.path} and did not say which UUID: see `bcache-super-show`")
    directory = f"sys/class/block/{blank.name}/bcache"
    if not _wait(lambda: sysfs.exists(f"{directory}/backing_dev_uuid"), UDEV_S, sleep, monotonic):
        sysfs.write("sys/fs/bcache/register_quiet", str(blank.path))
    if not _wait(lambda: sysfs.link(f"{directory}/dev") is not None, APPEAR_S, sleep, monotonic):
        raise HostError(
            f"{blank.path} is a backing device now (UUID {said[1]}) and the kernel shows no /dev/bcacheN for it "
            f"after {APPEAR_S:.0f} s: see `dmesg`"
        )
    shown = sysfs.read(f"{directory}/backing_dev_uuid")
    if shown != said[1]:
        raise HostError(f"the kernel shows UUID {shown} for {blank.path} and make-bcache wrote {said[1]}")
    return Made(said[1], sysfs.link(f"{directory}/dev") or "")


def _wait(
    condition: Callable[[], bool], seconds: float, sleep: Callable[[float], None], monotonic: Callable[[], float]
) -> bool:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() >= deadline:
            return False
        sleep(POLL_S)
    return True
