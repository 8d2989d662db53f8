"""The guest of the consistency test: the checker and fio on the raw adaptive device, both driven from outside."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from elastio_testbed.faults.fault_target import CALL_S, NOISE, NOISE_MIB
from elastio_testbed.faults.lab import Lab
from elastio_testbed.hypervisor import GuestError, GuestTimeout
from elastio_testbed.machine import DATA, PROGRAMS

SPEC, PACE, REPORT = "/var/tmp/consistency.json", "/var/tmp/consistency.pace", "/var/tmp/consistency.report"
FIO_PASSES, FIO_FAILED = "/var/tmp/fio.passes", "/var/tmp/fio.failed"
MIB = 1 << 20
# Each in a place of its own on the device.
DIRECT_AT, BUFFERED_AT, FIO_AT, BURST_AT_MIB = 64 * MIB, 128 * MIB, 256 * MIB, 512
REGIONS = (
    {"offset": DIRECT_AT, "blocks": 2048, "direct": True, "writers": 2, "readers": 3},
    {"offset": BUFFERED_AT, "blocks": 1024, "direct": False, "writers": 1, "readers": 1},
)
FILL_S, STOP_S, BURST_MIB = 180.0, 300.0, 180
# A pass writes 2 MiB at random and reads it back: too little in a second to be a load by itself.
FIO = (
    "fio --name=verify --filename={device} --offset={offset} --size=2m --rw=randwrite --bs=4k --direct=1"
    " --ioengine=psync --rate_iops=100 --randrepeat=0 --verify=crc32c --do_verify=1 --verify_fatal=1"
    " --verify_state_save=0 --output=/var/tmp/fio.log"
)


class Checker:
    """Checker and fio in the guest of `lab`, whose filesystem gives way to them."""

    def __init__(self, lab: Lab, seed: int, regions: Sequence[Mapping[str, Any]] = REGIONS) -> None:
        self.lab, self.seed, self.regions = lab, seed, regions

    def start(self) -> None:
        """Unmount, put the programs in place, wait until the regions are filled and the first reads are done."""
        guest = self.lab.guest
        guest.check(["umount", DATA], timeout_s=CALL_S)
        device = f"/dev/{self.lab.device()}"
        program = resources.files("elastio_testbed.guest").joinpath("consistency.py").read_bytes()
        guest.vm.agent.write_file(f"{PROGRAMS}/consistency.py", program)
        guest.vm.agent.write_file(SPEC, json.dumps(self._spec(device)).encode())
        self.pace("slow")
        self._run("consistency", f"exec python3 {PROGRAMS}/consistency.py {SPEC}")
        self.lab.wait_until(lambda: self.counts()["reads"] > 0, FILL_S, "the first reads of the checker")
        fio = FIO.format(device=device, offset=FIO_AT)
        self._run("fio-verify", f"while {fio}; do echo pass >> {FIO_PASSES}; done; echo failed > {FIO_FAILED}")

    def _spec(self, device: str) -> dict[str, Any]:
        regions = list(self.regions)
        return {"device": device, "pace": PACE, "report": REPORT, "seed": self.seed, "regions": regions}

    def _run(self, unit: str, script: str) -> None:
        self.lab.guest.check(["systemd-run", "--collect", f"--unit={unit}", "sh", "-c", script], timeout_s=CALL_S)

    def pace(self, word: str) -> None:
        """`full`, `slow` or `stop`."""
        self.lab.guest.vm.agent.write_file(PACE, word.encode())

    def burst(self) -> None:
        """A load that the agent boosts for, beside the checker."""
        self.lab.stop("burst")
        cats = f"for i in $(seq {BURST_MIB // NOISE_MIB}); do cat {NOISE}; done"
        sink = f"dd of=/dev/{self.lab.device()} bs=1M seek={BURST_AT_MIB} iflag=fullblock oflag=direct status=none"
        self._run("burst", f"({cats}) | {sink}")

    def lines(self) -> list[dict[str, Any]]:
        """The report so far."""
        if not self.lab.succeeds("test", "-e", REPORT):
            return []
        text = self.lab.guest.vm.agent.read_file(REPORT).decode()
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def counts(self) -> dict[str, int]:
        """Writes, reads, and wrong reads so far."""
        counted = [line for line in self.lines() if "reads" in line]
        return {name: counted[-1][name] if counted else 0 for name in ("writes", "reads", "wrong")}

    def stop(self) -> dict[str, Any]:
        """End both; what the checker found in motion and at rest, and how many passes of fio went through.

        Raises GuestError when the checker itself failed, and GuestTimeout when it does not end.
        """
        passes = self._count(FIO_PASSES)
        failed = self.lab.succeeds("test", "-e", FIO_FAILED)
        self.lab.stop("fio-verify")
        self.pace("stop")
        self.lab.wait_until(lambda: any("done" in line for line in self.lines()), STOP_S, "the checker's last sweep")
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


def dwell(checker: Checker, reads: int, seconds: float) -> None:
    """Wait until so many more reads are done, for at most that long."""
    wanted, end = checker.counts()["reads"] + reads, time.monotonic() + seconds
    while checker.counts()["reads"] < wanted:
        if time.monotonic() > end:
            raise GuestTimeout(f"the checker did fewer than {reads} reads in {seconds:.0f} s")
        time.sleep(1.0)
