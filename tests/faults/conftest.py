"""One guest per module, with a writer of records whose acknowledgements the host knows."""

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
class Target:
    """A guest that faults are injected into. Every wait has the timeout of the lab."""

    lab: Lab
    names: list[str] = field(default_factory=list)
    writers: int = 0

    def start_writer(self) -> None:
        """Start a writer under a new name: the acknowledgements of another one must not count."""
        self.names.append(f"writer{self.writers}")
        self.writers += 1
        self.lab.start_writer(self.names[-1], SEED)

    def boost(self) -> None:
        """Start a boost by command, and wait until a cache is attached."""
        self.lab.guest.check(["elastio", "boost", "--wait"], timeout_s=300)

    @contextmanager
    def dirty_and_idle(self) -> Iterator[None]:
        """Dirty data on the cache and no write in flight: one in flight could trigger a kernel bug on removal.

        The backing volume is slow meanwhile, so that the data is not flushed too early.
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
        """Remove the cache without notice. Returns the id of the volume."""
        volume = self.lab.attached_volume()
        self.lab.cloud.tear_off(volume, self.lab.guest.vm.pull)
        return volume

    def records_lost(self) -> int:
        """How many of the records acknowledged since the last call are lost; the agent is paused for the check."""
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
        """Exit code and output."""
        done = self.lab.guest.vm.agent.run(list(argv), timeout_s=timeout_s)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").strip()

    def intents(self, action: str) -> int:
        """How often the agent has started an action, over all boots."""
        lines = self.lab.guest.vm.agent.read_file(JOURNAL).decode(errors="replace").splitlines()
        records = [json.loads(line) for line in lines if line.endswith("}")]
        return sum(r.get("kind") == "intent" and r.get("action") == action for r in records)

    def state(self) -> str:
        """bcache's state of the backing device."""
        return self.lab.guest.check(["cat", f"/sys/block/{self.lab.guest.backing_device()}/bcache/state"])

    def wait_for(self, condition: Callable[[dict[str, Any]], bool], what: str, seconds: float = 240) -> dict[str, Any]:
        """As `Guest.wait_for`, but a failure shows the agent's status."""
        try:
            return self.lab.guest.wait_for(condition, seconds, what)
        except GuestError as error:
            status = self.lab.guest.status()
            raise GuestError(f"{error}\n{json.dumps(status)}\n{self.lab.console_tail()}") from error


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with scratch_folder("elastio-recovery-") as name, Lab(build_guest_image(), Path(name), SEED) as lab:
        lab.prepare()
        yield Target(lab)
