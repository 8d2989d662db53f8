"""A second guest that assembles the copies of a cut machine's disks and reads every acknowledged record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from elastio_testbed.cuts.writer import RECORDS, install, run_argv, write_spec
from elastio_testbed.hypervisor import HypervisorError, define_machine
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA

BOOT_S, CALL_S, VERIFY_S, UNPLUG_S = 300.0, 120.0, 300.0, 60.0
MEMORY_MIB = 512
# Faster than an emulated processor.
UNCAPPED_BYTES_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Assembly:
    """Scripts: `make` assembles the disks and prints the state and, on the last line, the device; `undo` reverts it."""

    make: str
    undo: str


# udev registers the disks.
ADAPTIVE = Assembly(
    make="""
for i in $(seq 120); do [ -e /sys/block/bcache0/bcache/state ] && break; sleep 0.5; done
cat /sys/block/bcache0/bcache/state
echo /dev/bcache0
""",
    undo="""
echo 1 > /sys/block/bcache0/bcache/stop
for set in /sys/fs/bcache/*-*; do [ ! -d $set ] || echo 1 > $set/stop; done
for i in $(seq 120); do ls /sys/fs/bcache/ /sys/block/ | grep -qe '-.*-' -e '^bcache' || exit 0; sleep 0.5; done
exit 1
""",
)


class Reader:
    """A guest whose disks are plugged for each reading, and which is restarted if one of them cannot be unplugged."""

    def __init__(self, image: GuestImage, folder: Path) -> None:
        self._vm = define_machine(image, directory=folder, memory_mib=MEMORY_MIB)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._vm.close()

    def read(self, images: Mapping[str, Path], assembly: Assembly, spec: Mapping[str, Any]) -> dict[str, Any]:
        """The result of `appends verify` with the assembly's `state`, or `failure` if two attempts failed.

        `images` by serial; they are written to. Copies that cannot be read raise nothing: that may be the cut's effect.
        """
        try:
            return self._read(images, assembly, spec)
        except HypervisorError:
            self._discard()
        try:
            return self._read(images, assembly, spec)
        except HypervisorError as error:
            self._discard()
            return {"failure": str(error)}

    def _read(self, images: Mapping[str, Path], assembly: Assembly, spec: Mapping[str, Any]) -> dict[str, Any]:
        if not self._vm.alive:
            self._vm.start(BOOT_S)
            install(self._vm.agent)
        agent = self._vm.agent
        for serial, path in images.items():
            self._vm.plug(serial, path, bytes_per_second=UNCAPPED_BYTES_S)
        agent.check(["udevadm", "settle"], timeout_s=CALL_S)
        *state, device = agent.check(["sh", "-ec", assembly.make], timeout_s=CALL_S).split("\n")
        agent.check(["mkdir", "-p", DATA], timeout_s=CALL_S)
        agent.check(["mount", device, DATA], timeout_s=CALL_S)
        write_spec(agent, {**spec, "directory": RECORDS})
        found: dict[str, Any] = json.loads(agent.check(run_argv("verify"), timeout_s=VERIFY_S))
        self._release(assembly)
        return {**found, "state": " ".join(state)}

    def _release(self, assembly: Assembly) -> None:
        """Disassemble and unplug, or discard the guest: the result is valid in either case."""
        try:
            self._vm.agent.check(["umount", DATA], timeout_s=CALL_S)
            self._vm.agent.check(["sh", "-c", assembly.undo], timeout_s=CALL_S)
            for serial in self._vm.disks():
                self._vm.unplug(serial, UNPLUG_S)
        except HypervisorError:
            self._discard()

    def _discard(self) -> None:
        self._vm.kill()
        for serial in self._vm.disks():
            self._vm.unplug(serial, UNPLUG_S)
