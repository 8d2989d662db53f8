"""The sender of log records, into a real datagram socket."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.host import journald
from elastio.host.journald import MAX_VALUE_BYTES, NOTICE, JournaldHandler

from .journald_records import Journald, journald_at


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journald]:
    with journald_at(tmp_path / "socket") as receiver:
        yield receiver


@pytest.fixture
def handler(tmp_path: Path) -> Iterator[JournaldHandler]:
    sender = JournaldHandler(tmp_path / "socket")
    yield sender
    sender.close()


def record(message: str, level: int = logging.INFO, **fields: str) -> logging.LogRecord:
    made = logging.LogRecord("elastio.some", level, __file__, 1, message, (), None)
    made.fields = fields
    return made


def test_a_record_has_its_fields_and_its_priority(journal: Journald, handler: JournaldHandler) -> None:
    handler.emit(record("bought", NOTICE, VOLUME="vol-1", GIB="2"))
    assert journal.records() == [
        {
            "MESSAGE": "bought",
            "PRIORITY": "5",
            "SYSLOG_IDENTIFIER": "elastiod",
            "LOGGER": "elastio.some",
            "VOLUME": "vol-1",
            "GIB": "2",
        }
    ]


@pytest.mark.parametrize(
    ("level", "priority"),
    [(logging.CRITICAL, "2"), (logging.ERROR, "3"), (logging.WARNING, "4"), (logging.INFO, "6"), (logging.DEBUG, "7")],
)
def test_each_level_has_its_priority(level: int, priority: str, journal: Journald, handler: JournaldHandler) -> None:
    handler.emit(record("x", level))
    assert journal.records()[0]["PRIORITY"] == priority


def test_a_value_of_several_lines_adds_no_field(journal: Journald, handler: JournaldHandler) -> None:
    handler.emit(record("first\nPRIORITY=0", REASON="a\nVOLUME=vol-2\n"))
    (seen,) = journal.records()
    assert (seen["MESSAGE"], seen["REASON"], seen["PRIORITY"]) == ("first\nPRIORITY=0", "a\nVOLUME=vol-2\n", "6")
    assert "VOLUME" not in seen


def test_the_largest_record_fits(journal: Journald, handler: JournaldHandler) -> None:
    fields = {f"FIELD_{n}": "y\n" * 10**6 for n in range(20)}
    handler.emit(record("x" * 10**6, logging.INFO, **fields))
    (seen,) = journal.records()
    assert {len(value) for name, value in seen.items() if name.startswith(("FIELD", "MESSAGE"))} == {MAX_VALUE_BYTES}


def test_a_traceback_is_part_of_the_message(journal: Journald, handler: JournaldHandler) -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        made = record("failed", logging.ERROR)
        made.exc_info = (ValueError, error, error.__traceback__)
    handler.emit(made)
    assert "ValueError: why" in journal.records()[0]["MESSAGE"]


def test_a_journal_that_takes_nothing_delays_nobody_and_is_told_what_it_missed(
    journal: Journald, handler: JournaldHandler
) -> None:
    sent = 5000
    for number in range(sent):
        handler.emit(record(str(number)))
    taken = len(journal.records())
    assert taken < sent
    handler.emit(record("later"))
    handler.emit(record("last"))
    later, last = journal.records()
    assert later["ELASTIO_LOST_RECORDS"] == str(sent - taken)
    assert "ELASTIO_LOST_RECORDS" not in last


def test_without_a_journal_records_are_lines_with_their_priority(
    handler: JournaldHandler, capsys: pytest.CaptureFixture[str]
) -> None:
    handler.emit(record("first\nsecond", logging.ERROR))
    assert capsys.readouterr().err == "<3>first second\n"


def test_stderr_is_the_journal_only_if_it_is_the_very_stream(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        seen = os.fstat(stream.fileno())
        name = f"{seen.st_dev}:{seen.st_ino}"
        assert journald.is_journal(stream.fileno(), {"JOURNAL_STREAM": name})
        assert not journald.is_journal(stream.fileno(), {"JOURNAL_STREAM": f"{name}1"})
        assert not journald.is_journal(stream.fileno(), {})
    assert not journald.is_journal(stream.fileno() if not stream.closed else 10**6, {"JOURNAL_STREAM": name})


def test_elsewhere_a_record_is_a_plain_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    journald.handler({}).emit(record("bought", NOTICE))
    assert capsys.readouterr().err == "NOTICE bought\n"
