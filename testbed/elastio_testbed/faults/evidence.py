"""What is kept of a run that lost a record or went wrong: enough to tell what happened, and to run it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from elastio_testbed.faults.fault_target import CALL_S
from elastio_testbed.faults.lab import Lab
from elastio_testbed.faults.run_result import RunResult
from elastio_testbed.hypervisor import HypervisorError

# Of each file, its end: a kernel that goes on complaining must not fill the disk.
MOST_BYTES = 1 << 20
# Asked of the guest, as far as it still answers.
QUESTIONS: Mapping[str, list[str]] = {
    "agent.log": ["journalctl", "--no-pager", "-u", "elastiod", "-o", "short-precise"],
    "kernel.log": ["journalctl", "--no-pager", "-k", "-o", "short-monotonic"],
    "records.log": ["journalctl", "--no-pager", "-u", "records", "-o", "short-precise"],
    "journal.jsonl": ["cat", "/var/lib/elastio/journal.jsonl"],
    "status.json": ["python3", "-S", "/opt/testbed/status_probe.py"],
    "bcache.txt": ["sh", "-c", "grep -rs . /sys/block/*/bcache/{state,cache_mode,running,dirty_data}; lsblk; mount"],
    "tasks.txt": ["sh", "-c", "ps -eo pid,stat,wchan:32,args | grep -v ' S ' | head -50"],
}


def folder_of(result: RunResult, seed: int) -> str:
    """Named by what plays the run again: `--seed SEED --only NUMBER`."""
    return f"{'lost' if result.lost_records else 'failed'}-{seed}-{result.planned.number}"


def keep(folder: Path, lab: Lab, result: RunResult) -> None:
    """Write it all to `folder`. A guest that does not answer leaves a sentence in place of each answer."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "story.json").write_text(json.dumps(result.as_dict(), indent=2, default=str) + "\n")
    (folder / "cloud.jsonl").write_text(
        "".join(json.dumps(entry.as_dict(), default=str) + "\n" for entry in lab.cloud.log.entries())
    )
    volumes = [volume.as_dict() for volume in lab.cloud.volumes()]
    (folder / "volumes.json").write_text(json.dumps(volumes, indent=2, default=str) + "\n")
    for path in (lab.guest.vm.console, lab.records, lab.triggers):
        if path.exists():
            (folder / path.name).write_bytes(_end_of(path.read_bytes()))
    for name, question in QUESTIONS.items():
        (folder / name).write_text(_answer(lab, question))


def _answer(lab: Lab, question: list[str]) -> str:
    try:
        done = lab.guest.vm.agent.run(question, timeout_s=CALL_S)
    except HypervisorError as error:
        return f"no answer: {error}\n"
    return _end_of(done.stdout + done.stderr).decode(errors="replace")


def _end_of(said: bytes) -> bytes:
    return said[-MOST_BYTES:]
