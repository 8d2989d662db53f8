"""`elastio events`: the log events of a journal that a simulated agent wrote."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from elastio.agent.event_reader import Narrator
from elastio.agent.log_events import FIELDS, EventKind, LogEvent
from elastio.config.paths import JOURNAL
from elastio.control.exit_codes import Exit
from elastio.core.model import RequestKind
from elastio.core.state import Phase
from elastio.host.inotify import DirectoryWatch
from elastio_cli.events import line
from tests.fixtures.least_configuration import UUID
from tests.simulated import POLICY, STEADY, in_phase, machine

from .conftest import Golden, Shell


def configure(tmp_path: Path) -> Path:
    """A configuration of this state directory."""
    (tmp_path / "elastio.toml").write_text(
        f'[device]\nbacking_uuid = "{UUID}"\nbandwidth_mb_s = 33\n[cache]\nbandwidth_mb_s = 128\n'
        f'[provider]\nname = "sim"\n[agent]\nstate_dir = "{tmp_path}/state"\n'
    )
    return tmp_path / "state" / JOURNAL


@cache
def lines() -> tuple[bytes, ...]:
    """A boost for a load whose first attach is throttled, ended by an operator; then a purchase that is refused."""
    sim = machine(STEADY, "attach#1x1=throttle create#2x1=quota")
    in_phase(sim, Phase.BOOSTING)
    sim.run_for(20)
    sim.ask(RequestKind.FLUSH, asked_by=1000)
    in_phase(sim, Phase.IDLE)
    sim.run_for(30)
    return tuple(sim.lines)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The journal in the state directory of the test's configuration."""
    path = configure(tmp_path)
    path.parent.mkdir()
    path.write_bytes(b"".join(lines()))
    return path


def events() -> list[LogEvent]:
    narrator = Narrator()
    return [event for record in map(json.loads, lines()) for event in narrator.take(record)]


def test_one_line_for_each_event(journal: Path, elastio: Shell, golden: Golden) -> None:
    result = elastio("events")
    assert result.exit_code == Exit.OK
    golden("events.txt", result.stdout)
    assert len(result.stdout.splitlines()) == len(events())


def test_no_line_is_wider_than_a_terminal(golden: Golden) -> None:
    shown = [line(event, 80) for event in events()]
    assert max(map(len, shown)) == 80
    golden("events_80_columns.txt", "\n".join([*shown, ""]))


def test_a_sentence_of_several_lines_is_one_line() -> None:
    event = LogEvent(EventKind.ERROR, 0.0, "first\n  second", reason="first\n  second")
    assert line(event).endswith("first second")


def test_json_is_one_object_a_line_with_the_same_keys(journal: Path, elastio: Shell, golden: Golden) -> None:
    result = elastio("events", "--json")
    shown = [json.loads(text) for text in result.stdout.splitlines()]
    assert {tuple(each) for each in shown} == {("time", "event", "priority", "message", "message_id", *FIELDS)}
    golden("events_messages.txt", "".join(f"{each['priority']:<8}{each['message']}\n" for each in shown))
    (over,) = [each for each in shown if each["event"] == "boost-over"]
    assert (over["gib"], over["mb_s"], over["asked_by"], over["device"]) == (2.0, 80.0, "agent", POLICY.backing_uuid)


def test_since_and_device_choose(journal: Path, elastio: Shell) -> None:
    everything = elastio("events", "--json").stdout
    assert elastio("events", "--json", "--since", "2020-01-01").stdout == everything
    assert elastio("events", "--json", "--since", "2100-01-01").stdout == ""
    assert elastio("events", "--json", "--device", "elastio").stdout == everything
    assert elastio("events", "--json", "--device", "other").exit_code == Exit.FAILED


@dataclass(frozen=True)
class Stopped:
    """A clock that always shows one time."""

    at: float

    def now(self) -> float:
        return 0.0

    def wall(self) -> float:
        return self.at


def test_a_time_ago_leaves_out_what_is_older_and_tells_the_rest_as_ever(journal: Path, elastio: Shell) -> None:
    flush = next(event for event in events() if event.kind is EventKind.FLUSH_BEGUN)
    later = Shell(replace(elastio.app, clock=Stopped(flush.wall + 60.0)))
    shown = later("events", "--since", "1m").stdout.splitlines()
    assert shown == [line(event) for event in events() if event.wall >= flush.wall]
    assert 0 < len(shown) < len(events())


class Interrupted(DirectoryWatch):
    """A watch of a real directory, in which the journal grows at each wait; then Ctrl-C."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._path, self._left = directory / JOURNAL, [*lines()]

    def wait(self) -> None:
        if not self._left:
            raise KeyboardInterrupt
        with self._path.open("ab") as journal:
            journal.write(self._left.pop(0))
        super().wait()


def test_follow_shows_what_is_added_until_it_is_interrupted(journal: Path, elastio: Shell) -> None:
    everything = elastio("events").stdout
    journal.write_bytes(b"")
    following = Shell(replace(elastio.app, watch_directory=Interrupted))
    result = following("events", "--follow")
    assert (result.exit_code, result.stdout) == (Exit.OK, everything)


def test_without_a_journal_it_says_what_to_do(elastio: Shell, tmp_path: Path) -> None:
    configure(tmp_path)
    result = elastio("events")
    assert (result.exit_code, result.stdout) == (Exit.FAILED, "")
    assert result.stderr.count("\n") == 1
    assert elastio("events", "--follow").exit_code == Exit.FAILED
