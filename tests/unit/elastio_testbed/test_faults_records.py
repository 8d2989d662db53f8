"""The writer of records: what it acknowledges can be read back, and every loss is detected."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastio_testbed.faults import acks
from elastio_testbed.guest import journal_trigger, records

# tmpfs does not support O_DIRECT.
BUFFERED = 0
# This many records, and each slot of the table has been written.
ROUND = 2 * records.SLOTS


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], dict[str, Any]]:
    """A function that writes so many records and returns the spec for `verify`."""

    def write(count: int) -> dict[str, Any]:
        port = tmp_path / "port"
        port.touch()
        (tmp_path / "kmsg").touch()
        spec = {"directory": str(tmp_path / "data"), "name": "run1-0", "seed": 5, "port": str(port), "pause_s": 0}
        spec["kernel_log"] = str(tmp_path / "kmsg")
        monkeypatch.setattr(records, "MOST_RECORDS", count)
        records.write(spec)
        return {**spec, "acknowledged": acks.read(port).get("run1-0", 0)}

    return write


Written = Callable[[int], dict[str, Any]]


class GoneError(OSError):
    """An I/O error of the device."""


def overwrite(path: str, at: int, data: bytes) -> None:
    with Path(path).open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("count", [1, 2, ROUND - 1, ROUND, ROUND + 3])
def test_every_acknowledged_record_is_read_back(written: Written, count: int) -> None:
    spec = written(count)
    assert spec["acknowledged"] == count
    assert records.verify(spec, BUFFERED) == {"checked": count, "lost": 0, "examples": []}


def test_a_record_that_reverted_to_old_data_is_lost(written: Written) -> None:
    spec = written(ROUND + 40)
    _, table, _ = records.paths(spec)
    old = records.content(spec["name"], spec["seed"], 13, records.noise(spec["seed"]))
    overwrite(table, 7 * records.RECORD, old)
    found = records.verify(spec, BUFFERED)
    assert found["examples"] == [{"number": ROUND + 13, "where": "table"}]


@pytest.mark.parametrize(("place", "number", "where"), [(0, 5, "log"), (2, 6, "once")])
def test_one_wrong_byte_is_a_lost_record(written: Written, place: int, number: int, where: str) -> None:
    spec = written(9)
    overwrite(records.paths(spec)[place], 2 * records.RECORD + 5000, b"\0")
    assert records.verify(spec, BUFFERED)["examples"] == [{"number": number, "where": where}]


def test_the_missing_end_of_a_truncated_file_is_lost(written: Written) -> None:
    spec = written(5)
    log, table, once = records.paths(spec)
    os.truncate(once, records.RECORD)
    assert records.verify(spec, BUFFERED)["examples"] == [{"number": 4, "where": "once"}]
    os.truncate(log, 2 * records.RECORD)
    assert records.verify(spec, BUFFERED)["lost"] == 2
    Path(table).unlink()
    assert records.verify(spec, BUFFERED)["lost"] == 4
    Path(once).unlink()
    assert records.verify(spec, BUFFERED)["lost"] == 5


def test_a_record_of_another_writer_does_not_count(written: Written) -> None:
    spec = written(3)
    overwrite(records.paths(spec)[0], 0, records.content("run1-1", spec["seed"], 1, records.noise(spec["seed"])))
    assert records.verify(spec, BUFFERED)["lost"] == 1


def test_a_later_record_that_was_not_acknowledged_is_not_a_loss(written: Written) -> None:
    spec = written(ROUND + 10)
    assert records.verify({**spec, "acknowledged": ROUND + 2}, BUFFERED)["lost"] == 0


def test_a_partial_record_is_accepted_only_where_one_may_be_in_transit(written: Written) -> None:
    spec = written(ROUND)
    _, table, _ = records.paths(spec)
    overwrite(table, 1 * records.RECORD + 9000, b"torn")  # the very next number goes there
    assert records.verify(spec, BUFFERED)["lost"] == 0
    overwrite(table, 100 * records.RECORD + 9000, b"torn")
    assert records.verify(spec, BUFFERED)["lost"] == 1


def test_every_second_record_is_fsynced_once(written: Written, tmp_path: Path) -> None:
    spec = written(4)
    log, _, once = (Path(path).stat().st_size // records.RECORD for path in records.paths(spec))
    assert (log, once) == (2, 2)
    files = [os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT) for name in ("log", "table", "once")]
    synced = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: synced.append(files.index(descriptor)))
        for number in (1, 2, 3, 4):
            records.write_record(files, number, bytes(records.RECORD))
    assert synced == [0, 1, 2, 0, 1, 2]


def test_an_error_stops_the_writer_and_is_reported_with_number_and_time(written: Written) -> None:
    spec, calls, fsync = written(1), iter(range(1, 100)), os.fsync

    def failing(descriptor: int) -> None:
        if next(calls) == 5:  # table, directory, twice for the first record
            raise GoneError(errno.EIO, "gone")
        fsync(descriptor)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "MOST_RECORDS", 9)
        patch.setattr(os, "fsync", failing)
        with pytest.raises(GoneError):
            records.write({**spec, "name": "run1-1"})
    text = acks.text_of(Path(spec["port"]))
    last, failed = acks.acknowledged(text)["run1-1"], acks.failures(text)["run1-1"]
    assert (last.number, failed.number, failed.code) == (1, 2, errno.EIO)
    assert last.at_s <= failed.at_s
    clocks = Path(spec["kernel_log"]).read_text().splitlines()
    assert [line.split()[1] for line in clocks] == ["run1-0", "run1-1", "run1-1"]


# --- acknowledgements ----------------------------------------------------------------------------------------------


def test_only_complete_lines_acknowledge() -> None:
    first, second = records.ack_line("a", 1, 2.5).decode(), records.ack_line("a", 12, 3.25).decode()
    torn, one = second[:7], {"a": acks.WriteOutcome(1, 2.5)}
    assert acks.acknowledged(first + torn) == one
    assert acks.acknowledged(first + torn + "\n") == one
    assert acks.acknowledged(first + torn + records.ack_line("b", 2, 4.0).decode()) == one
    assert acks.acknowledged(second + first) == {"a": acks.WriteOutcome(12, 3.25)}
    assert acks.acknowledged(second.replace(" 3.25", " 3.26")) == {}


def test_errors_and_acknowledgements_are_told_apart() -> None:
    text = (records.ack_line("a", 7, 2.5) + records.failed_line("a", 8, 2.75, 5)).decode()
    assert acks.acknowledged(text) == {"a": acks.WriteOutcome(7, 2.5)}
    assert acks.failures(text) == {"a": acks.WriteOutcome(8, 2.75, 5)}


def test_a_port_without_a_file_acknowledges_nothing(tmp_path: Path) -> None:
    assert acks.read(tmp_path / "none") == {}
    assert acks.count_lines(tmp_path / "none", "triggered") == 0


# --- triggers ------------------------------------------------------------------------------------------------------


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
def test_a_trigger_matches_one_record_of_the_journal(record: object, kind: str, what: str, fits: bool) -> None:
    assert journal_trigger.matches(json.dumps(record).encode(), kind, what) is fits


def test_an_incomplete_line_does_not_match() -> None:
    assert not journal_trigger.matches(b'{"kind":"intent","action":"Crea', "intent", "CreateVolume")


def test_only_records_after_the_start_of_the_watch_match(tmp_path: Path) -> None:
    journal, port = tmp_path / "journal", tmp_path / "port"
    line = json.dumps({"kind": "intent", "action": "AttachVolume"}) + "\n"
    journal.write_text(line)
    descriptor = journal_trigger.at_end(str(journal))
    assert os.read(descriptor, 100) == b""
    with journal.open("a") as file:
        file.write(line)
    journal_trigger.wait_for_record(descriptor, str(journal), "intent", "AttachVolume")
    port.touch()
    journal_trigger.act({"do": "report", "port": str(port), "kind": "intent", "what": "AttachVolume"}, 0)
    assert port.read_text() == "triggered intent AttachVolume\n"
    assert acks.count_lines(port, "triggered") == 1


def test_a_limit_of_any_cgroup_below_the_root_is_detected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("a.slice", ""), ("b.slice", "252:16 rbps=max wbps=1 riops=max wiops=max\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "io.max").write_text(text)
    limited = tmp_path / "b.slice" / "io.max"
    polled: list[float] = []

    def sleep(seconds: float) -> None:
        polled.append(seconds)
        limited.write_text("252:16 rbps=max wbps=1 riops=max wiops=max\n")

    journal_trigger.wait_for_limit("io.max", str(tmp_path))
    limited.write_text("")
    monkeypatch.setattr("time.sleep", sleep)
    journal_trigger.wait_for_limit("io.max", str(tmp_path))
    assert len(polled) == 1


def test_a_spoilt_file_does_not_parse_before_the_daemon_is_killed(tmp_path: Path) -> None:
    corrupted, port, cgroup = tmp_path / "elastio.toml", tmp_path / "port", tmp_path / "cgroup.kill"
    corrupted.write_text("[device]\n")
    port.touch()
    spec = {"do": "kill all", "corrupt": str(corrupted), "port": str(port), "kind": "limit", "what": "io.max"}
    journal_trigger.act({**spec, "cgroup_kill": str(cgroup)}, 0)
    assert cgroup.read_text() == "1"
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads(corrupted.read_text())
    assert port.read_text() == "triggered limit io.max\n"
