"""The view of a whole account, and the state tag that it relies on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from elastio.core.model import VolumeId, VolumeSpec, VolumeTag
from elastio.errors import ConfigError, TransientError
from elastio.janitor import sweep
from elastio.units import GIB
from elastio_aws.fleet import AwsFleet, expiry_of, open_fleet
from elastio_aws.volumes import tag_of
from tests.fixtures.errors import refused
from tests.values import present

from .conftest import BACKING, REGION, returns

SPEC = VolumeSpec(10 * GIB, 200.0)
FAR = 4e9


@pytest.fixture
def fleet(moto_url: str) -> Iterator[AwsFleet]:
    opened = open_fleet({"endpoint_url": moto_url, "region": REGION, "max_attempts": 1})
    yield opened
    opened.close()


@pytest.mark.parametrize("text", ["CLEAN", "clean ", "", "cleanish"])
def test_other_tag_value_counts_as_unknown(text: str) -> None:
    assert tag_of({"elastio:state": text}) is VolumeTag.UNKNOWN
    assert tag_of({}) is VolumeTag.UNKNOWN


def test_fleet_shows_volumes_with_their_tags(provider: Any, fleet: AwsFleet, instance_id: str) -> None:
    bought = provider.create("fleet-1", SPEC, {})
    shown = present(fleet.volume(bought.id))
    assert shown in list(fleet.volumes())
    assert (shown.is_free, shown.size_bytes, shown.backing_uuid) == (True, 10 * GIB, BACKING)
    assert shown.owner.endswith(instance_id)
    assert present(shown.expires_wall) % 3600 == 0


def test_only_clean_orphans_are_swept(provider: Any, fleet: AwsFleet, sdk: Any, instance_id: str) -> None:
    """A machine that dies between the purchase and the first dirty byte leaves nothing that is billed for ever."""
    never_used, dirty, odd, untagged, used = (provider.create(f"swept-{n}", SPEC, {}).id for n in range(5))
    foreign = sdk.create_volume(AvailabilityZone="us-east-1a", Size=1)["VolumeId"]
    provider.tag(dirty, VolumeTag.DIRTY)
    sdk.create_tags(Resources=[odd], Tags=[{"Key": "elastio:state", "Value": "washed"}])
    sdk.delete_tags(Resources=[untagged], Tags=[{"Key": "elastio:state"}])
    provider.attach(used)
    judged = {v.volume.id: v.outcome for v in sweep(fleet, FAR, dry_run=False)}
    kept = (dirty, odd, untagged, used)
    assert [judged[volume_id] for volume_id in (never_used, *kept)] == ["deleted", *["kept"] * 4]
    assert foreign not in judged
    assert fleet.volume(never_used) is None
    fleet.delete(never_used)
    assert {*kept, foreign} <= {v["VolumeId"] for v in sdk.describe_volumes()["Volumes"]}


def test_unreadable_expiry_is_none() -> None:
    assert expiry_of("2026-11-20T08:00:00Z") == 1795161600.0
    assert [expiry_of(text) for text in ("", "soon", "2026-11-20", "2026-11-20T08:00:00")] == [None] * 4


def test_janitor_needs_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with refused(ConfigError, "provider.aws.region"):
        open_fleet({})
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    open_fleet({}).close()


@pytest.mark.parametrize("shown", [{"VolumeId": "vol-2"}, {"State": "available"}])
def test_response_with_another_volume_is_transient(fleet: AwsFleet, shown: dict[str, str]) -> None:
    returns(fleet.ec2().client(), "DescribeVolumes", {"Volumes": [shown]})
    with pytest.raises(TransientError):
        fleet.volume(VolumeId("vol-1"))


def test_volume_without_an_id_is_transient(fleet: AwsFleet) -> None:
    returns(fleet.ec2().client(), "DescribeVolumes", {"Volumes": [{"State": "available"}]})
    with pytest.raises(TransientError):
        list(fleet.volumes())
