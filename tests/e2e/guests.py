"""What the tests of machines share: constants, and small programs in the guest."""

from __future__ import annotations

import time
from pathlib import Path

from elastio_testbed.hypervisor import Machine, Programs

BOOT_DISK = "volaaaaaaaaaaaaaaaa0"
HOT_DISK = "vol0123456789abcdef0"
BOOT_S, COMMAND_S, UNPLUG_S = 300, 60, 30
MB = 1_000_000


def volume(folder: Path, name: str, size_mib: int = 512) -> Path:
    path = folder / name
    with path.open("wb") as file:
        file.truncate(size_mib << 20)
    return path


def device_of(agent: Programs, serial: str) -> str:
    """Wait for the device node of the disk with that serial: at first it has no size or no node."""
    script = """cd /sys/block; for disk in *; do
        cat $disk/serial $disk/device/serial 2>/dev/null | grep -q "$0" || continue
        [ $(cat $disk/size) != 0 ] && [ -b /dev/$disk ] && echo /dev/$disk
    done; true"""
    deadline = time.monotonic() + COMMAND_S
    while time.monotonic() < deadline:
        device = agent.check(["sh", "-c", script, serial], timeout_s=COMMAND_S)
        if device:
            return device
    raise AssertionError(f"no disk {serial} in the guest")


def shell(vm: Machine, script: str) -> str:
    return vm.agent.check(["sh", "-c", script], timeout_s=COMMAND_S)


def register(vm: Machine, device: str, kind: str) -> None:
    """Write a superblock, `-B` or `-C`, and have udev register it.

    udev is told of the device: soon after boot it does not watch the node yet, and misses that make-bcache closed it.
    """
    found = f"udevadm trigger --settle --action=change --name-match={device}"
    shell(vm, f"modprobe bcache && make-bcache {kind} {device} && {found}")


def measured_s(vm: Machine, argv: list[str]) -> float:
    script = "s=$(date +%s.%N); \"$@\" 2>/dev/null; echo $(date +%s.%N) $s | awk '{print $1 - $2}'"
    return float(vm.agent.check(["sh", "-c", script, "sh", *argv], timeout_s=COMMAND_S))
