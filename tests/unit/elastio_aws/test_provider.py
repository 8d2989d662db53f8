"""The provider with the real SDK against moto: the requests it sends, and how it takes the responses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from elastio.core.model import VolumeId, VolumeSpec, VolumeState
from elastio.errors import AuthError, NotOursError, RefusedError, TransientError
from elastio.units import GIB, MIB
from elastio_aws.provider import AwsProvider
from elastio_aws.volumes import OWNER_TAG
from tests.fixtures.errors import refused

from .conftest import respond, returns

SPEC = VolumeSpec(10 * GIB, 200.0)
UNKNOWN = VolumeId("vol-0123456789abcdef0")


def _raw(sdk: Any, volume_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = sdk.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    return shown


@pytest.mark.runs_programs
def test_importing_and_opening_loads_no_sdk() -> None:
    script = (
        "import sys; from elastio_aws.provider import open_provider; open_provider({}, 'uuid'); "
        "sys.exit(any(name in sys.modules for name in ('boto3', 'botocore')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_volume_is_created_as_specified(open_aws: Any, sdk: Any, instance_id: str) -> None:
    volume = open_aws(extra_tags={"team": "hpc"}).create("token-1", SPEC, {"phase": "7", "elastio:owner": "someone"})
    raw = _raw(sdk, volume.id)
    assert (raw["VolumeType"], raw["Size"], raw["Iops"], raw["Throughput"]) == ("gp3", 10, 3000, 191)
    assert raw["AvailabilityZone"] == "us-east-1a"
    assert raw["Encrypted"] is False
    tags = {tag["Key"]: tag["Value"] for tag in raw["Tags"]}
    assert tags.pop("elastio:expires").endswith(":00:00Z")
    assert tags == {
        "elastio:owner": f"arn:aws:ec2:us-east-1:123456789012:instance/{instance_id}",
        "elastio:cycle": "token-1",
        "elastio:backing": "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e",
        "elastio:state": "clean",
        "Name": f"elastio {instance_id}",
        "team": "hpc",
        "phase": "7",
    }
    assert volume.token == "token-1"
    assert volume.size_bytes == 10 * GIB
    assert volume.bandwidth_mb_s == pytest.approx(191 * MIB / 1e6)


@pytest.mark.parametrize("token", ["", "x" * 65, "tök"])
def test_token_that_ec2_would_not_accept_is_refused(provider: Any, token: str) -> None:
    with refused(RefusedError, "token.invalid"):
        provider.create(token, SPEC, {})


def test_repeated_create_sends_the_same_request_later(open_aws: Any) -> None:
    now = iter(range(0, 10**9, 7200))
    first = open_aws()
    provider = AwsProvider(first.settings, "uuid", wall=lambda: next(now))
    calls = respond(provider, "CreateVolume", 503, "Unavailable")
    for token in ("a", "a", "b"):
        with pytest.raises(TransientError):
            provider.create(token, SPEC, {})
    provider.close()
    assert calls[0] == calls[1]
    assert calls[1] != calls[2].replace("ClientToken=b", "ClientToken=a")


def test_encryption_is_requested(open_aws: Any) -> None:
    provider = open_aws(encrypted=True, kms_key_id="alias/mine")
    calls = respond(provider, "CreateVolume", 503, "Unavailable")
    with pytest.raises(TransientError):
        provider.create("token", SPEC, {})
    assert "Encrypted" in calls[0]
    assert "alias" in calls[0]


def test_mismatch_without_a_visible_volume_is_transient(provider: Any) -> None:
    respond(provider, "CreateVolume", 400, "IdempotentParameterMismatch")
    with pytest.raises(TransientError):
        provider.create("token-burnt", SPEC, {})


@pytest.mark.parametrize(
    "text",
    [
        "Invalid value '/dev/xvdba' for unixDevice. Attachment point /dev/xvdba is already in use",
        "Value (/dev/xvdcy) for parameter device is invalid. /dev/xvdcy is not a valid EBS device name.",
    ],
)
def test_taken_or_invalid_device_name_leads_to_the_next(provider: Any, text: str) -> None:
    volume = provider.create(f"token-name-{len(text)}", SPEC, {})
    calls = respond(provider, "AttachVolume", 400, "InvalidParameterValue", text)
    with pytest.raises(TransientError):
        provider.attach(volume.id)
    assert len(calls) == len(set(calls)) == 4
    with pytest.raises(TransientError):
        provider.attach(volume.id)
    assert len(set(calls)) == 8


def test_other_bad_value_is_refused_after_one_call(provider: Any) -> None:
    volume = provider.create("token-bad-instance", SPEC, {})
    calls = respond(provider, "AttachVolume", 400, "InvalidParameterValue", "Bad instance.")
    with refused(RefusedError, "InvalidParameterValue"):
        provider.attach(volume.id)
    assert len(calls) == 1


def test_detach_is_never_forced(provider: Any) -> None:
    volume = provider.create("token-force", SPEC, {})
    calls = respond(provider, "DetachVolume", 503, "Unavailable")
    with pytest.raises(TransientError):
        provider.detach(volume.id)
    assert "Force" not in calls[0]


@pytest.mark.parametrize("code", ["IncorrectState", "InvalidAttachment.NotFound", "InvalidVolume.NotFound"])
def test_refused_detach_succeeds_when_not_attached(provider: Any, code: str) -> None:
    volume = provider.create("token-detached", SPEC, {})
    calls = respond(provider, "DetachVolume", 400, code)
    provider.detach(volume.id)
    provider.detach(UNKNOWN)
    assert len(calls) == 1


@pytest.mark.parametrize(("operation", "is_attached"), [("DetachVolume", True), ("DeleteVolume", False)])
def test_call_refused_in_a_passing_state_is_transient(provider: Any, operation: str, is_attached: bool) -> None:
    volume = provider.create(f"token-{operation}", SPEC, {})
    if is_attached:
        provider.attach(volume.id)
    respond(provider, operation, 400, "IncorrectState")
    with refused(TransientError, "IncorrectState"):
        (provider.detach if is_attached else provider.delete)(volume.id)


def test_missing_owner_tag_is_assumed_where_it_was_seen_before(open_aws: Any, sdk: Any) -> None:
    """DescribeVolumes may lag behind, but a tag with another owner counts at once."""
    provider = open_aws()
    volume = provider.create("token-lag", SPEC, {})
    sdk.delete_tags(Resources=[volume.id], Tags=[{"Key": OWNER_TAG}])
    assert provider.describe(volume.id).state is VolumeState.AVAILABLE
    later = open_aws()
    assert later.describe(volume.id).state is VolumeState.UNLABELED
    sdk.create_tags(Resources=[volume.id], Tags=[{"Key": OWNER_TAG, "Value": "another"}])
    assert provider.describe(volume.id).state is VolumeState.FOREIGN
    with pytest.raises(NotOursError):
        provider.attach(volume.id)


def test_volume_of_another_owner_in_a_response_to_create_is_refused(provider: Any) -> None:
    shown = {"VolumeId": "vol-1", "State": "creating", "Tags": [{"Key": OWNER_TAG, "Value": "another"}]}
    returns(provider.ec2().client(), "CreateVolume", shown)
    with pytest.raises(RefusedError):
        provider.create("token-shared", SPEC, {})


def test_list_owned_follows_every_page(provider: Any) -> None:
    ours = [{"Key": OWNER_TAG, "Value": provider.who().arn}]
    first = {"Volumes": [{"VolumeId": "vol-1", "State": "available", "Tags": ours}], "NextToken": "more"}
    last = {"Volumes": [{"VolumeId": "vol-2", "State": "available", "Tags": ours}]}
    asked = returns(provider.ec2().client(), "DescribeVolumes", first, last)
    assert [volume.id for volume in provider.list_owned()] == ["vol-1", "vol-2"]
    assert asked[0]["MaxResults"] == 500
    assert asked[1]["NextToken"] == "more"


@pytest.mark.parametrize(
    "shown",
    [
        {"VolumeId": "vol-1", "State": "available"},
        {"VolumeId": "vol-1", "State": "available", "Tags": [{"Key": OWNER_TAG, "Value": "another"}]},
        {"VolumeId": "", "State": "available"},
    ],
)
def test_volume_that_does_not_match_the_filter_is_never_taken_for_ours(provider: Any, shown: dict[str, Any]) -> None:
    returns(provider.ec2().client(), "DescribeVolumes", {"Volumes": [shown]})
    with pytest.raises(TransientError):
        provider.list_owned()
    with pytest.raises(TransientError):
        provider.describe(VolumeId("vol-2"))


def test_instance_limit_is_the_baseline_and_requested_once(provider: Any) -> None:
    assert provider.identify().bandwidth_limit_mb_s == 625.0
    calls = respond(provider, "DescribeInstanceTypes", 500, "InternalError")
    assert provider.identify().bandwidth_limit_mb_s == 625.0
    assert calls == []


def test_instance_limit_is_unknown_without_the_permission(provider: Any) -> None:
    respond(provider, "DescribeInstanceTypes", 403, "UnauthorizedOperation")
    assert provider.identify().bandwidth_limit_mb_s is None
    assert provider.quote(VolumeSpec(100 * GIB, 2000.0)).spec.bandwidth_mb_s >= 2000.0


def test_throttled_request_for_the_limit_is_an_error(provider: Any) -> None:
    respond(provider, "DescribeInstanceTypes", 503, "RequestLimitExceeded")
    with pytest.raises(TransientError):
        provider.quote(SPEC)


def test_scaled_endpoint_scales_size_and_bandwidth(open_aws: Any, sdk: Any) -> None:
    provider = open_aws(scale={"gib_bytes": MIB, "mib_s_bytes": MIB // 2})
    assert provider.identify().bandwidth_limit_mb_s == 312.5
    volume = provider.create("token-scaled", VolumeSpec(10 * MIB, 200.0), {})
    raw = _raw(sdk, volume.id)
    assert (raw["Size"], raw["Throughput"]) == (10, 382)
    assert volume.size_bytes == 10 * MIB
    assert volume.bandwidth_mb_s == pytest.approx(382 * (MIB // 2) / 1e6)


def test_sdk_uses_the_configured_timeouts_and_attempts(open_aws: Any) -> None:
    config = open_aws(max_attempts=4, connect_timeout_s=1.5, read_timeout_s=7).ec2().client().meta.config
    assert (config.connect_timeout, config.read_timeout) == (1.5, 7)
    assert config.retries["mode"] == "standard"
    assert config.retries["total_max_attempts"] == 4


def test_warm_up_makes_the_client_and_translates_errors(open_aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    open_aws().warm_up()
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with refused(AuthError, "ProfileNotFound"):
        open_aws().warm_up()
