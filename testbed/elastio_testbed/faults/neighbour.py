"""A second adaptive device of the guest, with an agent of its own, which boosts while faults strike the first one.

A fault of the machine, or of the cloud, concerns both. One of the first agent, or of its cache, must not reach the
second. So records and volumes of both count.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastio_testbed.ec2 import Ec2Endpoint
from elastio_testbed.faults import acks
from elastio_testbed.faults.fault_target import CALL_S, DEADLINE_S, NOISE, PAUSE_S, REST_S, is_at_rest
from elastio_testbed.hypervisor import GuestTimeout
from elastio_testbed.machine import MAKE_FILESYSTEM, PROGRAMS, Guest, config_text, new_disk
from elastio_testbed.polling import until

NAME, SERIAL, PLACE = "b", "vm0neighbour", "/neighbour"
PORT = "org.elastio.neighbour"
WRITER, BURST, SPEC = "records-b", "burst-b", "/var/tmp/records-b.json"
RECORDS = f"{PLACE}/records"
# Enough for a boost and a flush of some seconds each; two bursts share the guest's processors.
PARTS = 6
# The option of a command that names the first device, beside which this one is.
FIRST_DEVICE = ("--device", "elastio")


class Neighbour:
    """`records`: the host's end of the port. Every method has a timeout and raises GuestError or a subclass."""

    def __init__(self, guest: Guest, folder: Path, records: Path) -> None:
        self.guest, self.records = guest, records
        self.disk = new_disk(folder, SERIAL, guest.scaled.backing_bytes)
        self.writers: list[str] = []

    def prepare(self, cloud: Ec2Endpoint) -> None:
        """Make the device, its filesystem and its configuration, and start its agent."""
        guest, vm = self.guest, self.guest.vm
        vm.plug(SERIAL, self.disk.path, bytes_per_second=guest.scaled.cache_bytes_s)
        vm.set_limit(SERIAL, None)
        self._wait_until(lambda: self._succeeds("sh", "-c", f"grep -qx {SERIAL} /sys/block/*/serial"), 60, "the disk")
        disk = guest.disk_name(SERIAL)
        guest.check(["elastio", "device", "create", f"/dev/{disk}", "--yes"], timeout_s=120)
        guest.check([*MAKE_FILESYSTEM["ext4"], f"/dev/{self._adaptive()}"], timeout_s=120)
        uuid = f'"{guest.check(["cat", f"/sys/block/{disk}/bcache/backing_dev_uuid"])}"'
        tables = guest.config_tables(cloud)
        text = config_text(tables, {"device": {"backing_uuid": uuid}, "policy": {"attach_timeout_s": DEADLINE_S}})
        vm.agent.write_file(f"/etc/elastio/{NAME}.toml", text.encode(), 0o640)
        self.mount()
        guest.check(["systemctl", "enable", "--now", f"elastiod@{NAME}"], timeout_s=120)
        guest.check(["systemctl", "reload", "elastiod"], timeout_s=CALL_S)  # it learns of this device
        vm.set_limit(SERIAL, guest.cap_bytes_s)

    def mount(self) -> None:
        """Mount the adaptive device once it exists."""
        self._wait_until(lambda: self._adaptive() != "", 240, "the neighbour's adaptive device")
        if not self._succeeds("mountpoint", "-q", PLACE):
            script = f"mkdir -p {PLACE} && mount /dev/{self._adaptive()} {PLACE}"
            self.guest.check(["sh", "-c", script], timeout_s=120)

    def start(self, name: str, seed: int) -> None:
        """Write records under this name, and a burst, in the background."""
        self.forget()
        self.writers = [name]
        port = f"/dev/virtio-ports/{PORT}"
        spec = {"directory": RECORDS, "name": name, "seed": seed, "port": port, "pause_s": PAUSE_S}
        self.guest.vm.agent.write_file(SPEC, json.dumps(spec | {"kernel_log": "/dev/kmsg"}).encode())
        self._run_in_background(WRITER, "python3", f"{PROGRAMS}/records.py", "write", SPEC)
        self._wait_until(lambda: name in acks.read(self.records), 120, f"the first record of {name}")
        cats = f"for i in $(seq {PARTS}); do cat {NOISE}; done"
        sink = f"dd of={PLACE}/burst bs=1M iflag=fullblock conv=fsync status=none"
        self._run_in_background(BURST, "sh", "-c", f"({cats}) | {sink}")

    def writer_runs(self) -> bool:
        return self._succeeds("systemctl", "is-active", "--quiet", WRITER)

    def wait_for_rest(self, seconds: float = REST_S) -> None:
        """Wait until its burst is over, and nothing of its cache is left."""
        self._wait_until(lambda: not self._succeeds("systemctl", "is-active", "--quiet", BURST), seconds, "its burst")
        self.guest.wait_for(is_at_rest, seconds, "the neighbour to be idle", device=NAME)

    def verify(self, seed: int) -> tuple[dict[str, Any], ...]:
        """Read its acknowledged records back from the device; a writer that runs is stopped."""
        self._stop(WRITER)
        known = acks.read(self.records)
        return tuple(self._verified(name, seed, known.get(name, 0)) for name in self.writers)

    def _verified(self, name: str, seed: int, acknowledged: int) -> dict[str, Any]:
        spec = {"directory": RECORDS, "name": name, "seed": seed, "acknowledged": acknowledged}
        self.guest.check(["elastio", "pause", "--device", NAME], timeout_s=90)
        self.guest.vm.agent.write_file(SPEC, json.dumps(spec).encode())
        self.guest.check(["sync"], timeout_s=120)
        self.guest.check(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], timeout_s=CALL_S)
        text = self.guest.check(["python3", f"{PROGRAMS}/records.py", "verify", SPEC], timeout_s=600)
        self.guest.check(["elastio", "resume", "--device", NAME], timeout_s=90)
        found: dict[str, Any] = json.loads(text)
        return found

    def forget(self) -> None:
        """Stop what writes, and delete the verified records."""
        for unit in (WRITER, BURST):
            self._stop(unit)
        self.guest.check(["rm", "-rf", RECORDS], timeout_s=CALL_S)

    # --- the guest ---------------------------------------------------------------------------------------------

    def _adaptive(self) -> str:
        script = f"basename $(readlink /sys/block/{self.guest.disk_name(SERIAL)}/bcache/dev) 2>/dev/null; true"
        return self.guest.check(["sh", "-c", script])

    def _succeeds(self, *argv: str) -> bool:
        return self.guest.vm.agent.run(list(argv), timeout_s=CALL_S).returncode == 0

    def _run_in_background(self, unit: str, *command: str) -> None:
        self.guest.check(["systemd-run", "--collect", f"--unit={unit}", *command], timeout_s=CALL_S)

    def _stop(self, unit: str) -> None:
        self.guest.vm.agent.run(["systemctl", "stop", unit], timeout_s=120)
        self.guest.vm.agent.run(["systemctl", "reset-failed", unit], timeout_s=CALL_S)

    def _wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        if not until(condition, seconds):
            raise GuestTimeout(f"waited {seconds:.0f} s for {what}\n{self.guest.vm.console_tail()}")
