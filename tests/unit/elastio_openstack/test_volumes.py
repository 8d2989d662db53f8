"""Cinder's description of a volume, as one server sees it."""

from __future__ import annotations

import pytest

from elastio.core.model import VolumeState
from elastio_openstack.identity import ServerIdentity
from elastio_openstack.provider import OpenstackProvider
from elastio_openstack.settings import parse
from elastio_openstack.volumes import OWNER_KEY, expires, serial_of, state_of, volume_of

ME = "11111111-1111-1111-1111-111111111111"
OTHER = "22222222-2222-2222-2222-222222222222"
ID = "c3a9d1a4-9b5e-4a6f-8d0e-9a2b3c4d5e6f"


@pytest.mark.parametrize(
    ("status", "attached_to", "reserved_for", "state"),
    [
        ("creating", None, None, VolumeState.CREATING),
        ("downloading", None, None, VolumeState.CREATING),
        ("available", None, None, VolumeState.AVAILABLE),
        ("reserved", None, None, VolumeState.ATTACHING),
        ("reserved", None, ME, VolumeState.ATTACHING),
        ("reserved", None, OTHER, VolumeState.ELSEWHERE),
        ("attaching", None, None, VolumeState.ATTACHING),
        ("in-use", None, None, VolumeState.ATTACHING),  # the attachment is not shown yet
        ("in-use", ME, None, VolumeState.ATTACHED),
        ("in-use", OTHER, None, VolumeState.ELSEWHERE),
        ("detaching", None, None, VolumeState.DETACHING),
        ("detaching", ME, None, VolumeState.DETACHING),
        ("detaching", OTHER, None, VolumeState.ELSEWHERE),
        ("deleting", None, None, VolumeState.DELETING),
        ("error", None, None, VolumeState.ERROR),
        ("error_attaching", None, None, VolumeState.ERROR),
        ("error_detaching", None, None, VolumeState.ERROR),
        ("error_deleting", None, None, VolumeState.ERROR),
        ("a-state-of-the-future", None, None, VolumeState.ERROR),
    ],
)
def test_state_is_seen_from_this_server(
    status: str, attached_to: str | None, reserved_for: str | None, state: VolumeState
) -> None:
    attachments = [{"server_id": attached_to, "volume_id": ID}] if attached_to else []
    records = [{"instance": reserved_for}] if reserved_for else []
    assert state_of({"status": status, "attachments": attachments}, ME, records) is state


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


@pytest.mark.parametrize(
    ("owner", "status", "state"),
    [
        ("server-1", "available", VolumeState.AVAILABLE),
        ("server-2", "available", VolumeState.FOREIGN),
        ("server-2", "deleting", VolumeState.FOREIGN),
        (None, "available", VolumeState.UNLABELED),
        ("", "available", VolumeState.UNLABELED),
        (None, "deleting", VolumeState.DELETING),
    ],
)
def test_whose_volume_it_is_shows_in_its_state(owner: str | None, status: str, state: VolumeState) -> None:
    opened = OpenstackProvider(parse({}), "uuid")
    opened._who = ServerIdentity("server-1", "nova")
    labels = {} if owner is None else {OWNER_KEY: owner}
    row = {"id": "v-1", "name": "v", "size": 10, "status": status, "metadata": labels, "attachments": []}
    assert opened._volume(row).state is state
