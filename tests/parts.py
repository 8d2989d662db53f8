"""Run parts of `make test`: `python -m tests.parts [PART ...]`, all of them without a name.

They run one after the other, but for the part with guests, which leaves the processors idle for half of its time: those
after it run beside it, at a lower priority, and what it prints is shown when it has ended. The first that fails ends
all. The time of each is printed beside its budget (`budgets.toml`), and what is above it is told; nothing fails for a
time. A part fails that played fewer cases than it has to. It needs no virtual environment.
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
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_name("budgets.toml")
# What the items of the part with counts have recorded, as pytest writes it.
COUNTED, PLAYED = "long", ROOT / "build" / "long.xml"
# The part beside which those after it run.
GUESTS = "e2e"
# Guests come first, but programs that tests run and wait for have to go on while all guests compute.
YIELDING = ("nice", "-n", "5")
LOOK_EVERY_S = 0.2
# What is interrupted stops its guests first.
STOP_S = 60.0


def budgets() -> dict[str, dict[str, int]]:
    """Two tables: `seconds` of each part, in the order in which they are started, and the least `counts`."""
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


def together(seconds: Mapping[str, float]) -> float:
    """The time of all: of the guests and what runs beside them, that of the longer."""
    parts = list(seconds)
    first = parts.index(GUESTS) if GUESTS in parts else len(parts)
    beside = sum(seconds[part] for part in parts[first + 1 :])
    return sum(seconds[part] for part in parts[:first]) + max(seconds.get(GUESTS, 0.0), beside)


def table(took: Mapping[str, float], seconds: Mapping[str, int]) -> Iterator[str]:
    """A line for each part, one for all, and one for each that is above its budget."""
    meant = {part: seconds[part] for part in seconds if part in took}
    yield f"{'part':<12}{'took':>8}{'budget':>10}"
    for part, meant_s in meant.items():
        yield f"{part:<12}{took[part]:>6.0f} s{meant_s:>8} s"
    yield f"{'together':<12}{together({part: took[part] for part in meant}):>6.0f} s{together(meant):>8.0f} s"
    for part, meant_s in meant.items():
        if took[part] > meant_s:
            yield f"ABOVE ITS BUDGET: {part} took {took[part]:.0f} s, {meant_s} s are meant (tests/budgets.toml)"


class Part:
    """A part that was started. With `kept`, it runs behind others and prints to this file; `yields`: beside it."""

    def __init__(self, name: str, root: Path, *, kept: Path | None = None, yields: bool = False) -> None:
        self.name, self.kept, self._began = name, kept, time.monotonic()
        with open(kept or os.devnull, "wb") as file:
            self._process = subprocess.Popen(
                (*(YIELDING if yields else ()), "make", "--no-print-directory", name),
                cwd=root,
                stdout=file if kept else None,
                stderr=file if kept else None,
                process_group=0 if kept or yields else None,  # one of two can be stopped, with all that it has started
            )

    def code(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    def took_s(self) -> float:
        return time.monotonic() - self._began

    def stop(self) -> None:
        """As Ctrl-C does; then with force what does not end."""
        with suppress(ProcessLookupError):  # without a group of its own, Ctrl-C has reached it
            os.killpg(self._process.pid, signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Parts:
    """Runs parts until one fails. `took`: the seconds of those that ended; `code`: the exit code of all."""

    def __init__(self, least: Mapping[str, int], folder: Path, root: Path = ROOT) -> None:
        self.took, self.code = dict[str, float](), 0
        self._least, self._folder, self._root = least, folder, root
        self._running: list[Part] = []

    def run(self, names: Sequence[str]) -> None:
        try:
            for name in names:
                self._start(name, is_behind=name == GUESTS and name != names[-1])
                if self.code:
                    return
            self._wait(self._running)
        finally:
            for part in self._running:
                part.stop()

    def _start(self, name: str, *, is_behind: bool) -> None:
        print(f"--- {name}", "(shown when it has ended)" if is_behind else "", flush=True)
        if name == COUNTED:
            PLAYED.unlink(missing_ok=True)
        part = Part(name, self._root, kept=self._folder / name if is_behind else None, yields=bool(self._running))
        self._running.append(part)
        if not is_behind:
            self._wait([part])

    def _wait(self, parts: Sequence[Part]) -> None:
        """Until these have ended, or any has failed."""
        while not self.code and any(part in self._running for part in parts):
            time.sleep(LOOK_EVERY_S)
            for part in [part for part in self._running if part.code() is not None]:
                self._running.remove(part)
                self._ended(part)

    def _ended(self, part: Part) -> None:
        self.took[part.name] = part.took_s()
        if part.kept:
            print(f"--- {part.name}", part.kept.read_text(errors="replace"), sep="\n", end="", flush=True)
        self.code = part.code() or (short_of(self._least) if part.name == COUNTED else 0)
        if self.code:
            print(f"FAILED: {part.name}")


def short_of(least: Mapping[str, int]) -> int:
    """1 if fewer cases were played than have to be; what was played is printed."""
    found = counted(PLAYED)
    print(*(f"{found[name]} {name}" for name in least), sep=", ")
    few = too_few(found, least)
    print(*few, sep="\n", end="\n" if few else "")
    return 1 if few else 0


def main(names: Sequence[str]) -> int:
    """Exit code: that of the first part that failed."""
    known = budgets()
    with tempfile.TemporaryDirectory() as folder:
        parts = Parts(known["counts"], Path(folder))
        try:
            parts.run(names or list(known["seconds"]))
        finally:
            print(*table(parts.took, known["seconds"]), sep="\n")
    return parts.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
