"""Cinder's description of a volume, as one server sees it."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import VolumeState
from elastio_openstack.volumes import expires, serial_of, state_of, volume_of

ME = "11111111-1111-1111-1111-111111111111"
OTHER = "22222222-2222-2222-2222-222222222222"
ID = "c3a9d1a4-9b5e-4a6f-8d0e-9a2b3c4d5e6f"


def _at(server: str) -> list[dict[str, Any]]:
    return [{"server_id": server, "volume_id": ID}]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("creating", VolumeState.CREATING),
        ("downloading", VolumeState.CREATING),
        ("available", VolumeState.AVAILABLE),
        ("reserved", VolumeState.ATTACHING),
        ("attaching", VolumeState.ATTACHING),
        ("detaching", VolumeState.DETACHING),
        ("deleting", VolumeState.DELETING),
        ("error", VolumeState.ERROR),
        ("error_attaching", VolumeState.ERROR),
        ("error_detaching", VolumeState.ERROR),
        ("error_deleting", VolumeState.ERROR),
        ("a-state-of-the-future", VolumeState.ERROR),
    ],
)
def test_status_has_its_state(status: str, state: VolumeState) -> None:
    assert state_of({"status": status}, ME) is state


@pytest.mark.parametrize(
    ("status", "server", "state"),
    [
        ("in-use", ME, VolumeState.ATTACHED),
        ("in-use", OTHER, VolumeState.ELSEWHERE),
        ("detaching", ME, VolumeState.DETACHING),
        ("detaching", OTHER, VolumeState.ELSEWHERE),
    ],
)
def test_attachment_shows_where_the_volume_is(status: str, server: str, state: VolumeState) -> None:
    assert state_of({"status": status, "attachments": _at(server)}, ME) is state


def test_attachment_record_shows_for_which_server_a_volume_is_reserved() -> None:
    assert state_of({"status": "reserved"}, ME, [{"instance": OTHER}]) is VolumeState.ELSEWHERE
    assert state_of({"status": "reserved"}, ME, [{"instance": ME}]) is VolumeState.ATTACHING


def test_in_use_without_an_attachment_shown_yet_is_attaching() -> None:
    assert state_of({"status": "in-use", "attachments": []}, ME) is VolumeState.ATTACHING


def test_serial_is_what_virtio_has_room_for() -> None:
    assert serial_of(ID) == "c3a9d1a4-9b5e-4a6f-8"


def test_creation_time_is_utc_and_the_same_with_and_without_microseconds() -> None:
    times = ("2026-11-21T03:05:20.123456", "2026-11-21T03:05:20.000000")
    walls = {volume_of({"id": ID, "created_at": t}, ME).created_wall for t in times}
    assert walls == {1795230320.0}


def test_volume_without_our_metadata_is_shown_without_token() -> None:
    volume = volume_of({"id": ID, "status": "available", "size": 1, "metadata": {"elastio:bandwidth-mb-s": "?"}}, ME)
    assert (volume.token, volume.backing_uuid, volume.bandwidth_mb_s, volume.created_wall) == ("", "", 0.0, 0.0)


def test_expiry_is_a_full_hour_after_the_lifetime() -> None:
    assert expires(1_800_000_000.0, 3600.0) == "2027-01-15T09:00:00Z"
