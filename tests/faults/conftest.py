"""One guest for a module, with a writer of records whose acknowledgements the host knows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.faults import acks
from elastio_testbed.faults.consistency import SLOWER
from elastio_testbed.faults.fault_actions import make_dirty
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import build_guest_image
from elastio_testbed.scratch import scratch_folder
from elastio_testbed.trial import JOURNAL

SEED = 1


@dataclass
class Patient:
    """A guest that something is done to. Every wait is bounded by the lab's own."""

    lab: Lab
    names: list[str] = field(default_factory=list)
    lives: int = 0

    def start_writer(self) -> None:
        """Under a name that no writer had before: what was acknowledged to another would count as this one's."""
        self.names.append(f"life{self.lives}")
        self.lives += 1
        self.lab.start_writer(self.names[-1], SEED)

    def boost(self) -> None:
        """Until a cache is attached, without a load of its own."""
        self.lab.guest.check(["elastio", "boost", "--wait"], timeout_s=300)

    @contextmanager
    def dirty_and_still(self) -> Iterator[None]:
        """Dirty data on the cache, and no write on its way to it: one that is can trip the kernel when the cache dies.

        The backing volume is slow meanwhile, so that the data is not flushed before the caller has come to it.
        """
        guest = self.lab.guest
        make_dirty(self.lab)
        guest.vm.set_limit(guest.serial, guest.cap_bytes_s // SLOWER)
        try:
            for unit in ("records", "burst"):
                self.lab.stop(unit)
            guest.check(["sync"], timeout_s=120)
            assert self.state() == "dirty"
            yield
        finally:
            guest.vm.set_limit(guest.serial, guest.cap_bytes_s)

    def tear_off(self) -> str:
        """The id of the volume that is no longer a disk of the guest."""
        volume = self.lab.attached_volume()
        self.lab.cloud.tear_off(volume, self.lab.guest.vm.pull)
        return volume

    def records_lost(self) -> int:
        """Of all that were acknowledged since the last look; read back past the page cache, the agent paused."""
        lab = self.lab
        lab.stop_writer()
        lab.guest.check(["elastio", "pause"], timeout_s=90)
        known = acks.read(lab.records)
        found = [lab.verify(name, SEED, known.get(name, 0)) for name in self.names]
        lab.guest.check(["elastio", "resume"], timeout_s=90)
        assert sum(each["checked"] for each in found) > 0
        self.names.clear()
        lab.forget_records()
        return sum(int(each["lost"]) for each in found)

    def run(self, *argv: str, timeout_s: float = 120) -> tuple[int, str]:
        """Exit code, and everything it said."""
        done = self.lab.guest.vm.agent.run(list(argv), timeout_s=timeout_s)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").strip()

    def intents(self, action: str) -> int:
        """How often the agent has begun an action, over all boots."""
        lines = self.lab.guest.vm.agent.read_file(JOURNAL).decode(errors="replace").splitlines()
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return sum(r.get("kind") == "intent" and r.get("action") == action for r in records)

    def state(self) -> str:
        """bcache's state of the backing device."""
        return self.lab.guest.check(["cat", f"/sys/block/{self.lab.guest.disk_name()}/bcache/state"])

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], what: str, seconds: float = 240) -> dict[str, Any]:
        """As the guest's own, and a failure shows where the agent stands."""
        try:
            return self.lab.guest.wait_for(condition, seconds, what)
        except GuestError as error:
            stands = self.lab.guest.status()
            raise GuestError(f"{error}\n{json.dumps(stands)}\n{self.lab.console_tail()}") from error


@pytest.fixture(scope="module")
def patient() -> Iterator[Patient]:
    with scratch_folder("elastio-recovery-") as name, Lab(build_guest_image(), Path(name), SEED) as lab:
        lab.prepare()
        yield Patient(lab)
