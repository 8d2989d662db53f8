"""The evidence of a run that lost a record, failed, or missed its trigger: enough to explain it and to repeat it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from elastio_testbed.faults.fault_target import CALL_S
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.hypervisor import HypervisorError

# The end of each file is kept: a kernel that logs endlessly must not fill the disk.
MOST_BYTES = 1 << 20
# Commands to be run in the guest, as far as it still responds.
COMMANDS: Mapping[str, list[str]] = {
    "agent.log": ["journalctl", "--no-pager", "-u", "elastiod", "-u", "elastiod@*", "-o", "short-precise"],
    "kernel.log": ["journalctl", "--no-pager", "-k", "-o", "short-monotonic"],
    "records.log": ["journalctl", "--no-pager", "-u", "records", "-o", "short-precise"],
    "journal.jsonl": ["cat", "/var/lib/elastio/journal.jsonl"],
    "status.json": ["python3", "-S", "/opt/testbed/status_probe.py"],
    "bcache.txt": ["sh", "-c", "grep -rs . /sys/block/*/bcache/{state,cache_mode,running,dirty_data}; lsblk; mount"],
    "network.txt": ["sh", "-c", "networkctl status -a --no-pager; journalctl --no-pager -b -u systemd-networkd"],
    "tasks.txt": ["sh", "-c", "ps -eo pid,stat,wchan:32,args | grep -v ' S ' | head -50"],
}


def folder_of(result: RunResult, seed: int) -> str:
    """The folder's name has the seed and the number that repeat the run: `--seed SEED --only NUMBER`."""
    is_missed = result.is_sound and result.missed
    return f"{'lost' if result.lost_records else 'missed' if is_missed else 'failed'}-{seed}-{result.planned.number}"


def keep(folder: Path, lab: Lab, result: RunResult) -> None:
    """Write the evidence to `folder`. A command that fails leaves its error in place of its output."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "result.json").write_text(json.dumps(result.as_dict(), indent=2, default=str) + "\n")
    (folder / "cloud.jsonl").write_text(
        "".join(json.dumps(entry.as_dict(), default=str) + "\n" for entry in lab.cloud.log.entries())
    )
    volumes = [volume.as_dict() for volume in lab.cloud.volumes()]
    (folder / "volumes.json").write_text(json.dumps(volumes, indent=2, default=str) + "\n")
    for path in (lab.guest.vm.console, lab.records, lab.triggers):
        if path.exists():
            (folder / path.name).write_bytes(path.read_bytes()[-MOST_BYTES:])
    for name, argv in COMMANDS.items():
        (folder / name).write_text(_output(lab, argv))


def _output(lab: Lab, argv: list[str]) -> str:
    try:
        done = lab.guest.vm.agent.run(argv, timeout_s=CALL_S)
    except HypervisorError as error:
        return f"no response: {error}\n"
    return (done.stdout + done.stderr)[-MOST_BYTES:].decode(errors="replace")
