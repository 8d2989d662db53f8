"""Waits for a record of the agent's journal and acts at once: `journal_trigger.py SPEC`.

SPEC is a JSON file: `journal`, `port`, `kind` (intent, outcome, decision), `what` (an action, or for a decision the
phase it leads to) and `do`: `report` to the host, `kill` the daemon first, or `kill all` its processes. With `corrupt`,
that TOML file is made unparsable before. With the kind `limit` the program waits until the requests of some cgroup are
throttled; `what` is the name of the kernel's file. From outside the guest none of this would be fast enough.
A line `ready` goes to the port once no record can be missed any more, and `triggered KIND WHAT` afterwards.
"""

import glob
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

POLL_S = 0.005
# All processes of the unit at once: those that it forked could go on where only the first is killed.
CGROUP_KILL = "/sys/fs/cgroup/system.slice/elastiod.service/cgroup.kill"


def matches(line: bytes, kind: str, what: str) -> bool:
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


def wait_for_record(descriptor: int, journal: str, kind: str, what: str) -> None:
    """Wait for a record. A new journal is read from its start."""
    rest = b""
    inode = os.fstat(descriptor).st_ino
    while True:
        rest += os.read(descriptor, 1 << 16)
        *lines, rest = rest.split(b"\n")
        if any(matches(line, kind, what) for line in lines):
            return
        if not lines:
            time.sleep(POLL_S)
            if os.stat(journal).st_ino != inode:
                os.close(descriptor)
                descriptor, rest = os.open(journal, os.O_RDONLY), b""
                inode = os.fstat(descriptor).st_ino


def wait_for_limit(name: str, root: str = "/sys/fs/cgroup") -> None:
    """Until a cgroup below the root one has a limit for some device."""
    while not any(read(path) for path in glob.glob(f"{root}/*/{name}")):
        time.sleep(POLL_S)


def read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:  # the cgroup is gone
        return ""


def daemon() -> int:
    asked = subprocess.run(
        ["systemctl", "show", "--property=MainPID", "--value", "elastiod"], capture_output=True, check=True
    )
    return int(asked.stdout)


def act(spec: dict[str, Any], pid: int) -> None:
    if "corrupt" in spec:
        with open(spec["corrupt"], "w") as file:
            file.write("[device\n")
    if spec["do"] == "kill":
        os.kill(pid, signal.SIGKILL)
    elif spec["do"] == "kill all":
        with open(spec.get("cgroup_kill", CGROUP_KILL), "w") as file:
            file.write("1")
    send(spec["port"], f"triggered {spec['kind']} {spec['what']}")


def send(port: str, line: str) -> None:
    descriptor = os.open(port, os.O_WRONLY)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


def main() -> None:
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    pid = daemon() if spec["do"] == "kill" else 0
    descriptor = at_end(spec["journal"])
    send(spec["port"], "ready")
    if spec["kind"] == "limit":
        wait_for_limit(spec["what"])
    else:
        wait_for_record(descriptor, spec["journal"], spec["kind"], spec["what"])
    act(spec, pid)


if __name__ == "__main__":
    main()
