"""LAMMPS melts a Lennard-Jones crystal and writes checkpoints: its own restart and dump files.

For the command line see reporting.py. SPEC: `cells` of the lattice (x, y, z), `checkpoints` (for each the dump files:
name -> columns), `restarts` (how many restart files come with them), `steps` before each checkpoint but the first,
`compute_s` (the least time between the end of a checkpoint and the beginning of the next), `timeout_s` for one answer
of LAMMPS, `record` (the file in which `run` stores for `verify` what it wrote), and `announced` (bytes per checkpoint)
if each checkpoint is announced to the agent at `agent_socket` before it is computed, the first one `first_s` seconds
before it begins.

A checkpoint ends when all its files are fsynced, which LAMMPS itself does not do. Their checksums are computed right
afterwards from the page cache, within the compute time.
"""

import contextlib
import json
import os
import subprocess
import threading
import time
from typing import Any

from elastio_testbed.guest.announcement import announce
from elastio_testbed.guest.reporting import checksum, device_read_bytes, main, sync_to_device, write_line

# Line-buffered, so that answers are not delayed; `opt`: the optimized variant of the same pair style.
COMMAND = ("stdbuf", "-oL", "lmp", "-log", "none", "-suffix", "opt")
ANSWERED = "--- answered ---"
ENERGY = "energy-and-atoms"
# A restart file has all digits, but the order of the sum over pairs may differ.
ENERGY_TOLERANCE = 1e-9

MELT = """\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {x} 0 {y} 0 {z}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 {seed} loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify delay 0 every 20 check no
fix 1 all nve
run 0 post no"""
SHOW_ENERGY = f'print "{ENERGY} $(pe:%.17g) $(atoms)"'


class LammpsError(Exception):
    """LAMMPS ended or did not answer in time; the message is the end of its output."""


class Lammps:
    """A LAMMPS process that gets its input piece by piece."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

    def __enter__(self) -> "Lammps":
        return self

    def __exit__(self, *failure: object) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            # Closing flushes the pipe, which fails if LAMMPS has ended.
            with contextlib.suppress(BrokenPipeError):
                if stream is not None:
                    stream.close()

    def execute(self, commands: str) -> list[str]:
        """Run commands and return the lines that they print. Raises LammpsError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(self._timeout_s, self._process.kill)
        timer.start()
        output: list[str] = []
        try:
            self._process.stdin.write(f'{commands}\nprint "{ANSWERED}"\n')
            for line in self._process.stdout:
                if line.strip() == ANSWERED:
                    return output
                output.append(line.rstrip())
        except BrokenPipeError:
            output.append("LAMMPS had ended before")
        finally:
            timer.cancel()
        raise LammpsError("; ".join(line for line in output[-5:] if line) or "LAMMPS ended without output")


def energy_in(output: list[str]) -> tuple[float, int]:
    """Potential energy per atom and number of atoms, from the output of SHOW_ENERGY."""
    words = next(line.split() for line in reversed(output) if line.startswith(ENERGY))
    return float(words[1]), int(words[2])


def restart_file(spec: dict[str, Any], number: int, copy: int = 0) -> str:
    return os.path.join(spec["directory"], f"{number}.{copy}.restart")


def checkpoint_commands(spec: dict[str, Any], number: int) -> tuple[str, list[str]]:
    """The LAMMPS commands of one checkpoint, and the files they create."""
    files = [restart_file(spec, number, copy) for copy in range(spec["restarts"])]
    commands = [f"write_restart {path}" for path in files]
    for name, columns in spec["checkpoints"][number].items():
        path = os.path.join(spec["directory"], f"{number}.{name}.bin")
        commands.append(f"write_dump all custom {path} {columns}")
        files.append(path)
    return "\n".join(commands), files


def checkpoint(spec: dict[str, Any], lammps: Lammps, number: int) -> tuple[dict[str, Any], list[str]]:
    commands, files = checkpoint_commands(spec, number)
    began = time.time()
    lammps.execute(commands)
    written = time.time()
    for path in (*files, spec["directory"]):
        sync_to_device(path)
    ended = time.time()
    figures = {"lammps_wrote_s": round(written - began, 3)}
    size = sum(os.stat(path).st_size for path in files)
    return {"dump": number, "began": began, "ended": ended, "bytes": size, "figures": figures}, files


