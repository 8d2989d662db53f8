"""Notices of an interruption, from the metadata service: one request per poll, malformed ones are errors."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from elastio.core.model import Notice
from elastio.errors import TransientError
from elastio_aws.notices import MAINTENANCE_LEAD_S, RENEW_S, NoticeReader, parse, parse_scheduled
from elastio_sim.clock import SimClock
from tests.fixtures.errors import refused

from .conftest import Metadata

TEXT = '{"action": "terminate", "time": "2026-11-20T08:22:00Z"}'
AT = 1795162920.0


def test_http_404_means_no_notice_and_costs_one_request(metadata_service: Metadata) -> None:
    metadata_service.statuses = [200, 404, 404, 404, 404]
    reader = NoticeReader(metadata_service.url, SimClock().now)
    assert [reader.read() for _ in range(3)] == [None, None, None]
    asked = [path.rpartition("/meta-data/")[2] for _, path, _ in metadata_service.seen]
    spot, maintenance = "spot/instance-action", "events/maintenance/scheduled"
    assert asked[1:] == [spot, maintenance, spot, spot]


def test_unresponsive_service_gets_one_request_per_poll(metadata_service: Metadata) -> None:
    """The poll runs in the same worker as purchases."""
    metadata_service.statuses = [500, 500]
    with pytest.raises(TransientError):
        NoticeReader(metadata_service.url).read()
    assert len(metadata_service.seen) == 1


EVENT = {"Code": "instance-stop", "NotBefore": "20 Nov 2026 08:22:00 GMT", "State": "active", "EventId": "e-1"}


@pytest.mark.parametrize(
    ("changes", "before_s", "found"),
    [
        ({}, MAINTENANCE_LEAD_S, Notice("stop", AT)),
        ({"Code": "instance-retirement"}, -60.0, Notice("terminate", AT)),
        ({}, MAINTENANCE_LEAD_S + 1, None),  # known for days: too early to stop boosting
        ({"Code": "system-reboot"}, 0.0, None),  # the volumes stay attached
        ({"State": "canceled"}, 0.0, None),
    ],
)
def test_stop_or_retirement_within_the_lead_time_is_a_notice(
    metadata_service: Metadata, changes: dict[str, str], before_s: float, found: Notice | None
) -> None:
    metadata_service.statuses = [200, 404]
    metadata_service.document = json.dumps([{**EVENT, **changes}])
    assert NoticeReader(metadata_service.url, SimClock().now, lambda: AT - before_s).read() == found


def test_the_session_is_renewed_before_it_ends(metadata_service: Metadata) -> None:
    metadata_service.document, clock = TEXT, SimClock()
    reader = NoticeReader(metadata_service.url, clock.now)
    reader.read()
    clock.advance(RENEW_S)
    reader.read()
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


def test_rejected_session_is_replaced_in_the_next_poll(metadata_service: Metadata) -> None:
    metadata_service.document, metadata_service.statuses = TEXT, [200, 401]
    reader = NoticeReader(metadata_service.url, SimClock().now)
    with refused(TransientError, "metadata.401"):
        reader.read()
    assert reader.read() == Notice("terminate", AT)
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


@pytest.mark.parametrize(
    ("read", "body"),
    [
        *((read, body) for read in (parse, parse_scheduled) for body in (b"", b"<html>", b"{}x", b"\xff")),
        (parse, b"[]"),
        (parse, b"{}"),
        (parse, b'{"action": "terminate", "time": "soon"}'),
        (parse, b'{"action": "terminate", "time": 5}'),
        (parse, b'{"action": "terminate", "time": "2026-11-20T08:22:00"}'),
        (parse, b'{"action": "dance", "time": "2026-11-20T08:22:00Z"}'),
        (parse_scheduled, b"[5]"),
        (parse_scheduled, b'[{"Code": "instance-stop", "State": "active"}]'),
    ],
)
def test_malformed_notice_is_transient(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(TransientError):
        read(body)
