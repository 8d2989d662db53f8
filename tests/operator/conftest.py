"""What an operator meets once in a while, in guests: `make operator`. The tests of a file share one guest."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from elastio_testbed.faults import acks
from elastio_testbed.faults.fault_target import NOISE
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.machine import DATA, Guest
from elastio_testbed.polling import until
from tests.faults.conftest import Target
from tests.faults.conftest import target as target  # noqa: PLC0414  the fixture

RECORDS = 25
LOADED_S = 180.0
APT = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y")
APT_S = 900.0
BLOCK = 4096


def succeed(target: Target, *argv: str, timeout_s: float = 120) -> str:
    """Standard output and errors of a command that has to succeed. Raises GuestError."""
    code, output = target.run(*argv, timeout_s=timeout_s)
    if code:
        raise GuestError(f"{' '.join(argv)}: exit code {code}: {output}")
    return output


def shell(target: Target, script: str, timeout_s: float = 120) -> str:
    return succeed(target, "sh", "-c", script, timeout_s=timeout_s)


def copy_in(guest: Guest, file: Path, place: str, folder: Path) -> None:
    """Copy a file of the host into the guest, over a disk: megabytes take long over the guest agent's channel.

    The image of the disk is made in `folder`.
    """
    size, serial = file.stat().st_size, "copied"
    padded = folder / "copied.img"
    shutil.copyfile(file, padded)
    with padded.open("r+b") as image:
        image.truncate(-(-size // BLOCK) * BLOCK)
    guest.vm.plug(serial, padded, bytes_per_second=10**9)
    listed = ["sh", "-c", f"grep -qx {serial} /sys/block/*/serial"]
    assert until(lambda: guest.vm.agent.run(listed, timeout_s=60).returncode == 0, 60), (
        "the guest does not see the disk"
    )
    guest.check(["sh", "-c", f"head -c {size} /dev/{guest.disk_name(serial)} > {place}"], timeout_s=60)
    guest.vm.unplug(serial, 60)


def load(lab: Lab) -> None:
    """Begin a load that keeps a boost, and leaves the processor to others in between, until `end_load`."""
    write = f"while :; do dd if={NOISE} of={DATA}/burst bs=1M oflag=direct status=none; sleep 0.2; done"
    lab.guest.check(["systemd-run", "--collect", "--unit=burst", "sh", "-c", write])


def boost_with_records(target: Target) -> str:
    """Write records under a load, until some of them were acknowledged by a cache that is dirty. The writer's name.

    Writer and load go on.
    """
    lab = target.lab
    target.start_writer()
    load(lab)
    name = target.names[-1]
    wait_for_dirty(lab, lambda: acks.read(lab.records).get(name, 0))
    return name


def wait_for_dirty(lab: Lab, acknowledged: Callable[[], int]) -> None:
    """Wait until the cache is dirty, and RECORDS more were acknowledged since it is."""
    first: list[int] = []

    def has_enough() -> bool:
        seen = lab.guest.status()
        is_dirty = seen["phase"] == "boosting" and seen["backing"]["dirty_bytes"] > 0
        number = acknowledged()
        if is_dirty and not first:
            first.append(number)
        return is_dirty and number >= first[0] + RECORDS

    lab.wait_until(has_enough, LOADED_S, f"{RECORDS} records in a dirty cache")


def end_load(lab: Lab) -> None:
    """Stop writer and load, and wait until all is flushed and released."""
    for unit in ("records", "burst"):
        lab.stop(unit)
    lab.wait_for_rest()
