"""Run parts of `make test`: `python -m tests.parts [PART ...]`, all of them without a name.

They run one after the other, except those that `budgets.toml` puts beside another one: they have the processors while
that one waits, and what they print appears when they have ended. Those that would take all processors for long yield to
it (nice(1)). After the first that fails no other is begun; what runs beside it is waited for. The time of each is
printed beside its budget, and what is above it is told; nothing fails for that. A part that takes HUNG times its budget
is ended, and fails: something in it waits for ever. A part fails that played fewer cases than it has to. It needs no
virtual environment.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
BUDGETS = Path(__file__).with_name("budgets.toml")
# What the items of the part with counts have recorded, as pytest writes it.
COUNTED, PLAYED = "long", ROOT / "build" / "long.xml"
YIELD = ("nice", "-n", "19")
# A loaded machine takes a few times the budget, and the shortest parts depend on one slow program.
HUNG, LEAST_HUNG_S = 10, 600
# timeout(1) exits with this one after SIGTERM, which make passes on, and is killed itself if that does not help.
ENDED, KILL_AFTER_S = 124, 30


class Budgets(NamedTuple):
    """The seconds of each part, in the order in which they run; the least counts; what runs beside which part, and
    which of those yield to it."""

    seconds: dict[str, int]
    counts: dict[str, int]
    beside: dict[str, str]
    yielding: list[str]


def budgets() -> Budgets:
    return Budgets(**tomllib.loads(BUDGETS.read_text()))


def limit(seconds: int) -> int:
    """The seconds after which a part with this budget is ended."""
    return max(LEAST_HUNG_S, HUNG * seconds)


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


def table(took: Mapping[str, float], seconds: Mapping[str, int], together_s: float) -> Iterator[str]:
    """A line for each part, one for all, and one for each that is above its budget."""
    yield f"{'part':<12}{'took':>8}{'budget':>10}"
    for part, took_s in took.items():
        yield f"{part:<12}{took_s:>6.0f} s{seconds[part]:>8} s"
    yield f"{'together':<12}{together_s:>6.0f} s"
    for part, took_s in took.items():
        if took_s > seconds[part]:
            yield f"ABOVE ITS BUDGET: {part} took {took_s:.0f} s, {seconds[part]} s are meant (tests/budgets.toml)"


class Parts:
    """Runs parts, and keeps the seconds that each `took`, and the exit code of the first that failed."""

    def __init__(self, known: Budgets) -> None:
        self._known = known
        self.took: dict[str, float] = {}
        self.code = 0

    def run(self, parts: Sequence[str], player: Callable[[str], int]) -> None:
        """One after the other, until one has failed, of these or of what runs beside them."""
        for part in parts:
            if self.code:
                return
            began = time.monotonic()
            code = player(part)
            self.took[part] = time.monotonic() - began
            if code:
                print(f"FAILED: {part}", flush=True)
                self.code = code

    def run_all(self, parts: Sequence[str]) -> None:
        """One after the other; what belongs beside another one runs with that, or alone if that does not run."""
        beside = {part: host for part, host in self._known.beside.items() if part in parts and host in parts}
        for part in parts:
            if part not in beside:
                with ThreadPoolExecutor(1) as pool:
                    others = pool.submit(self.run, [p for p in beside if beside[p] == part], self._run_quietly)
                    self.run([part], self._run_aloud)
                others.result()

    def _run_aloud(self, part: str) -> int:
        print(f"--- {part}", flush=True)
        return self._make([], part)

    def _run_quietly(self, part: str) -> int:
        """What it printed appears at its end."""
        with TemporaryFile("w+") as output:
            try:
                return self._make(YIELD if part in self._known.yielding else [], part, output)
            finally:
                output.seek(0)
                print(f"\n--- {part}", output.read().rstrip(), sep="\n", flush=True)

    def _make(self, before: Sequence[str], part: str, output: IO[str] | None = None) -> int:
        """The exit code of a part, which prints to `output`, else as it runs. `before`: how it is started."""
        if part == COUNTED:
            PLAYED.unlink(missing_ok=True)
        limit_s = limit(self._known.seconds[part])
        bounded = ["timeout", "--foreground", f"--kill-after={KILL_AFTER_S}", str(limit_s)]
        make = [*bounded, *before, "make", "--no-print-directory", part]
        code = subprocess.run(make, cwd=ROOT, check=False, stdout=output, stderr=output).returncode
        if code in (ENDED, -signal.SIGKILL, 128 + signal.SIGKILL):
            print(f"HUNG: {part} was ended after {limit_s} s", file=output, flush=True)
        if code or part != COUNTED:
            return code
        found, least = counted(PLAYED) if PLAYED.exists() else Counter[str](), self._known.counts
        few = too_few(found, least)
        print(", ".join(f"{found[name]} {name}" for name in least), *few, sep="\n", file=output, flush=True)
        return 1 if few else 0


def main(names: Sequence[str]) -> int:
    """Exit code: that of the first part that failed; 2 if there is no such part."""
    known, began = budgets(), time.monotonic()
    if unknown := set(names) - known.seconds.keys():
        print(f"no such part: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    parts = Parts(known)
    parts.run_all([part for part in known.seconds if part in names or not names])
    print(*table(parts.took, known.seconds, time.monotonic() - began), sep="\n")
    return parts.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
