"""Break every rule once; random schedules or crash cases must notice: `python -m tests.mutants.campaign [NAME]`.

Each mutant is hunted in a process of its own. The tree as it is has to pass the same hunt in full. With `--store`, what
caught the mutants is written to `caught_by.json`, which the tests play again.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from .catalogue import MUTANTS
from .mutant import CONTROL, ROOT, Mutant, check
from .stored import Caught, store

PAIRS = 250
HUNT_S = 1200.0
TEST_S = 900.0  # beside guests, which have the processors first, seconds take minutes
PLAY_S = 600.0
OUT_OF_TIME = re.compile(r"^(?:FAILED|ERROR) .* - (?:\w+\.)*(?:\w*Timeout\w*|DeadlineExceeded)\b", re.MULTILINE)
BY_HUNT = ("story", "storm", "crash")
# Only the verdict counts: rewriting assertions, also those of Hypothesis, takes longer than most of the tests.
PYTEST = ("pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "--assert=plain")


@dataclass(frozen=True)
class Catch:
    """`by` is "story", "storm", "crash" or "test"; empty: it got away. `is_void`: the hunt itself failed: no proof."""

    mutant: Mutant
    by: str
    after: int = 0
    what: str = ""
    text: str = ""
    seconds: float = 0.0
    is_void: bool = False

    @property
    def is_as_it_should_be(self) -> bool:
        return not self.is_void and bool(self.by) is not (self.mutant is CONTROL)


def run(mutant: Mutant, pairs: int = PAIRS) -> Catch:
    """Hunt it, or run the test that is named for it."""
    if mutant.test:
        return run_test(mutant)
    return _hunt(mutant, HUNT_S, str(pairs), *first_of(mutant))


def play(mutant: Mutant, caught: Caught) -> Catch:
    """Play again what caught it once."""
    return _hunt(mutant, PLAY_S, "--play", caught.by, caught.what)


def _hunt(mutant: Mutant, limit_s: float, *arguments: str) -> Catch:
    began = time.monotonic()
    told = _python(mutant, ["tests.mutants.hunt", *arguments], limit_s)
    if told.returncode:
        return Catch(mutant, "", text=f"the hunt itself failed: {told.stderr[-300:]}", is_void=True)
    found = json.loads(told.stdout.splitlines()[-1])
    seconds = time.monotonic() - began
    return Catch(mutant, found["by"], found["after"], found["what"], found["property"], seconds)


def first_of(mutant: Mutant) -> tuple[str, ...]:
    """The cases to begin with: the tree as it is has to stand all of them."""
    if mutant is CONTROL:
        return tuple(sorted({m.first for m in MUTANTS if m.first}))
    return (mutant.first,) if mutant.first else ()


def run_test(mutant: Mutant) -> Catch:
    """Run the test that is named for it."""
    began = time.monotonic()
    told = _python(mutant, [*PYTEST, mutant.test], TEST_S)
    is_caught = told.returncode == 1 and not ran_out_of_time(told.stdout)  # 1: tests failed; else there is no verdict
    text = f"{mutant.why}: {mutant.test}" if is_caught else f"pytest ended with {told.returncode}: {told.stdout[-300:]}"
    return Catch(mutant, "test" if is_caught else "", text=text, seconds=time.monotonic() - began)


def ran_out_of_time(output: str) -> bool:
    """Whether a test failed for time by pytest's summary, which a busy machine does as well as a broken rule."""
    return OUT_OF_TIME.search(output) is not None


def _python(mutant: Mutant, module: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.mutants.broken", mutant.name, *module],
        cwd=ROOT,
        # By default the summary of pytest leaves out of its lines what the terminal has no room for: the exception.
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )


def control_of_tests(mutants: Sequence[Mutant]) -> str:
    """The tests that stand in for hunts have to pass in the tree as it is; what they said if they do not."""
    names = sorted({m.test for m in mutants if m.test})
    if not names:
        return ""
    told = _python(CONTROL, [*PYTEST, *names], TEST_S)
    return "" if told.returncode == 0 else told.stdout[-600:]


def row(catch: Catch) -> str:
    """One line of the table."""
    by = catch.by or ("nobody, as it should be" if catch.is_as_it_should_be else "NOBODY")
    after = str(catch.after) if catch.by in BY_HUNT else ""
    return f"{catch.mutant.name:<36} {by:<7} {after:>5} {catch.seconds:>6.0f} s  {catch.text}"


def main(arguments: list[str]) -> int:
    """All mutants, or those named, and the tree as it is. 0 where every one was caught, and nothing else."""
    names = [name for name in arguments if name != "--store"]
    chosen = tuple(m for m in MUTANTS if not names or m.name in names)
    if wrong := check(MUTANTS):
        print("\n".join(wrong))
        return 1
    print(f"{'mutant':<36} {'caught by':<7} after so many schedules and crash cases", flush=True)
    bad, began = 0, time.monotonic()
    by, caught = Counter[str](), dict[str, Caught]()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(run, mutant) for mutant in (CONTROL, *chosen)]):
            catch = done.result()
            bad += not catch.is_as_it_should_be
            by["a test" if catch.by == "test" else "a schedule or a crash case"] += bool(catch.by)
            if catch.by in BY_HUNT:
                caught[catch.mutant.name] = Caught(catch.by, catch.what)
            print(row(catch), flush=True)
            if catch.what and catch.mutant is CONTROL:
                print(f"  {catch.what}", flush=True)
    if told := control_of_tests(chosen):
        print(f"the tests that stand in for hunts fail without any mutant: {told}")
        bad += 1
    if "--store" in arguments:
        store(caught)
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = {"wall_s": round(time.monotonic() - began), "cpu_s": round(usage.ru_utime + usage.ru_stime)}
    print(json.dumps({"mutants": len(chosen), "caught by": by, "not as they should be": bad, **took}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
