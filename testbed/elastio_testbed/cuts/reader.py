"""A second guest that puts the copies of a cut machine's disks together and reads every acknowledged record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from elastio_testbed.cuts.writer import RECORDS, install, run_argv, write_spec
from elastio_testbed.hypervisor import HypervisorError, VirtualMachine
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA

BOOT_S, CALL_S, VERIFY_S, UNPLUG_S = 300.0, 120.0, 300.0, 60.0
MEMORY_MIB = 512
# More than an emulated processor moves.
UNCAPPED_BYTES_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Assembly:
    """Scripts: `make` puts the disks together and prints what it has to tell and, last, the device; `undo`."""

    make: str
    undo: str


# udev registers what it finds.
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
    """It has never seen the disks that it is given: they come and go, and it goes itself when one does not let go."""

    def __init__(self, image: GuestImage, folder: Path) -> None:
        self._vm = VirtualMachine(image, directory=folder, memory_mib=MEMORY_MIB)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._vm.close()

    def read(self, images: Mapping[str, Path], assembly: Assembly, spec: Mapping[str, Any]) -> dict[str, Any]:
        """What `appends verify` found, with the assembly's `state`, or the `failure` of a second boot as well.

        `images` by serial; they are written to. Raises nothing for what cannot be read: a cut may have done that.
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
        self._let_go(assembly)
        return {**found, "state": " ".join(state)}

    def _let_go(self, assembly: Assembly) -> None:
        """What was read stands, whatever becomes of the guest."""
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
