"""What a check found: a verdict, a sentence, and the way out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from elastio.host import commands
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # works, but worse or less safely than it could
    FAIL = "fail"  # the agent cannot work, or data would be at risk


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    verdict: Verdict
    sentence: str
    way_out: str = ""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the checks look: the root of /sys, /proc and /etc, and how programs are run."""

    sysfs: Sysfs
    run: Run = commands.run


Check = Callable[[Machine], Finding]


def ok(name: str, sentence: str) -> Finding:
    return Finding(name, Verdict.OK, sentence)


def warn(name: str, sentence: str, way_out: str) -> Finding:
    return Finding(name, Verdict.WARN, sentence, way_out)


def fail(name: str, sentence: str, way_out: str) -> Finding:
    return Finding(name, Verdict.FAIL, sentence, way_out)
