"""The guest of the consistency test: the checker and fio on the raw adaptive device, controlled from the host."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from elastio.units import MIB
from elastio_testbed.adopted import AdoptedGuest
from elastio_testbed.faults.fault_target import CALL_S, NOISE, NOISE_MIB
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError, GuestTimeout
from elastio_testbed.machine import DATA, PROGRAMS
from elastio_testbed.polling import until

SPEC, SPEED, REPORT = "/var/tmp/consistency.json", "/var/tmp/consistency.speed", "/var/tmp/consistency.report"
FIO_PASSES, FIO_FAILED = "/var/tmp/fio.passes", "/var/tmp/fio.failed"
# Each uses a region of its own on the device.
DIRECT_AT, BUFFERED_AT, FIO_AT, BURST_AT_MIB = 64 * MIB, 128 * MIB, 256 * MIB, 512
REGIONS = (
    {"offset": DIRECT_AT, "blocks": 2048, "direct": True, "writers": 2, "readers": 3},
    {"offset": BUFFERED_AT, "blocks": 1024, "direct": False, "writers": 1, "readers": 1},
)
# Of an adopted volume: the first ones move to its head, where a tombstone takes their place, and back with each cache.
# So few that each is written and read many times a second.
FIRST_BLOCKS = {"offset": 0, "blocks": 32, "direct": True, "writers": 1, "readers": 2}
FILL_S, STOP_S, BURST_MIB = 180.0, 300.0, 180
# A pass writes 2 MiB at random and reads them back, too slowly to count as load.
FIO = (
    "fio --name=verify --filename={device} --offset={offset} --size=2m --rw=randwrite --bs=4k --direct=1"
    " --ioengine=psync --rate_iops=100 --randrepeat=0 --verify=crc32c --do_verify=1 --verify_fatal=1"
    " --verify_state_save=0 --output=/var/tmp/fio.log"
)


class Checker:
    """Checker and fio in the guest of `lab`, in place of its filesystem."""

    def __init__(self, lab: Lab, seed: int, regions: Sequence[Mapping[str, Any]] = REGIONS) -> None:
        self.lab, self.seed, self.regions = lab, seed, regions

    def start(self) -> None:
        """Unmount, install the programs, and wait until the regions are filled and the first reads are done."""
        guest = self.lab.guest
        close = guest.close if isinstance(guest, AdoptedGuest) else f"umount {DATA}"
        guest.check(["sh", "-c", close], timeout_s=CALL_S)
        device = f"/dev/{self.lab.device()}"
        program = resources.files("elastio_testbed.guest").joinpath("consistency.py").read_bytes()
        guest.vm.agent.write_file(f"{PROGRAMS}/consistency.py", program)
        guest.vm.agent.write_file(SPEC, json.dumps(self._spec(device)).encode())
        self.set_speed("slow")
        self._run("consistency", f"exec python3 {PROGRAMS}/consistency.py {SPEC}")
        self.lab.wait_until(lambda: self.counts()["reads"] > 0, FILL_S, "the first reads of the checker")
        fio = FIO.format(device=device, offset=FIO_AT)
        self._run("fio-verify", f"while {fio}; do echo pass >> {FIO_PASSES}; done; echo failed > {FIO_FAILED}")

    def _spec(self, device: str) -> dict[str, Any]:
        regions = list(self.regions)
        return {"device": device, "speed": SPEED, "report": REPORT, "seed": self.seed, "regions": regions}

    def _run(self, unit: str, script: str) -> None:
        self.lab.guest.check(["systemd-run", "--collect", f"--unit={unit}", "sh", "-c", script], timeout_s=CALL_S)

    def set_speed(self, speed: str) -> None:
        """Set the checker to `full`, `slow` or `stop`."""
        self.lab.guest.vm.agent.write_file(SPEED, speed.encode())

    def burst(self) -> None:
        """Write enough beside the checker to start a boost."""
        self.lab.stop("burst")
        cats = f"for i in $(seq {BURST_MIB // NOISE_MIB}); do cat {NOISE}; done"
        sink = f"dd of=/dev/{self.lab.device()} bs=1M seek={BURST_AT_MIB} iflag=fullblock oflag=direct status=none"
        self._run("burst", f"({cats}) | {sink}")

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the report so far."""
        if not self.lab.succeeds("test", "-e", REPORT):
            return []
        text = self.lab.guest.vm.agent.read_file(REPORT).decode()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def counts(self) -> dict[str, int]:
        """Writes, reads, and wrong reads so far."""
        counted = [line for line in self.lines() if "reads" in line]
        return {name: counted[-1][name] if counted else 0 for name in ("writes", "reads", "wrong")}

    def stop(self) -> dict[str, Any]:
        """Stop both. Returns what the checker found under load and when idle, and the passes of fio.

        Raises GuestError if the checker itself failed, and GuestTimeout if it does not stop.
        """
        passes = self._count(FIO_PASSES)
        failed = self.lab.succeeds("test", "-e", FIO_FAILED)
        self.lab.stop("fio-verify")
        self.set_speed("stop")
        self.lab.wait_until(lambda: any("done" in line for line in self.lines()), STOP_S, "the checker to stop")
        lines = self.lines()
        last = next(line for line in lines if "done" in line)
        if last["failed"]:
            raise GuestError(f"{last['failed']} processes of the checker failed: {self._log('consistency')}")
        wrong = [line for line in lines if "kind" in line]
        return {**last, "wrong_examples": wrong[:20], "fio_passes": passes, "fio_failed": failed}

    def _count(self, path: str) -> int:
        return int(self.lab.guest.check(["sh", "-c", f"cat {path} 2>/dev/null | wc -l"]))

    def _log(self, unit: str) -> str:
        return self.lab.guest.check(["journalctl", "--no-pager", "-u", unit, "-n", "20", "-o", "cat"])


def wait_for_reads(checker: Checker, reads: int, seconds: float) -> None:
    """Wait for that many more reads. Raises GuestTimeout after `seconds`."""
    wanted = checker.counts()["reads"] + reads
    if not until(lambda: checker.counts()["reads"] >= wanted, seconds, 1.0):
        raise GuestTimeout(f"the checker made fewer than {reads} reads in {seconds:.0f} s")
