"""The tables of log events, and their page."""

from __future__ import annotations

import dataclasses
import uuid

from elastio.agent.log_events import FIELDS, EventKind, LogEvent, Priority, fields_of, to_dict

from . import log_page
from .log_page import PAGE, page


def test_the_reference_page_is_made_from_the_tables() -> None:
    assert PAGE.read_text() == page(), f"write it again: python {log_page.__file__}"


def test_every_kind_has_a_message_id_of_its_own() -> None:
    ids = [uuid.UUID(kind.message_id) for kind in EventKind]
    assert len(set(ids)) == len(ids)
    assert all(one.version == 4 and kind.message_id == one.hex for one, kind in zip(ids, EventKind, strict=True))


def test_every_field_is_described() -> None:
    assert [f.name for f in dataclasses.fields(LogEvent)][3:] == list(FIELDS)


def test_a_fault_is_an_error_and_what_is_refused_or_capped_a_warning() -> None:
    assert [kind for kind in EventKind if kind.priority is Priority.ERR] == [EventKind.FAULT]
    for kind in (EventKind.BOOST_REFUSED, EventKind.BOOST_CAPPED, EventKind.ERROR):
        assert kind.priority is Priority.WARNING
    for kind in (EventKind.BOOST_WANTED, EventKind.BOOST_OVER):
        assert kind.priority is Priority.NOTICE
    assert EventKind.VOLUME_CREATED.priority is Priority.INFO


def test_json_has_all_keys_and_the_journal_only_what_is_known() -> None:
    event = LogEvent(
        EventKind.VOLUME_CREATED, 1_767_225_600.5, "bought", volume="vol-1", gib=2.0, price_per_hour=0.005021
    )
    shown = to_dict(event)
    assert list(shown) == ["time", "event", "priority", "message", "message_id", *FIELDS]
    assert (shown["time"], shown["gib"], shown["cost"]) == ("2026-01-01T00:00:00.500Z", 2.0, None)
    assert fields_of(event) == {
        "MESSAGE_ID": EventKind.VOLUME_CREATED.message_id,
        "ELASTIO_EVENT": "volume-created",
        "VOLUME": "vol-1",
        "GIB": "2",
        "PRICE_PER_HOUR": "0.005021",
    }
