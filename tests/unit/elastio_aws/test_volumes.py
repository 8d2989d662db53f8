from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from elastio.core.model import Serial, VolumeState
from elastio_aws.devices import NAMES, DeviceNames
from elastio_aws.settings import Scale
from elastio_aws.volumes import expires, id_of, reserved_mb_s, serial_of, state_of, tag_list, volume_of

ME, OTHER = "i-me", "i-other"


def _shown(state: str, *attachments: tuple[str, str]) -> dict[str, Any]:
    return {"State": state, "Attachments": [{"InstanceId": who, "State": how} for who, how in attachments]}


@pytest.mark.parametrize(
    ("shown", "state"),
    [
        (_shown("creating"), VolumeState.CREATING),
        (_shown("available"), VolumeState.AVAILABLE),
        (_shown("in-use", (ME, "attaching")), VolumeState.ATTACHING),
        (_shown("in-use", (ME, "attached")), VolumeState.ATTACHED),
        (_shown("in-use", (ME, "detaching")), VolumeState.DETACHING),
        (_shown("in-use", (ME, "busy")), VolumeState.BUSY),
        (_shown("in-use", (OTHER, "attached")), VolumeState.ELSEWHERE),
        (_shown("in-use", (OTHER, "detached"), (ME, "attached")), VolumeState.ATTACHED),
        (_shown("in-use"), VolumeState.ATTACHING),
        (_shown("available", (ME, "detached")), VolumeState.AVAILABLE),
        (_shown("available", (ME, "detaching")), VolumeState.DETACHING),
        (_shown("deleting"), VolumeState.DELETING),
        (_shown("deleted"), VolumeState.GONE),
        (_shown("error"), VolumeState.ERROR),
        (_shown("something-new"), VolumeState.ERROR),
    ],
)
def test_state_is_seen_from_this_instance(shown: dict[str, Any], state: VolumeState) -> None:
    assert state_of(shown, ME) == state


def test_volume_is_read_in_bytes_and_mb_s_of_the_scale() -> None:
    shown = {
        **_shown("available"),
        "VolumeId": "vol-0123456789abcdef0",
        "Size": 10,
        "Throughput": 200,
        "Iops": 3000,
        "CreateTime": datetime(2026, 1, 1, tzinfo=UTC),
        "Tags": [{"Key": "elastio:cycle", "Value": "token"}, {"Key": "elastio:backing", "Value": "uuid"}],
    }
    volume = volume_of(shown, ME, Scale(gib_bytes=4096, mib_s_bytes=10**6))
    assert volume.serial == "vol0123456789abcdef0"
    assert len(volume.serial) == 20
    assert (volume.size_bytes, volume.bandwidth_mb_s, volume.iops) == (40960, 200.0, round(3000 * 10**6 / 2**20))
    assert (volume.token, volume.backing_uuid) == ("token", "uuid")
    assert volume.created_wall == datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_requested_tags_are_used_until_they_are_shown() -> None:
    shown = {**_shown("creating"), "VolumeId": "vol-1"}
    assert volume_of(shown, ME, Scale(), {"elastio:cycle": "token"}).token == "token"


def test_tags_are_listed_in_one_order() -> None:
    assert tag_list({"b": "2", "a": "1"}) == tag_list({"a": "1", "b": "2"})


def test_expiry_is_the_same_within_an_hour_and_never_early() -> None:
    at = datetime(2026, 1, 1, 10, 0, 1, tzinfo=UTC).timestamp()
    assert expires(at, 86400) == expires(at + 3598, 86400) == "2026-01-02T11:00:00Z"
    assert expires(at + 3600, 86400) == "2026-01-02T12:00:00Z"


def test_same_volume_gets_the_same_name_proposed() -> None:
    names = DeviceNames()
    first = next(names.propose("vol-1"))
    names.remember(first, "vol-1")
    assert next(names.propose("vol-1")) == first
    assert next(DeviceNames().propose("vol-1")) == first


def test_recently_used_name_is_not_proposed_for_another_volume() -> None:
    names = DeviceNames()
    taken = next(names.propose("vol-1"))
    names.remember(taken, "vol-2")
    assert taken not in set(names.propose("vol-1"))
    assert len(set(names.propose("vol-1"))) == len(NAMES) - 1


def test_names_never_run_out() -> None:
    names = DeviceNames()
    for number in range(200):
        names.remember(next(names.propose(f"vol-{number}")), f"vol-{number}")
    assert len(list(names.propose("vol-new"))) == len(NAMES) - 26


@pytest.mark.parametrize("serial", ["vol0123456789abcdef0", "vol-0123456789abcdef0"])
def test_a_volume_is_found_by_the_serial_of_its_disk(serial: str) -> None:
    found = id_of(Serial(serial))
    assert found == "vol-0123456789abcdef0"
    assert serial_of(str(found)) == "vol0123456789abcdef0"


@pytest.mark.parametrize("serial", ["", "AWS1234567890", "vol", "0b6f4c1e-5d0c-4a57-9"])
def test_a_disk_that_is_not_of_ebs_has_no_volume(serial: str) -> None:
    assert id_of(Serial(serial)) is None


@pytest.mark.parametrize(
    ("shown", "mb_s"),
    [
        ({"VolumeType": "gp3", "Throughput": 125}, 131.072),
        ({"VolumeType": "gp3"}, None),
        ({"VolumeType": "gp2", "Throughput": 250}, None),
        ({"VolumeType": "st1", "Size": 500}, None),
    ],
)
def test_only_gp3_has_a_bandwidth_of_its_own(shown: dict[str, Any], mb_s: float | None) -> None:
    assert reserved_mb_s(shown, Scale()) == mb_s
