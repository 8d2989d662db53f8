"""Notices of an interruption, from the metadata service: one request a look, and no half truths."""

from __future__ import annotations

import json

import pytest

from elastio.core.model import Notice
from elastio.errors import RefusedError, TransientError
from elastio_aws.notices import MAINTENANCE_LEAD_S, RENEW_S, NoticeReader, parse, parse_scheduled

from .conftest import Metadata

TEXT = '{"action": "terminate", "time": "2026-11-20T08:22:00Z"}'
AT = 1795162920.0


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_notice_is_what_happens_and_when(metadata_service: Metadata) -> None:
    metadata_service.document = TEXT
    assert NoticeReader(metadata_service.url).read() == Notice("terminate", AT)
    assert metadata_service.seen[-1][1] == "/prefix/latest/meta-data/spot/instance-action"


def test_not_found_means_no_notice_and_costs_one_request(metadata_service: Metadata) -> None:
    metadata_service.statuses = [200, 404, 404, 404, 404]
    reader = NoticeReader(metadata_service.url, Seconds())
    assert [reader.read() for _ in range(3)] == [None, None, None]
    asked = [path.rpartition("/meta-data/")[2] for _, path, _ in metadata_service.seen]
    spot, maintenance = "spot/instance-action", "events/maintenance/scheduled"
    assert asked[1:] == [spot, maintenance, spot, spot]


def test_a_silent_service_is_asked_once_a_look(metadata_service: Metadata) -> None:
    """The look shares its worker with purchases."""
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
        ({}, MAINTENANCE_LEAD_S + 1, None),  # known for days: no reason to stand still for so long
        ({"Code": "system-reboot"}, 0.0, None),  # the volumes stay attached
        ({"State": "canceled"}, 0.0, None),
    ],
)
def test_maintenance_that_is_near_and_takes_the_machine_away_is_a_notice(
    metadata_service: Metadata, changes: dict[str, str], before_s: float, found: Notice | None
) -> None:
    metadata_service.statuses = [200, 404]
    metadata_service.document = json.dumps([{**EVENT, **changes}])
    assert NoticeReader(metadata_service.url, Seconds(), lambda: AT - before_s).read() == found


@pytest.mark.parametrize("body", [b"", b"<html>", b"{}x", b"[5]", b'[{"Code": "instance-stop", "State": "active"}]'])
def test_maintenance_that_is_not_understood_is_no_absence_of_it(body: bytes) -> None:
    with pytest.raises(TransientError):
        parse_scheduled(body)


def test_the_session_is_renewed_before_it_ends(metadata_service: Metadata) -> None:
    metadata_service.document, seconds = TEXT, Seconds()
    reader = NoticeReader(metadata_service.url, seconds)
    reader.read()
    seconds.now = RENEW_S
    reader.read()
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


def test_a_session_that_is_refused_is_opened_anew_at_the_next_look(metadata_service: Metadata) -> None:
    metadata_service.document, metadata_service.statuses = TEXT, [200, 401]
    reader = NoticeReader(metadata_service.url, Seconds())
    with pytest.raises(TransientError, match="401"):
        reader.read()
    assert reader.read() == Notice("terminate", AT)
    assert [verb for verb, _, _ in metadata_service.seen] == ["PUT", "GET", "PUT", "GET"]


def test_version_2_switched_off_is_said_so(metadata_service: Metadata) -> None:
    metadata_service.statuses = [403]
    with pytest.raises(RefusedError, match="IMDSv2"):
        NoticeReader(metadata_service.url).read()


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
def test_what_is_not_understood_is_no_notice_and_no_absence_of_one(body: bytes) -> None:
    with pytest.raises(TransientError):
        parse(body)