def compute(spec: dict[str, Any], lammps: Lammps, since: float) -> tuple[dict[str, float], tuple[float, int]]:
    """Compute the steps and sleep for the rest of the compute time. Returns figures and the resulting energy."""
    began = time.time()
    energy = energy_in(lammps.execute(f"run {spec['steps']} post no\n{SHOW_ENERGY}"))
    computed_s = time.time() - began
    over_s = time.time() - since - spec["compute_s"]
    time.sleep(max(0.0, -over_s))
    return {"computed_s": round(computed_s, 3), "over_s": round(max(0.0, over_s), 3)}, energy


def simulate(spec: dict[str, Any], report: Any) -> dict[str, Any]:
    """Write all checkpoints. Returns what `verify` checks the files against."""
    x, y, z = spec["cells"]
    checksums: dict[str, str] = {}
    computed: dict[str, float] = {}
    ended = 0.0
    with Lammps(spec["timeout_s"]) as lammps:
        energy = energy_in(lammps.execute(f"{MELT.format(x=x, y=y, z=z, seed=spec['seed'])}\n{SHOW_ENERGY}"))
        for number in range(len(spec["checkpoints"])):
            begins = ended + spec["compute_s"] if number else time.time() + spec.get("first_s", 0)
            if "announced" in spec:
                announce(spec["agent_socket"], begins - time.time(), spec["announced"][number])
            if number:
                computed, energy = compute(spec, lammps, ended)
            else:
                time.sleep(max(0.0, begins - time.time()))
            line, files = checkpoint(spec, lammps, number)
            ended, read = line["ended"], device_read_bytes()
            checksums.update({os.path.basename(path): checksum(path) for path in files})
            line["figures"] |= computed | {"checksums_read_mb": (device_read_bytes() - read) / 1e6}
            write_line(report, line)
    return {"checksums": checksums, "energy": energy[0], "atoms": energy[1]}


def run(spec: dict[str, Any], report_path: str) -> None:
    with open(report_path, "a", buffering=1) as report:
        try:
            found = simulate(spec, report)
            with open(spec["record"], "w") as file:
                json.dump(found, file)
            write_line(report, {"done": True})
        except (LammpsError, OSError) as error:
            write_line(report, {"error": str(error)})


def differing(spec: dict[str, Any], checksums: dict[str, str]) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The current checksums of the files, and the files that differ from what was written."""
    now = {name: checksum(os.path.join(spec["directory"], name)) for name in checksums}
    wrong = [
        {"file": name, "written": checksums[name], "read": now[name]} for name in now if now[name] != checksums[name]
    ]
    return now, wrong


def restarted(spec: dict[str, Any]) -> tuple[float, int]:
    """Energy and number of atoms after LAMMPS has read the last restart file."""
    with Lammps(spec["timeout_s"]) as lammps:
        lammps.execute(f"read_restart {restart_file(spec, len(spec['checkpoints']) - 1)}\nrun 0 post no")
        return energy_in(lammps.execute(SHOW_ENERGY))


def verify(spec: dict[str, Any]) -> dict[str, Any]:
    """Compare every file's checksum, and the energy that LAMMPS computes from the last restart file."""
    with open(spec["record"]) as file:
        written = json.load(file)
    now, wrong = differing(spec, written["checksums"])
    try:
        energy, atoms = restarted(spec)
    except LammpsError as error:
        wrong.append({"file": restart_file(spec, len(spec["checkpoints"]) - 1), "lammps": str(error)})
        return {"ok": False, "wrong": wrong, "checksums": now}
    if atoms != written["atoms"] or abs(energy - written["energy"]) > ENERGY_TOLERANCE * abs(written["energy"]):
        wrong.append({"restarted": f"{atoms} atoms at {energy}, not {written['atoms']} at {written['energy']}"})
    return {"ok": not wrong, "wrong": wrong, "checksums": now, "energy": energy, "atoms": atoms}


if __name__ == "__main__":
    main(run, verify)
