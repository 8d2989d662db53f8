"""Control of the writer of appends in a guest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from elastio_testbed.hypervisor import Programs
from elastio_testbed.machine import DATA, PROGRAMS

SPEC, RECORDS, UNIT = "/var/tmp/appends.json", f"{DATA}/records", "appends"
PORT = "org.elastio.records"
CALL_S = 120.0


def install(agent: Programs) -> None:
    """Install the program and what it imports."""
    for name in ("__init__", "records", "appends"):
        program = resources.files("elastio_testbed.guest").joinpath(f"{name}.py").read_bytes()
        agent.write_file(f"{PROGRAMS}/elastio_testbed/guest/{name}.py", program)


def run_argv(word: str) -> list[str]:
    """The command to `write` or `verify` with the spec that was written last."""
    return ["env", f"PYTHONPATH={PROGRAMS}", "python3", "-m", "elastio_testbed.guest.appends", word, SPEC]


def write_spec(agent: Programs, spec: Mapping[str, Any]) -> None:
    agent.write_file(SPEC, json.dumps(spec).encode())


def start(agent: Programs, name: str, seed: int, pause_s: float) -> None:
    """Append records under a new name until `stop`."""
    port = f"/dev/virtio-ports/{PORT}"
    write_spec(agent, {"directory": RECORDS, "name": name, "seed": seed, "port": port, "pause_s": pause_s})
    agent.check(["systemd-run", "--collect", f"--unit={UNIT}", *run_argv("write")], timeout_s=CALL_S)


def silence(agent: Programs) -> None:
    """Stop the writer."""
    agent.run(["systemctl", "stop", UNIT], timeout_s=CALL_S)


def stop(agent: Programs) -> None:
    """Stop the writer and delete its records."""
    silence(agent)
    agent.run(["rm", "-rf", RECORDS], timeout_s=CALL_S)
