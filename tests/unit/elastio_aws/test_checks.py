from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import VolumeSpec
from elastio.errors import ElastioError
from elastio.units import GIB
from elastio_aws import checks
from elastio_aws.provider import AwsProvider

from .conftest import respond, returns

SPEC = VolumeSpec(10 * GIB, 200.0)


def failures(provider: AwsProvider, wanted: VolumeSpec = SPEC) -> dict[str, str]:
    """The code of every check that fails, by its name."""
    found = checks.results(provider, wanted)
    return {name: result.code for name, result in found if isinstance(result, ElastioError)}


def texts(provider: AwsProvider) -> dict[str, str]:
    return {name: text for name, _, text in checks.run(provider, SPEC)}


def test_all_is_well_and_nothing_was_bought(provider: Any) -> None:
    results = checks.run(provider, SPEC)
    assert [ok for _, ok, _ in results] == [True] * 9
    assert provider.list_owned() == ()


def test_attach_is_checked_on_an_own_volume(provider: Any) -> None:
    provider.create("token-check", SPEC, {})
    calls = respond(provider, "AttachVolume", 412, "DryRunOperation")
    assert "AWS attach" not in failures(provider)
    assert "DryRun" in calls[0]


@pytest.mark.parametrize(
    ("operation", "name"),
    [("CreateVolume", "AWS create"), ("AttachVolume", "AWS attach"), ("CreateTags", "AWS tag")],
)
def test_missing_permission_is_found(provider: Any, operation: str, name: str) -> None:
    provider.create(f"token-{operation}", SPEC, {})
    respond(provider, operation, 403, "UnauthorizedOperation")
    assert failures(provider) == {name: "UnauthorizedOperation"}


def test_useless_credentials_end_the_checks(provider: Any) -> None:
    respond(provider, "DescribeVolumes", 401, "AuthFailure")
    results = checks.run(provider, SPEC)
    assert [(name, ok) for name, ok, _ in results] == [("AWS instance", True), ("AWS credentials", False)]


def test_unresponsive_metadata_service_fails_the_first_check(open_aws: Any) -> None:
    provider = open_aws(account_id="", metadata_url="http://127.0.0.1:9")
    assert failures(provider)["AWS instance"] == "metadata.unreachable"


def test_too_fast_a_volume_for_the_instance_is_found(provider: Any) -> None:
    assert failures(provider, VolumeSpec(10 * GIB, 1000.0)) == {"AWS bandwidth": "instance.bandwidth"}


def test_check_shows_the_limit_or_the_permission_to_read_it(open_aws: Any) -> None:
    assert "625 MB/s" in texts(open_aws())["AWS bandwidth"]
    provider = open_aws()
    respond(provider, "DescribeInstanceTypes", 403, "UnauthorizedOperation")
    assert "ec2:DescribeInstanceTypes" in texts(provider)["AWS bandwidth"]


def test_check_shows_the_price_and_how_old_it_is(open_aws: Any) -> None:
    assert "USD per hour, at the list price of 2026-11-20" in texts(open_aws())["AWS bandwidth"]
    own = open_aws(prices={"gb_month": 0.1, "mib_s_month": 0.05, "iops_month": 0.006, "currency": "EUR"})
    assert "EUR per hour)" in texts(own)["AWS bandwidth"]
    unknown = open_aws(region="me-central-1", availability_zone="me-central-1a")
    assert "no price is known for me-central-1" in texts(unknown)["AWS bandwidth"]


@pytest.mark.parametrize(
    ("info", "is_full"),
    [
        ({"MaximumEbsAttachments": 2, "AttachmentLimitType": "dedicated"}, False),
        ({"MaximumEbsAttachments": 1, "AttachmentLimitType": "dedicated"}, True),
        ({"MaximumEbsAttachments": 3, "AttachmentLimitType": "shared"}, False),
        ({"MaximumEbsAttachments": 2, "AttachmentLimitType": "shared"}, True),  # the other place is the interface's
        ({"MaximumEbsAttachments": 2}, True),
    ],
)
def test_full_instance_is_found(provider: Any, info: dict[str, object], is_full: bool) -> None:
    returns(provider.ec2().client(), "DescribeInstanceTypes", {"InstanceTypes": [{"EbsInfo": info}]})
    assert failures(provider) == ({"AWS attachments": "instance.attachments"} if is_full else {})


def test_what_shares_the_places_of_volumes_is_named(provider: Any) -> None:
    shared = {"MaximumEbsAttachments": 28, "AttachmentLimitType": "shared"}
    returns(provider.ec2().client(), "DescribeInstanceTypes", {"InstanceTypes": [{"EbsInfo": shared}]})
    assert "network interfaces" in texts(provider)["AWS attachments"]


@pytest.mark.parametrize(("zone", "found"), [("us-east-1-bos-1a", {"zone", "endpoint"}), ("us-east-1a", {"endpoint"})])
def test_local_zone_is_pointed_out(open_aws: Any, zone: str, found: set[str]) -> None:
    assert set(checks.oddities(open_aws(availability_zone=zone))) == found


def test_proxy_that_would_be_asked_for_credentials_is_pointed_out(provider: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert "proxy" in checks.oddities(provider)
    monkeypatch.setenv("NO_PROXY", "localhost,169.254.169.254")
    assert "proxy" not in checks.oddities(provider)
