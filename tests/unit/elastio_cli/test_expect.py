"""`elastio expect`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.errors import HostError
from elastio.units import GIB, MIB

from .conftest import FakeAgent, Shell


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (("--in", "5m", "--size", "4G"), {"seconds": 300, "size_bytes": 4 * GIB}),
        (("--in", "90"), {"seconds": 90}),
        (("--cancel",), {}),
    ],
)
def test_a_burst_is_announced_or_all_are_forgotten(
    arguments: tuple[str, ...], fields: dict[str, int], agent: FakeAgent, elastio: Shell
) -> None:
    agent.replies["expect"] = accepted("a burst is expected")
    result = elastio("expect", *arguments)
    assert (result.exit_code, result.stdout) == (Exit.OK, "a burst is expected\n")
    assert agent.asked == [{"version": 1, "command": "expect", **fields}]


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--size", "4G"),
        ("--cancel", "--in", "5m"),
        ("--cancel", "--size", "4G"),
        ("--in", "0.4s"),
        ("--in", "8d"),
        ("--in", "soon"),
        ("--in", "5m", "--size", "0"),
        ("--in", "5m", "--size", "-4G"),
        ("--in", "5m", "--size", "4X"),
        ("--in", "5m", "--size", "G"),
        ("--in", "5m", "--size", "inf"),
        ("--in", "5m", "--size", "9" * 400),
        ("--in", "5m", "--timer", "backup.timer"),
        ("--cancel", "--timer", "backup.timer"),
        ("--timer", "backup"),
        ("--timer", "backup.service"),
        ("--timer", "*.timer"),
        ("--timer", "--all.timer x.timer"),
    ],
)
def test_what_cannot_be_announced_is_wrong_usage_and_asks_nothing(
    arguments: tuple[str, ...], agent: FakeAgent, elastio: Shell
) -> None:
    assert elastio("expect", *arguments).exit_code == Exit.USAGE
    assert agent.asked == []


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("4", 4 * GIB), ("4g", 4 * GIB), ("512MiB", 512 * MIB), ("1.5 GB", 3 * GIB // 2)]
)
def test_sizes_are_in_binary_units(text: str, size_bytes: int, agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["expect"] = accepted("")
    assert elastio("expect", "--in", "5m", "--size", text).exit_code == Exit.OK
    assert agent.asked[0]["size_bytes"] == size_bytes


# --- timers of systemd -----------------------------------------------------------------------------------

WALL = 1_790_000_000.0


@dataclass
class Systemd:
    """Answers `systemctl list-timers --output=json` as systemd 252 does, at WALL."""

    next_us: object = None
    unit: str = "backup.timer"
    said: str = ""
    asked: list[Sequence[str]] = field(default_factory=list)

    def __call__(self, argv: Sequence[str], *, timeout_s: float) -> str:
        self.asked.append(argv)
        row = {"next": self.next_us, "left": self.next_us, "last": None, "passed": None, "unit": self.unit}
        return self.said or json.dumps([{**row, "activates": "backup.service"}])

    def now(self) -> float:
        return 5000.0

    def wall(self) -> float:
        return WALL


def on(systemd: Systemd, elastio: Shell) -> Shell:
    return Shell(replace(elastio.app, run=systemd, clock=systemd))


def test_the_next_elapse_of_a_timer_is_announced(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["expect"] = accepted("a burst is expected")
    systemd = Systemd(int((WALL + 5400.2) * 1e6))
    assert on(systemd, elastio)("expect", "--timer", "backup.timer", "--size", "4G").exit_code == Exit.OK
    assert agent.asked == [{"version": 1, "command": "expect", "seconds": 5400, "size_bytes": 4 * GIB}]
    assert systemd.asked[0][-2:] == ["--", "backup.timer"]


@pytest.mark.parametrize("next_us", [None, 0, int(WALL * 1e6), int((WALL - 3) * 1e6), int((WALL + 8 * 86400) * 1e6)])
def test_a_timer_that_is_not_near_or_whose_service_runs_is_announced_later(
    next_us: object, agent: FakeAgent, elastio: Shell
) -> None:
    assert on(Systemd(next_us), elastio)("expect", "--timer", "backup.timer").exit_code == Exit.OK
    assert agent.asked == []


@pytest.mark.parametrize(
    "said", ["[]", "0 timers listed.", "{}", '[{"unit": "backup.timer"}]', '[{"unit": 1, "next": 2}]']
)
def test_an_unknown_timer_and_a_systemd_that_says_something_else_are_errors(
    said: str, agent: FakeAgent, elastio: Shell
) -> None:
    assert on(Systemd(said=said), elastio)("expect", "--timer", "backup.timer").exit_code == Exit.FAILED
    assert agent.asked == []


def test_a_machine_without_systemd_is_an_error(agent: FakeAgent, elastio: Shell) -> None:
    with pytest.raises(HostError):
        elastio.app.run(["systemctl"], timeout_s=1.0)
    assert elastio("expect", "--timer", "backup.timer").exit_code == Exit.FAILED
    assert agent.asked == []
