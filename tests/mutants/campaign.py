"""Break every rule once; random schedules or crash cases must notice: `python -m tests.mutants.campaign [NAME]`.

Each mutant is a copy of the tree in a temporary directory, hunted in a process of its own. The tree as it is has to
pass the same hunt in full.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from .catalogue import MUTANTS
from .mutant import Mutant, check, copy_tree

PAIRS = 250
HUNT_S = 1200.0
TEST_S = 300.0
CONTROL = Mutant("(none)", "nothing: the tree as it is", ())


@dataclass(frozen=True)
class Catch:
    """`by` is "storm", "crash" or "test"; empty: it got away. `is_void`: the hunt itself failed, and proves nothing."""

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
    """Copy, break, hunt. Raises PatchError where a patch does not fit."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="elastio-mutant-") as folder:
        root = Path(folder)
        copy_tree(root)
        for patch in mutant.patches:
            patch.apply(root)
        if mutant.test:
            return _by_test(mutant, root, began)
        told = _python(root, ["-m", "tests.mutants.hunt", str(pairs), *first_of(mutant)], HUNT_S)
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


def _by_test(mutant: Mutant, root: Path, began: float) -> Catch:
    told = _python(root, ["-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", mutant.test], TEST_S)
    is_caught = told.returncode == 1  # 1: tests failed; everything else is no verdict
    text = f"{mutant.why}: {mutant.test}" if is_caught else f"pytest ended with {told.returncode}: {told.stdout[-300:]}"
    return Catch(mutant, "test" if is_caught else "", text=text, seconds=time.monotonic() - began)


def _python(root: Path, arguments: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    paths = [root, root / "providers", root / "calibration", root / "testbed"]
    environment = {**os.environ, "PYTHONPATH": ":".join(str(p) for p in paths), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root,
        env=environment,
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
    with tempfile.TemporaryDirectory(prefix="elastio-mutant-") as folder:
        copy_tree(Path(folder))
        told = _python(Path(folder), ["-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *names], TEST_S)
    return "" if told.returncode == 0 else told.stdout[-600:]


def row(catch: Catch) -> str:
    """One line of the table."""
    by = catch.by or ("nobody, as it should be" if catch.is_as_it_should_be else "NOBODY")
    after = str(catch.after) if catch.by in ("storm", "crash") else ""
    return f"{catch.mutant.name:<36} {by:<7} {after:>5} {catch.seconds:>6.0f} s  {catch.text}"


def main(arguments: list[str]) -> int:
    """All mutants, or those named, and the tree as it is. 0 where every one was caught, and nothing else."""
    chosen = tuple(m for m in MUTANTS if not arguments or m.name in arguments)
    if wrong := check(MUTANTS):
        print("\n".join(wrong))
        return 1
    print(f"{'mutant':<36} {'caught by':<7} after so many schedules and crash cases", flush=True)
    bad, began = 0, time.monotonic()
    by = Counter[str]()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for done in as_completed([pool.submit(run, mutant) for mutant in (CONTROL, *chosen)]):
            catch = done.result()
            bad += not catch.is_as_it_should_be
            by["a test" if catch.by == "test" else "a schedule or a crash case"] += bool(catch.by)
            print(row(catch), flush=True)
            if catch.what and catch.mutant is CONTROL:
                print(f"  {catch.what}", flush=True)
    if told := control_of_tests(chosen):
        print(f"the tests that stand in for hunts fail without any mutant: {told}")
        bad += 1
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = {"wall_s": round(time.monotonic() - began), "cpu_s": round(usage.ru_utime + usage.ru_stime)}
    print(json.dumps({"mutants": len(chosen), "caught by": by, "not as they should be": bad, **took}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
