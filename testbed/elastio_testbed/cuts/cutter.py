"""Cuts the power of a machine's disks right after an acknowledgement; the machine itself keeps running."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.cuts import writer
from elastio_testbed.cuts.cut_result import CutResult
from elastio_testbed.cuts.plan import PlannedCut
from elastio_testbed.cuts.power import PowerStrip
from elastio_testbed.cuts.reader import Assembly, Reader
from elastio_testbed.faults import acks
from elastio_testbed.hypervisor import GuestTimeout, Machine
from elastio_testbed.polling import until

ACK_S, POLL_S = 120.0, 0.002
# Between two records: long enough for a cut while the writer is idle, and too little load for a boost.
PAUSE_S = 0.4


@dataclass(frozen=True, slots=True)
class CutCopies:
    """The copies of one cut by the serials of the disks, and the number of records acknowledged before."""

    planned: PlannedCut
    name: str
    acknowledged: int
    folder: Path
    images: Mapping[str, Path]
    taken_bytes: int


class Cutter:
    """`records` is the host's end of the writer's port; copies are in `folder` until they are read."""

    def __init__(self, vm: Machine, strip: PowerStrip, records: Path, folder: Path, seed: int) -> None:
        self._vm, self._strip, self._records, self._folder, self._seed = vm, strip, records, folder, seed

    def start_writer(self, name: str) -> None:
        """Start appending under a new name. Raises GuestTimeout if nothing is acknowledged."""
        writer.install(self._vm.agent)
        writer.start(self._vm.agent, name, self._seed, PAUSE_S)
        self._next_ack(name)

    def stop_writer(self) -> None:
        writer.stop(self._vm.agent)

    def silence_writer(self) -> None:
        """Let the writer write no more; its records stay."""
        writer.silence(self._vm.agent)

    def take(self, planned: PlannedCut, name: str) -> CutCopies:
        """Cut after the next acknowledgement. Raises GuestTimeout if there is none."""
        return self._cut(planned, name, self._next_ack(name))

    def take_silent(self, planned: PlannedCut, name: str) -> CutCopies:
        """Cut now; the writer is silent."""
        return self._cut(planned, name, self._last_ack(name))

    def _cut(self, planned: PlannedCut, name: str, known: int) -> CutCopies:
        folder = self._folder / f"{planned.phase.name.lower()}{planned.number}"
        folder.mkdir(parents=True)
        files = self._vm.files()
        images = {serial: folder / f"{serial}.img" for serial in files}
        targets = {files[serial]: image for serial, image in images.items()}
        taken_bytes = self._strip.cut(targets, planned.survival, planned.seed)
        return CutCopies(planned, name, known, folder, images, taken_bytes)

    def _last_ack(self, name: str) -> int:
        return acks.read(self._records).get(name, 0)

    def _next_ack(self, name: str) -> int:
        before = self._last_ack(name)
        if not until(lambda: self._last_ack(name) > before, ACK_S, POLL_S):
            raise GuestTimeout(f"no record was acknowledged within {ACK_S:.0f} s\n{self._vm.console_tail()}")
        return self._last_ack(name)


def read_back(reader: Reader, taken: CutCopies, assembly: Assembly, seed: int) -> CutResult:
    """Read the copies back and delete them."""
    spec = {"name": taken.name, "seed": seed, "acknowledged": taken.acknowledged}
    found = reader.read(taken.images, assembly, spec)
    shutil.rmtree(taken.folder)
    failure = str(found.get("failure", ""))
    return CutResult(
        taken.planned,
        acknowledged=taken.acknowledged,
        lost=tuple(range(1, taken.acknowledged + 1)) if failure else tuple(found["lost"]),
        taken_bytes=taken.taken_bytes,
        disks=len(taken.images),
        state=str(found.get("state", "")),
        failure=failure,
    )
