"""The writer of records: what it acknowledges can be read back, and what is gone is seen to be gone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.faults import acks
from elastio_testbed.guest import moments, records

# A file system in memory knows no O_DIRECT.
BUFFERED = 0


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], dict[str, Any]]:
    """Writes so many records and gives what `verify` wants."""

    def write(count: int) -> dict[str, Any]:
        port = tmp_path / "port"
        port.touch()
        spec = {"directory": str(tmp_path / "data"), "name": "run1-0", "seed": 5, "port": str(port), "pause_s": 0}
        monkeypatch.setattr(records, "MOST_RECORDS", count)
        records.write(spec)
        return {**spec, "acknowledged": acks.read(port).get("run1-0", 0)}

    return write


Written = Callable[[int], dict[str, Any]]


def overwrite(path: str, at: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("count", [1, records.SLOTS - 1, records.SLOTS, records.SLOTS + 3])
def test_every_acknowledged_record_is_read_back(written: Written, count: int) -> None:
    spec = written(count)
    assert spec["acknowledged"] == count
    assert records.verify(spec, BUFFERED) == {"checked": count, "lost": 0, "examples": []}


def test_a_record_that_turned_old_again_is_lost(written: Written) -> None:
    spec = written(records.SLOTS + 40)
    _, table = records.paths(spec)
    old = records.content(spec["name"], spec["seed"], 7, records.noise(spec["seed"]))
    overwrite(table, 7 * records.RECORD, old)
    found = records.verify(spec, BUFFERED)
    assert found["examples"] == [{"number": records.SLOTS + 7, "where": "table"}]


def test_one_wrong_byte_is_a_lost_record(written: Written) -> None:
    spec = written(5)
    log, _ = records.paths(spec)
    overwrite(log, 2 * records.RECORD + 5000, b"\0")
    assert records.verify(spec, BUFFERED)["examples"] == [{"number": 3, "where": "log"}]


def test_a_file_cut_short_has_lost_its_end(written: Written) -> None:
    spec = written(5)
    log, table = records.paths(spec)
    os.truncate(log, 4 * records.RECORD)
    assert records.verify(spec, BUFFERED)["lost"] == 1
    Path(table).unlink()
    assert records.verify(spec, BUFFERED)["lost"] == 5


def test_a_record_of_another_writer_is_none_of_this_one(written: Written) -> None:
    spec = written(3)
    log, _ = records.paths(spec)
    overwrite(log, 0, records.content("run1-1", spec["seed"], 1, records.noise(spec["seed"])))
    assert records.verify(spec, BUFFERED)["lost"] == 1


def test_a_later_record_that_the_host_never_heard_of_is_no_loss(written: Written) -> None:
    spec = written(records.SLOTS + 10)
    assert records.verify({**spec, "acknowledged": records.SLOTS + 2}, BUFFERED)["lost"] == 0


def test_half_a_record_is_excused_only_where_one_may_have_been_on_its_way(written: Written) -> None:
    spec = written(records.SLOTS)
    _, table = records.paths(spec)
    overwrite(table, 1 * records.RECORD + 9000, b"torn")  # the very next number goes there
    assert records.verify(spec, BUFFERED)["lost"] == 0
    overwrite(table, 100 * records.RECORD + 9000, b"torn")
    assert records.verify(spec, BUFFERED)["lost"] == 1


# --- acknowledgements ----------------------------------------------------------------------------------------------


def test_only_whole_lines_acknowledge() -> None:
    first, second = records.ack_line("a", 1).decode(), records.ack_line("a", 12).decode()
    torn = second[:7]
    assert acks.acknowledged(first + torn) == {"a": 1}
    assert acks.acknowledged(first + torn + "\n") == {"a": 1}
    assert acks.acknowledged(first + torn + records.ack_line("b", 2).decode()) == {"a": 1}
    assert acks.acknowledged(second + first) == {"a": 12}


def test_a_port_that_was_never_written_to_acknowledges_nothing(tmp_path: Path) -> None:
    assert acks.read(tmp_path / "none") == {}
    assert acks.told(tmp_path / "none", "moment") == 0


# --- moments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "kind", "what", "fits"),
    [
        ({"kind": "intent", "action": "CreateVolume"}, "intent", "CreateVolume", True),
        ({"kind": "outcome", "action": "CreateVolume"}, "intent", "CreateVolume", False),
        ({"kind": "decision", "from": "idle", "to": "attaching"}, "decision", "attaching", True),
        ({"kind": "decision", "from": "idle", "to": "idle"}, "decision", "idle", False),
        (["intent"], "intent", "CreateVolume", False),
    ],
)
def test_a_moment_is_one_record_of_the_journal(record: object, kind: str, what: str, fits: bool) -> None:
    assert moments.fits(json.dumps(record).encode(), kind, what) is fits


def test_half_a_line_is_no_moment() -> None:
    assert not moments.fits(b'{"kind":"intent","action":"Crea', "intent", "CreateVolume")


def test_only_what_is_written_after_the_watch_began_counts(tmp_path: Path) -> None:
    journal, port = tmp_path / "journal", tmp_path / "port"
    line = json.dumps({"kind": "intent", "action": "AttachVolume"}) + "\n"
    journal.write_text(line)
    descriptor = moments.at_end(str(journal))
    assert os.read(descriptor, 100) == b""
    with journal.open("a") as file:
        file.write(line)
    moments.wait_for(descriptor, str(journal), "intent", "AttachVolume")
    port.touch()
    moments.act({"do": "tell", "port": str(port), "kind": "intent", "what": "AttachVolume"}, 0)
    assert port.read_text() == "moment intent AttachVolume\n"
    assert acks.told(port, "moment") == 1
