"""Whatever stands in a file or on the control socket: one error of ours, or a value; never another exception."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastio import codec
from elastio.agent.journal import read
from elastio.agent.memory import Remembered, recall
from elastio.config.schema import Config, load, parse
from elastio.control import protocol, status
from elastio.core.cycle import Cycle
from elastio.errors import ConfigError, ControlError, JournalError
from tests.property.hostile import DEEP, JSON, altered, lines
from tests.values import cycle

T = TypeVar("T")

CONFIG: dict[str, Any] = {
    "device": {"backing_uuid": "58c00623-0529-4a44-9474-dabb02496928", "bandwidth_mb_s": 33.0},
    "cache": {"bandwidth_mb_s": 128, "initial_size_gib": 10, "max_size_gib": 100.0, "iops": 3000},
    "policy": {"utilization_threshold": 0.3},
    "caps": {"max_boosts_per_day": 4},
    "agent": {"state_dir": "/var/lib/elastio", "socket_group": "elastio", "log_level": "info"},
    "provider": {"name": "aws", "aws": {"region": "us-east-1"}},
}
CYCLE = cycle(volume=None)
RECORD: dict[str, Any] = {
    "seq": 4,
    "kind": "intent",
    "wall": 1005.0,
    "now": 10.0,
    "boot": "one",
    "phase": "attaching",
    "cycle": codec.encode(CYCLE),
    "paused": False,
}


def outcome(call: Callable[[], T], error: type[Exception]) -> tuple[str, T | None]:
    """What it said when it refused, or its value. Any other exception is the test's failure."""
    try:
        return "", call()
    except error as refusal:
        return str(refusal), None


# --- configuration ---------------------------------------------------------------------------------------------------


@given(altered(CONFIG) | st.dictionaries(st.text(), JSON, max_size=4))
def test_a_configuration_is_taken_whole_or_refused_in_one_sentence(document: dict[str, Any]) -> None:
    refused, config = outcome(lambda: parse(document), ConfigError)
    assert len(refused) < 1000
    if config is None:
        return
    assert isinstance(config, Config)
    caps = config.policy().caps
    assert caps.max_size_bytes > 0
    assert math.isfinite(config.policy().backing_bandwidth_mb_s)


@given(st.binary(max_size=400))
@example(b"a=" + DEEP)
@example(b"a=" + b"1" * 5000)
@example(b"[cache]\niops=0x" + b"f" * 5000)
@example(b"[cache]\nbandwidth_mb_s = 1" + b"0" * 400)
def test_no_text_of_a_file_gets_past_the_reader(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = tmp_path_factory.mktemp("config") / "elastio.toml"
    path.write_bytes(text)
    with pytest.raises(ConfigError):
        load(path)


# --- journal ---------------------------------------------------------------------------------------------------------


def recalled(path: Path, *, boot: str = "one") -> Remembered:
    return recall(read(path), path, now=20.0, wall=1015.0, boot_id=boot)


@given(st.lists(lines(RECORD), max_size=6), st.sampled_from(["one", "two"]))
def test_a_journal_is_remembered_or_named_as_not_understood(
    tmp_path_factory: pytest.TempPathFactory, damaged: list[bytes], boot: str
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    path.write_bytes(b"\n".join(damaged))
    refused, memory = outcome(lambda: recalled(path, boot=boot), JournalError)
    assert memory is not None or str(path) in refused
    assert memory is None or memory.state.cycle is None or isinstance(memory.state.cycle, Cycle)


@given(st.lists(lines(), max_size=4).filter(lambda damaged: all(b"phase" not in line for line in damaged)))
def test_rubbish_around_it_does_not_change_what_the_last_record_says(
    tmp_path_factory: pytest.TempPathFactory, damaged: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    whole = [line.replace(b"\n", b" ").replace(b"\r", b" ") for line in damaged]
    path.write_bytes(b"\n".join([*whole, json.dumps(RECORD).encode(), *whole]) + b"\n")
    assert recalled(path).state.cycle == CYCLE


# --- control socket --------------------------------------------------------------------------------------------------

REQUEST = {"version": 1, "command": "boost", "size_bytes": 2**30}


@given(lines(REQUEST, {"version": 1, "command": "why", "count": 5}, {"version": 1, "command": "status"}))
def test_a_request_is_known_and_within_its_bounds_or_refused(line: bytes) -> None:
    refused, message = outcome(lambda: protocol.parse_request(line), ControlError)
    if message is None:
        assert protocol.decode(protocol.encode(protocol.refused(refused)))["ok"] is False
        return
    assert message["command"] in protocol.COMMANDS
    assert set(message) - {"version", "command"} <= set(protocol.COMMANDS[message["command"]])


@given(st.dictionaries(st.text() | st.sampled_from(["agent", "load", "owned", "spend", "cycle"]), JSON, max_size=6))
def test_a_status_of_another_release_is_named_as_one(document: dict[str, Any]) -> None:
    with pytest.raises(ControlError):
        status.Status.from_json(document)
