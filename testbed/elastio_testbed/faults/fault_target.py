"""A guest that faults are injected into, in any cloud: its load, acknowledged records, triggers and waits."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from elastio_testbed.faults import acks
from elastio_testbed.faults.kinds import Trigger
from elastio_testbed.hypervisor import GuestTimeout
from elastio_testbed.machine import DATA, PROGRAMS, Guest
from elastio_testbed.polling import until
from elastio_testbed.trial import JOURNAL

RECORDS_PORT, TRIGGER_PORT = "org.elastio.records", "org.elastio.triggers"
RECORDS = f"{DATA}/records"
RECORDS_SPEC, TRIGGER_SPEC = "/var/tmp/records.json", "/var/tmp/trigger.json"
NOISE, NOISE_MIB = "/var/tmp/noise", 20
BURST_MIB = 180  # enough for a boost and a flush of some seconds each
PAUSE_S = 0.05  # between two records, so that they are too little load to keep a boost
CALL_S, REST_S = 60.0, 600.0
# The attach timeout of the agent: the default of 180 s would only prolong a run.
DEADLINE_S = 45


class FaultTarget(ABC):
    """`records` and `triggers` are the host's ends of the guest's two ports.

    Every method has a timeout and raises GuestError or a subclass.
    """

    def __init__(self, guest: Guest, records: Path, triggers: Path, *, burst_mib: int = BURST_MIB) -> None:
        self.guest, self.records, self.triggers, self.burst_mib = guest, records, triggers, burst_mib

    @abstractmethod
    def settle(self, seconds: float) -> None:
        """Wait until no volume is between two states."""

    @abstractmethod
    def leaked(self) -> tuple[str, ...]:
        """Volumes in the cloud and foreign disks in the machine that should have been released."""

    def install(self) -> None:
        """Install programs and noise, and stop the recorder of experiments."""
        self.stop("recorder")
        for name in ("records", "journal_trigger"):
            program = resources.files("elastio_testbed.guest").joinpath(f"{name}.py").read_bytes()
            self.guest.vm.agent.write_file(f"{PROGRAMS}/{name}.py", program)
        self.guest.check(["dd", "if=/dev/urandom", f"of={NOISE}", "bs=1M", f"count={NOISE_MIB}"], timeout_s=CALL_S)

    # --- load and records --------------------------------------------------------------------------------------

    def start_writer(self, name: str, seed: int) -> None:
        """Write records under a new name until `stop_writer` or an error of the device."""
        port = f"/dev/virtio-ports/{RECORDS_PORT}"
        spec = {"directory": RECORDS, "name": name, "seed": seed, "port": port, "pause_s": PAUSE_S}
        spec["kernel_log"] = "/dev/kmsg"
        self.guest.vm.agent.write_file(RECORDS_SPEC, json.dumps(spec).encode())
        self._start("records", "python3", f"{PROGRAMS}/records.py", "write", RECORDS_SPEC)
        self.wait_until(lambda: name in acks.read(self.records), 120, f"the first record of {name}")

    def writer_runs(self) -> bool:
        return self.succeeds("systemctl", "is-active", "--quiet", "records")

    def stop_writer(self) -> None:
        self.stop("records")

    def burst(self) -> None:
        """Write as fast as the device allows, in the background, over the file of the last burst."""
        self.stop("burst")
        cats = f"for i in $(seq {self.burst_mib // NOISE_MIB}); do cat {NOISE}; done"
        sink = f"dd of={DATA}/burst bs=1M iflag=fullblock conv=fsync status=none"
        self._start("burst", "sh", "-c", f"({cats}) | {sink}")

    def burst_runs(self) -> bool:
        return self.succeeds("systemctl", "is-active", "--quiet", "burst")

    def verify(self, name: str, seed: int, acknowledged: int) -> dict[str, Any]:
        """Read the records of a writer back from the device. The agent has to be paused: reads are a load."""
        spec = {"directory": RECORDS, "name": name, "seed": seed, "acknowledged": acknowledged}
        self.guest.vm.agent.write_file(RECORDS_SPEC, json.dumps(spec).encode())
        self.guest.check(["sync"], timeout_s=120)
        self.guest.check(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], timeout_s=CALL_S)
        text = self.guest.check(["python3", f"{PROGRAMS}/records.py", "verify", RECORDS_SPEC], timeout_s=600)
        found: dict[str, Any] = json.loads(text)
        return found

    def forget_records(self) -> None:
        """Delete the verified records."""
        self.guest.check(["rm", "-rf", RECORDS], timeout_s=CALL_S)

    def _start(self, unit: str, *command: str) -> None:
        self.guest.check(["systemd-run", "--collect", f"--unit={unit}", *command], timeout_s=CALL_S)

    def stop(self, unit: str) -> None:
        """Stop a unit, whether it runs or not."""
        self.guest.vm.agent.run(["systemctl", "stop", unit], timeout_s=120)
        self.guest.vm.agent.run(["systemctl", "reset-failed", unit], timeout_s=CALL_S)

    # --- triggers ----------------------------------------------------------------------------------------------

    def arm(self, trigger: Trigger, *, kill: bool, corrupt: str = "") -> int:
        """Have the guest watch for the trigger. Returns the argument for `wait_for_trigger`.

        With `kill` the guest kills the daemon at the trigger. With `corrupt` it makes that file unparsable and kills
        the daemon with all its processes.
        """
        self.stop("trigger")
        seen, ready = acks.count_lines(self.triggers, "triggered"), acks.count_lines(self.triggers, "ready")
        port = f"/dev/virtio-ports/{TRIGGER_PORT}"
        spec = {"journal": JOURNAL, "port": port, "kind": trigger.kind, "what": trigger.what}
        spec["do"] = "kill" if kill else "report"
        if corrupt:
            spec |= {"do": "kill all", "corrupt": corrupt}
        self.guest.vm.agent.write_file(TRIGGER_SPEC, json.dumps(spec).encode())
        self._start("trigger", "python3", f"{PROGRAMS}/journal_trigger.py", TRIGGER_SPEC)
        self.wait_until(lambda: acks.count_lines(self.triggers, "ready") > ready, 120, "the watch for the trigger")
        return seen

    def wait_for_trigger(self, seen: int, seconds: float) -> bool:
        """Whether the trigger came in time. Only a file of the host is polled: the guest is not disturbed."""
        return until(lambda: acks.count_lines(self.triggers, "triggered") > seen, seconds, 0.02)

    # --- the device ----------------------------------------------------------------------------------------------

    def device(self) -> str:
        """The name of the adaptive device, empty while there is none."""
        script = f"basename $(readlink /sys/block/{self.guest.backing_device()}/bcache/dev) 2>/dev/null; true"
        return self.guest.check(["sh", "-c", script])

    def takes_writes(self) -> bool:
        """Whether the mounted device takes a durable write within a minute."""
        script = f"mountpoint -q {DATA} && echo x > {DATA}/probe && sync {DATA}/probe"
        try:
            return self.succeeds("sh", "-c", script)
        except GuestTimeout:
            return False

    # --- waiting -------------------------------------------------------------------------------------------------

    def succeeds(self, *argv: str) -> bool:
        return self.guest.vm.agent.run(list(argv), timeout_s=CALL_S).returncode == 0

    def console_tail(self) -> str:
        """The last lines on the guest's console."""
        return self.guest.vm.console_tail()

    def wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll until the condition holds. Raises GuestTimeout."""
        if not until(condition, seconds):
            raise GuestTimeout(f"waited {seconds:.0f} s for {what}\n{self.console_tail()}")

    def wait_for_agent(self, seconds: float = 240.0) -> None:
        """Wait until the agent has recovered its phase and reports no fault."""
        self.guest.wait_for(lambda s: s["recovered"] and s["phase"] != "faulted", seconds, "the agent to recover")

    def wait_for_rest(self, seconds: float = REST_S) -> None:
        """Wait until no cycle is open, no burst runs, and the cloud has settled."""
        self.wait_until(lambda: not self.burst_runs(), seconds, "the burst to end")
        self.guest.wait_for(is_at_rest, seconds, "the agent to be idle")
        self.settle(60)


def is_at_rest(status: dict[str, Any]) -> bool:
    """No cycle is open, and the cloud lists no volume of this agent; those of another device are that one's."""
    is_own = [not volume["backing_uuid"] for volume in status["owned"] or ()]
    return status["phase"] == "idle" and status["cycle"] is None and status["owned"] is not None and not any(is_own)
