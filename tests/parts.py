"""Run parts of `make test` one after the other: `python -m tests.parts [PART ...]`, all of them without a name.

The first that fails ends it. Guests leave half of two processors idle, so the part with counts runs beside them, at
the lowest priority; its output follows theirs. The time of each is printed beside its budget (`budgets.toml`), and what
is above it is told; nothing fails for a time. A part fails that played fewer cases than it has to. It needs no virtual
environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_name("budgets.toml")
# What the items of the part with counts have recorded, as pytest writes it.
COUNTED, PLAYED = "long", ROOT / "build" / "long.xml"
# The part that waits most of the time; the other one takes what it leaves.
GUESTS = "e2e"
# How long guests may take to end after Ctrl-C.
POLL_S, CLEANED_S = 0.1, 60.0


def budgets() -> dict[str, dict[str, int]]:
    """Two tables: `seconds` of each part, in the order in which they run, and the least `counts`."""
    return tomllib.loads(BUDGETS.read_text())


def counted(report: Path) -> Counter[str]:
    """The sum of each property that tests have recorded."""
    found = Counter[str]()
    for recorded in ElementTree.parse(report).getroot().iter("property"):
        found[recorded.attrib["name"]] += int(recorded.attrib["value"])
    return found


def too_few(played: Mapping[str, int], least: Mapping[str, int]) -> list[str]:
    return [
        f"TOO FEW: {played.get(name, 0)} {name} were played, at least {number} have to be"
        for name, number in least.items()
        if played.get(name, 0) < number
    ]


def groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The parts in their order; those that run beside each other together, where the first of them stands."""
    if COUNTED not in names or GUESTS not in names:
        return [(name,) for name in names]
    first = min(names.index(COUNTED), names.index(GUESTS))
    rest = [(name,) for name in names if name not in (COUNTED, GUESTS)]
    return [*rest[:first], (GUESTS, COUNTED), *rest[first:]]


def table(took: Mapping[str, float], seconds: Mapping[str, int], together_s: float) -> Iterator[str]:
    """A line for each part, one for all, and one for each that is above its budget."""
    yield f"{'part':<12}{'took':>8}{'budget':>10}"
    for part, took_s in took.items():
        yield f"{part:<12}{took_s:>6.0f} s{seconds[part]:>8} s"
    budget_s = sum(max(seconds[part] for part in group) for group in groups(list(took)))
    yield f"{'together':<12}{together_s:>6.0f} s{budget_s:>8} s"
    for part, took_s in took.items():
        if took_s > seconds[part]:
            yield f"ABOVE ITS BUDGET: {part} took {took_s:.0f} s, {seconds[part]} s are meant (tests/budgets.toml)"


def begin(part: str, output: IO[str] | None) -> subprocess.Popen[bytes]:
    """Start the target, in a session of its own. With `output` at the lowest priority, and all that it prints there."""
    command = [*([] if output is None else ["nice", "-n", "19"]), "make", "--no-print-directory", part]
    errors = None if output is None else subprocess.STDOUT
    return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=errors, start_new_session=True)


def wait(running: Mapping[str, subprocess.Popen[bytes]]) -> dict[str, tuple[int, float]]:
    """Exit code and seconds of each. Ctrl-C goes to all of them, and they may clean up."""
    began, ended = time.monotonic(), dict[str, tuple[int, float]]()
    try:
        while len(ended) < len(running):
            for part, process in running.items():
                if part not in ended and process.poll() is not None:
                    ended[part] = (process.returncode, time.monotonic() - began)
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        for process in running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGINT)
        for process in running.values():
            process.wait(CLEANED_S)
        raise
    return ended


def run(group: Sequence[str], least: Mapping[str, int]) -> dict[str, tuple[int, float]]:
    """Exit code and seconds of each part. All end, whichever fails."""
    if COUNTED in group:
        PLAYED.unlink(missing_ok=True)
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            ended = wait({part: begin(part, output if number else None) for number, part in enumerate(group)})
        finally:
            output.seek(0)
            print(
                *(f"--- {part}, which ran beside {group[0]}" for part in group[1:]), output.read(), sep="\n", flush=True
            )
    if ended.get(COUNTED, (1, 0.0))[0] == 0 and plays_too_few(least):
        ended[COUNTED] = (1, ended[COUNTED][1])
    return ended


def plays_too_few(least: Mapping[str, int]) -> bool:
    """Whether fewer cases were played than have to be. Prints how many were."""
    found = counted(PLAYED)
    print(*(f"{found[name]} {name}" for name in least), sep=", ")
    few = too_few(found, least)
    print(*few, sep="\n", end="\n" if few else "")
    return bool(few)


def main(names: Sequence[str]) -> int:
    """Exit code: that of the first part that failed."""
    known = budgets()
    took: dict[str, float] = {}
    failed: list[str] = []
    began = time.monotonic()
    for group in groups(names or list(known["seconds"])):
        print("---", " and ".join(group), flush=True)
        ended = run(group, known["counts"])
        took |= {part: took_s for part, (_, took_s) in ended.items()}
        failed = [part for part, (code, _) in ended.items() if code]
        if failed:
            print("FAILED:", *failed)
            break
    print(*table(took, known["seconds"], time.monotonic() - began), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(sys.argv[1:]))
