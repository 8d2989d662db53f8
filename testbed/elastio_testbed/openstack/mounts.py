"""Kernel file systems for the root directory, and a /dev without KVM and disks."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from elastio_testbed.image.tools import run

_TIMEOUT_S = 30
_NODES = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
    "fuse": (10, 229),
}
_LINKS = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}


def mount_all(root: Path) -> None:
    """Mount what is missing. /run is a tmpfs: its files end with the machine or with `unmount_all`."""
    here = set(mounts_below(root))
    for folder, kind, options in (("proc", "proc", ""), ("sys", "sysfs", "ro"), ("run", "tmpfs", "mode=755")):
        if root / folder not in here:
            _mount(kind, root / folder, options)
    if root / "dev" not in here:
        _mount("tmpfs", root / "dev", "mode=755")
        _fill_dev(root / "dev")
    for folder in ("run/lab", "run/mysqld", "run/libvirt", "run/lock/lab"):
        (root / folder).mkdir(parents=True, exist_ok=True)


def unmount_all(root: Path) -> list[Path]:
    """Unmount everything below `root`, with the volumes' bind mounts; returns what is still mounted."""
    for point in reversed(mounts_below(root)):
        run(["umount", "--lazy", str(point)], timeout_s=_TIMEOUT_S)
    return mounts_below(root)


def mounts_below(root: Path) -> list[Path]:
    """Mount points below `root`, outer ones first."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [Path(line.split()[1].encode().decode("unicode_escape")) for line in lines]
    return [point for point in points if root in point.parents]


def _fill_dev(dev: Path) -> None:
    for name, (major, minor) in _NODES.items():
        os.mknod(dev / name, stat.S_IFCHR | 0o666, os.makedev(major, minor))
        (dev / name).chmod(0o666)
    for folder in ("net", "pts", "shm", "hugepages"):
        (dev / folder).mkdir()
    os.mknod(dev / "net/tun", stat.S_IFCHR | 0o666, os.makedev(10, 200))
    _mount("devpts", dev / "pts", "newinstance,ptmxmode=666,gid=5,mode=620")
    _mount("tmpfs", dev / "shm", "mode=1777")
    for name, target in _LINKS.items():
        (dev / name).symlink_to(target)


def _mount(kind: str, target: Path, options: str) -> None:
    target.mkdir(exist_ok=True)
    choice = ["-o", options] if options else []
    run(["mount", "-t", kind, *choice, kind, str(target)], timeout_s=_TIMEOUT_S)
