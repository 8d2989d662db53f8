"""The result of one check of `elastio doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from elastio.host import commands
from elastio.host.commands import Run
from elastio.host.sysfs import Sysfs


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"  # the agent works, but not as well or as safely as it could
    FAIL = "fail"  # the agent cannot work, or data is at risk


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`remedy`: what the operator can do; empty for `ok`. `code` tells causes of one check apart, for tests."""

    name: str
    verdict: Verdict
    sentence: str
    remedy: str = ""
    code: str = ""

    def to_json(self) -> dict[str, str]:
        """The object that `elastio doctor --json` prints."""
        return {"name": self.name, "verdict": self.verdict, "sentence": self.sentence, "way_out": self.remedy}


@dataclass(frozen=True, slots=True)
class Machine:
    """What the checks read: the root of /sys, /proc and /etc, and how programs are run."""

    sysfs: Sysfs
    run: Run = commands.run


def ok(name: str, sentence: str) -> CheckResult:
    return CheckResult(name, Verdict.OK, sentence)


def warn(name: str, sentence: str, remedy: str, code: str = "") -> CheckResult:
    return CheckResult(name, Verdict.WARN, sentence, remedy, code)


def fail(name: str, sentence: str, remedy: str, code: str = "") -> CheckResult:
    return CheckResult(name, Verdict.FAIL, sentence, remedy, code)
