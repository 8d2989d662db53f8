"""The provider with the real SDK against moto: what EC2 is asked, and what its answers are taken for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from elastio.core.model import VolumeId, VolumeSpec, VolumeState
from elastio.errors import AuthError, ConfigError, NotOursError, QuotaError, RefusedError, TransientError
from elastio.units import GIB, MIB
from elastio_aws.provider import AwsProvider, open_provider
from elastio_aws.settings import parse
from elastio_aws.volumes import OWNER_TAG

SPEC = VolumeSpec(10 * GIB, 200.0)
UNKNOWN = VolumeId("vol-0123456789abcdef0")


def _raw(sdk: Any, volume_id: str) -> dict[str, Any]:
    shown: dict[str, Any] = sdk.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    return shown


def _foreign(sdk: Any) -> str:
    tags = [{"Key": "elastio:owner", "Value": "arn:aws:ec2:us-east-1:123456789012:instance/i-other"}]
    made = sdk.create_volume(
        AvailabilityZone="us-east-1a",
        Size=1,
        VolumeType="gp3",
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )
    return str(made["VolumeId"])


def test_bad_settings_are_refused_before_anything_is_asked() -> None:
    with pytest.raises(ConfigError, match="volume_type"):
        open_provider({"volume_type": "io2"}, "uuid")


@pytest.mark.runs_programs
def test_importing_and_opening_loads_no_sdk() -> None:
    script = (
        "import sys; from elastio_aws.provider import open_provider; open_provider({}, 'uuid'); "
        "sys.exit(any(name in sys.modules for name in ('boto3', 'botocore')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_volume_is_bought_as_specified(open_aws: Any, sdk: Any, instance_id: str) -> None:
    volume = open_aws(extra_tags={"team": "hpc"}).create("token-1", SPEC, {"phase": "7"})
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


def test_callers_tags_cannot_replace_our_own(open_aws: Any, sdk: Any) -> None:
    volume = open_aws().create("token-own", SPEC, {"elastio:owner": "someone"})
    assert {"Key": "elastio:owner", "Value": "someone"} not in _raw(sdk, volume.id)["Tags"]


def test_client_token_is_the_token(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    calls = answer(provider, "CreateVolume", 503, "Unavailable")
    with pytest.raises(TransientError):
        provider.create("my-token", SPEC, {})
    assert "ClientToken=my-token" in calls[0] or "'ClientToken': 'my-token'" in calls[0]


@pytest.mark.parametrize("token", ["", "x" * 65, "tök"])
def test_token_that_ec2_would_not_take_is_refused(open_aws: Any, token: str) -> None:
    with pytest.raises(RefusedError, match="64 ASCII characters"):
        open_aws().create(token, SPEC, {})


def test_repeated_create_asks_for_the_same_though_time_goes_on(open_aws: Any, answer: Any) -> None:
    now = iter(range(0, 10**9, 7200))
    first = open_aws()
    provider = AwsProvider(first.settings, "uuid", wall=lambda: next(now))
    calls = answer(provider, "CreateVolume", 503, "Unavailable")
    for token in ("a", "a", "b"):
        with pytest.raises(TransientError):
            provider.create(token, SPEC, {})
    provider.close()
    assert calls[0] == calls[1]
    assert calls[1] != calls[2].replace("ClientToken=b", "ClientToken=a")


def test_encryption_is_asked_for(open_aws: Any, answer: Any) -> None:
    provider = open_aws(encrypted=True, kms_key_id="alias/mine")
    calls = answer(provider, "CreateVolume", 503, "Unavailable")
    with pytest.raises(TransientError):
        provider.create("token", SPEC, {})
    assert "Encrypted" in calls[0]
    assert "alias" in calls[0]


@pytest.mark.parametrize("code", ["VolumeLimitExceeded", "IdempotentParameterMismatch"])
def test_create_finds_what_its_token_bought_before(open_aws: Any, answer: Any, code: str) -> None:
    bought = open_aws().create(f"token-{code}", SPEC, {})
    provider = open_aws()
    answer(provider, "CreateVolume", 400, code)
    assert provider.create(f"token-{code}", SPEC, {}).id == bought.id


def test_quota_is_reported_when_the_token_bought_nothing(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "CreateVolume", 400, "VolumeLimitExceeded")
    with pytest.raises(QuotaError, match="VolumeLimitExceeded"):
        provider.create("token-new", SPEC, {})


def test_mismatch_with_nothing_to_see_is_transient(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "CreateVolume", 400, "IdempotentParameterMismatch")
    with pytest.raises(TransientError):
        provider.create("token-burnt", SPEC, {})


def test_volume_is_attached_here_under_a_documented_name(open_aws: Any, sdk: Any, instance_id: str) -> None:
    provider = open_aws()
    volume = provider.create("token-attach", SPEC, {})
    provider.attach(volume.id)
    attachment = _raw(sdk, volume.id)["Attachments"][0]
    assert attachment["InstanceId"] == instance_id
    assert attachment["Device"].startswith("/dev/xvd")
    assert provider.describe(volume.id).state == VolumeState.ATTACHED


@pytest.mark.parametrize(
    "text",
    [
        "Invalid value '/dev/xvdba' for unixDevice. Attachment point /dev/xvdba is already in use",
        "Value (/dev/xvdcy) for parameter device is invalid. /dev/xvdcy is not a valid EBS device name.",
    ],
)
def test_device_name_that_is_taken_or_not_liked_leads_to_the_next(open_aws: Any, answer: Any, text: str) -> None:
    provider = open_aws()
    volume = provider.create(f"token-name-{len(text)}", SPEC, {})
    calls = answer(provider, "AttachVolume", 400, "InvalidParameterValue", text)
    with pytest.raises(TransientError):
        provider.attach(volume.id)
    assert len(calls) == len(set(calls)) == 4
    with pytest.raises(TransientError):
        provider.attach(volume.id)
    assert len(set(calls)) == 8


def test_other_bad_value_is_refused_after_one_call(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-bad-instance", SPEC, {})
    calls = answer(provider, "AttachVolume", 400, "InvalidParameterValue", "Bad instance.")
    with pytest.raises(RefusedError, match="Bad instance"):
        provider.attach(volume.id)
    assert len(calls) == 1


def test_attach_refused_in_use_is_success_when_it_is_attached_here(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-again", SPEC, {})
    provider.attach(volume.id)
    calls = answer(provider, "AttachVolume", 400, "VolumeInUse")
    provider.attach(volume.id)
    assert len(calls) == 1


def test_attach_refused_in_use_is_refused_when_it_is_elsewhere(open_aws: Any, answer: Any, sdk: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-elsewhere", SPEC, {})
    other = sdk.run_instances(ImageId="ami-12345678", MinCount=1, MaxCount=1)["Instances"][0]["InstanceId"]
    sdk.attach_volume(VolumeId=volume.id, InstanceId=other, Device="/dev/sdf")
    assert provider.describe(volume.id).state == VolumeState.ELSEWHERE
    answer(provider, "AttachVolume", 400, "VolumeInUse")
    with pytest.raises(RefusedError, match="another instance"):
        provider.attach(volume.id)


@pytest.mark.parametrize("code", ["IncorrectState", "InvalidVolume.NotFound"])
def test_attach_too_early_is_transient(open_aws: Any, answer: Any, code: str) -> None:
    provider = open_aws()
    volume = provider.create("token-early", SPEC, {})
    answer(provider, "AttachVolume", 400, code)
    with pytest.raises(TransientError, match=code):
        provider.attach(volume.id)


def test_detach_is_never_forced(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-force", SPEC, {})
    calls = answer(provider, "DetachVolume", 503, "Unavailable")
    with pytest.raises(TransientError):
        provider.detach(volume.id)
    assert "Force" not in calls[0]


@pytest.mark.parametrize("code", ["IncorrectState", "InvalidAttachment.NotFound", "InvalidVolume.NotFound"])
def test_detach_refused_is_success_when_not_attached(open_aws: Any, answer: Any, code: str) -> None:
    provider = open_aws()
    volume = provider.create("token-detached", SPEC, {})
    calls = answer(provider, "DetachVolume", 400, code)
    provider.detach(volume.id)
    provider.detach(UNKNOWN)
    assert len(calls) == 1


def test_detach_refused_is_an_error_while_attached(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-attached", SPEC, {})
    provider.attach(volume.id)
    answer(provider, "DetachVolume", 400, "IncorrectState")
    with pytest.raises(TransientError, match="IncorrectState"):
        provider.detach(volume.id)


def test_volume_of_another_instance_is_not_deleted(open_aws: Any, sdk: Any, answer: Any) -> None:
    provider = open_aws()
    foreign = _foreign(sdk)
    calls = answer(provider, "DeleteVolume", 200)
    with pytest.raises(NotOursError):
        provider.delete(VolumeId(foreign))
    assert calls == []


def test_tag_that_is_not_shown_yet_is_believed_where_it_was_seen_before(open_aws: Any, sdk: Any) -> None:
    """DescribeVolumes may lag behind; what names another owner is believed at once."""
    provider = open_aws()
    volume = provider.create("token-lag", SPEC, {})
    sdk.delete_tags(Resources=[volume.id], Tags=[{"Key": OWNER_TAG}])
    assert provider.describe(volume.id).state is VolumeState.AVAILABLE
    later = open_aws()
    assert later.describe(volume.id).state is VolumeState.FOREIGN
    sdk.create_tags(Resources=[volume.id], Tags=[{"Key": OWNER_TAG, "Value": "another"}])
    assert provider.describe(volume.id).state is VolumeState.FOREIGN
    with pytest.raises(NotOursError):
        provider.attach(volume.id)


def test_answer_to_a_create_that_names_another_owner_is_not_handed_over(open_aws: Any) -> None:
    provider = open_aws()
    shown = {"VolumeId": "vol-1", "State": "creating", "Tags": [{"Key": OWNER_TAG, "Value": "another"}]}
    answered = (type("Answer", (), {"status_code": 200}), shown)
    provider.ec2().client().meta.events.register("before-call.ec2.CreateVolume", lambda **_: answered)
    with pytest.raises(RefusedError):
        provider.create("token-shared", SPEC, {})


def test_deleted_volume_may_be_deleted_again(open_aws: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-delete", SPEC, {})
    provider.delete(volume.id)
    assert provider.describe(volume.id) is None
    provider.delete(volume.id)


def test_delete_refused_while_attached_is_refused(open_aws: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-held", SPEC, {})
    provider.attach(volume.id)
    with pytest.raises(RefusedError, match="is attached and cannot be deleted"):
        provider.delete(volume.id)
    assert provider.describe(volume.id).state == VolumeState.ATTACHED


def test_delete_refused_in_a_state_that_passes_is_transient(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    volume = provider.create("token-between", SPEC, {})
    answer(provider, "DeleteVolume", 400, "IncorrectState")
    with pytest.raises(TransientError, match="IncorrectState"):
        provider.delete(volume.id)


def test_list_owned_shows_only_this_instances_volumes(open_aws: Any, sdk: Any) -> None:
    provider = open_aws()
    _foreign(sdk)
    mine = {provider.create(f"token-list-{n}", SPEC, {}).id for n in range(3)}
    assert {volume.id for volume in provider.list_owned()} == mine


def test_list_owned_follows_every_page(open_aws: Any) -> None:
    provider = open_aws()
    ours = [{"Key": OWNER_TAG, "Value": provider.who().arn}]
    pages: list[dict[str, Any]] = [
        {"Volumes": [{"VolumeId": "vol-1", "State": "available", "Tags": ours}], "NextToken": "more"},
        {"Volumes": [{"VolumeId": "vol-2", "State": "available", "Tags": ours}]},
    ]
    asked: list[dict[str, Any]] = []

    def one_page(params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        asked.append(dict(params["body"]))
        return type("Answer", (), {"status_code": 200}), pages[len(asked) - 1]

    provider.ec2().client().meta.events.register("before-call.ec2.DescribeVolumes", one_page)
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
def test_a_volume_that_does_not_carry_the_tag_it_was_asked_for_is_never_taken_for_ours(
    open_aws: Any, shown: dict[str, Any]
) -> None:
    provider = open_aws()

    def one_page(**_: Any) -> tuple[Any, dict[str, Any]]:
        return type("Answer", (), {"status_code": 200}), {"Volumes": [shown]}

    provider.ec2().client().meta.events.register("before-call.ec2.DescribeVolumes", one_page)
    with pytest.raises(TransientError):
        provider.list_owned()
    with pytest.raises(TransientError, match="showed another volume"):
        provider.describe(VolumeId("vol-2"))


def test_instance_limit_is_the_baseline_and_asked_once(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    assert provider.identify().bandwidth_limit_mb_s == 625.0
    calls = answer(provider, "DescribeInstanceTypes", 500, "InternalError")
    assert provider.identify().bandwidth_limit_mb_s == 625.0
    assert calls == []


def test_instance_limit_is_unknown_where_it_may_not_be_asked(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "DescribeInstanceTypes", 403, "UnauthorizedOperation")
    assert provider.identify().bandwidth_limit_mb_s is None
    assert provider.quote(VolumeSpec(100 * GIB, 2000.0)).spec.bandwidth_mb_s >= 2000.0


def test_throttled_question_for_the_limit_is_an_error_not_a_guess(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "DescribeInstanceTypes", 503, "RequestLimitExceeded")
    with pytest.raises(TransientError):
        provider.quote(SPEC)


def test_quote_refuses_what_the_instance_cannot_carry(open_aws: Any) -> None:
    provider = open_aws(instance_type="hpc7a.96xlarge")
    with pytest.raises(RefusedError, match=r"hpc7a\.96xlarge.*limit is 10\.9"):
        provider.quote(SPEC)
    assert open_aws().quote(VolumeSpec(10 * GIB, 600.0)).spec.bandwidth_mb_s >= 600.0
    with pytest.raises(RefusedError, match="limit is 625 MB/s"):
        open_aws().quote(VolumeSpec(10 * GIB, 626.0))


def test_scaled_endpoint_scales_everything(open_aws: Any, sdk: Any) -> None:
    provider = open_aws(scale={"gib_bytes": MIB, "mib_s_bytes": MIB // 2})
    assert provider.identify().bandwidth_limit_mb_s == 312.5
    volume = provider.create("token-scaled", VolumeSpec(10 * MIB, 200.0), {})
    raw = _raw(sdk, volume.id)
    assert (raw["Size"], raw["Throughput"]) == (10, 382)
    assert volume.size_bytes == 10 * MIB
    assert volume.bandwidth_mb_s == pytest.approx(382 * (MIB // 2) / 1e6)


def test_sdk_is_set_up_with_our_times_and_attempts(open_aws: Any) -> None:
    config = open_aws(max_attempts=4, connect_timeout_s=1.5, read_timeout_s=7).ec2().client().meta.config
    assert (config.connect_timeout, config.read_timeout) == (1.5, 7)
    assert config.retries["mode"] == "standard"
    assert config.retries["total_max_attempts"] == 4


def test_warm_up_makes_the_client_and_translates_errors(open_aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    open_aws().warm_up()
    monkeypatch.setenv("AWS_PROFILE", "missing")
    with pytest.raises(AuthError, match="ProfileNotFound"):
        open_aws().warm_up()


def test_default_region_is_that_of_the_metadata_service(metadata_service: Any) -> None:
    provider = AwsProvider(parse({"metadata_url": metadata_service.url}), "uuid")
    assert provider.who().zone == "eu-west-1b"
