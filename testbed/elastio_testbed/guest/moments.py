"""Waits for a record of the agent's journal and acts in that instant: `moments.py SPEC`.

SPEC, a JSON file: `journal`, `port`, `kind` (intent, outcome, decision), `what` (an action, or for a decision the phase
it leads to), `do` (`tell` the host, or `kill` the daemon first). From outside the guest nobody would be quick enough.
A line `ready` goes to the port once nothing can be missed any more, and `moment KIND WHAT` when it has come.
"""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

POLL_S = 0.005


def fits(line: bytes, kind: str, what: str) -> bool:
    try:
        record = json.loads(line)
    except ValueError:
        return False
    if not isinstance(record, dict) or record.get("kind") != kind:
        return False
    if kind != "decision":
        return record.get("action") == what
    return record.get("to") == what != record.get("from")


def at_end(journal: str) -> int:
    """A descriptor from which only what is written from now on is read."""
    descriptor = os.open(journal, os.O_RDONLY)
    os.lseek(descriptor, 0, os.SEEK_END)
    return descriptor


def wait_for(descriptor: int, journal: str, kind: str, what: str) -> None:
    """A journal that begins anew is read from its begin."""
    rest = b""
    inode = os.fstat(descriptor).st_ino
    while True:
        rest += os.read(descriptor, 1 << 16)
        *lines, rest = rest.split(b"\n")
        if any(fits(line, kind, what) for line in lines):
            return
        if not lines:
            time.sleep(POLL_S)
            if os.stat(journal).st_ino != inode:
                os.close(descriptor)
                descriptor, rest = os.open(journal, os.O_RDONLY), b""
                inode = os.fstat(descriptor).st_ino


def daemon() -> int:
    asked = subprocess.run(
        ["systemctl", "show", "--property=MainPID", "--value", "elastiod"], capture_output=True, check=True
    )
    return int(asked.stdout)


def act(spec: dict[str, Any], pid: int) -> None:
    if spec["do"] == "kill":
        os.kill(pid, signal.SIGKILL)
    tell(spec["port"], f"moment {spec['kind']} {spec['what']}")


def tell(port: str, line: str) -> None:
    descriptor = os.open(port, os.O_WRONLY)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def main() -> None:
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    pid = daemon() if spec["do"] == "kill" else 0
    descriptor = at_end(spec["journal"])
    tell(spec["port"], "ready")
    wait_for(descriptor, spec["journal"], spec["kind"], spec["what"])
    act(spec, pid)


if __name__ == "__main__":
    main()
