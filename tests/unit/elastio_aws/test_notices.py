"""Notices of an interruption, from the metadata service: one request per poll, malformed ones are errors."""

from __future__ import annotations

import json

import pytest

from elastio.core.model import Notice
from elastio.errors import TransientError
from elastio_aws.notices import MAINTENANCE_LEAD_S, RENEW_S, NoticeReader, parse, parse_scheduled

from .conftest import Metadata, Seconds

TEXT = '{"action": "terminate", "time": "2026-11-20T08:22:00Z"}'
AT = 1795162920.0


def test_http_404_means_no_notice_and_costs_one_request(metadata_service: Metadata) -> None:
    metadata_service.statuses = [200, 404, 404, 404, 404]
    reader = NoticeReader(metadata_service.url, Seconds())
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
    assert NoticeReader(metadata_service.url, Seconds(), lambda: AT - before_s).read() == found


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}x", b"[5]", b'[{"Code": "instance-stop", "State": "active"}]'])
def test_malformed_maintenance_events_are_transient(body: bytes) -> None:
    with pytest.raises(TransientError):
        parse_scheduled(body)


def test_the_session_is_renewed_before_it_ends(metadata_service: Metadata) -> None:
    metadata_service.document, seconds = TEXT, Seconds()
    reader = NoticeReader(metadata_service.url, seconds)
    reader.read()
    seconds.now = RENEW_S
    reader.read()
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


def test_rejected_session_is_replaced_in_the_next_poll(metadata_service: Metadata) -> None:
    metadata_service.document, metadata_service.statuses = TEXT, [200, 401]
    reader = NoticeReader(metadata_service.url, Seconds())
    with pytest.raises(TransientError) as caught:
        reader.read()
    assert caught.value.code == "metadata.401"
    assert reader.read() == Notice("terminate", AT)
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"action": "terminate", "time": "soon"}',
        b'{"action": "terminate", "time": 5}',
        b'{"action": "terminate", "time": "2026-11-20T08:22:00"}',
        b'{"action": "dance", "time": "2026-11-20T08:22:00Z"}',
        b"\xff",
    ],
)
def test_malformed_spot_action_is_transient(body: bytes) -> None:
    with pytest.raises(TransientError):
        parse(body)
