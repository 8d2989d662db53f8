from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from elastio.errors import ConfigError, ProviderError, RefusedError, TransientError
from elastio_aws import identity
from elastio_aws.identity import InstanceIdentity, detect, who
from elastio_aws.metadata import identity_document
from elastio_aws.settings import parse
from tests.fixtures.errors import refused


def _who(metadata_service: Any, **settings: object) -> InstanceIdentity:
    return who(parse({"metadata_url": metadata_service.url, **settings}, {}))


def test_instance_is_read_from_the_identity_document_with_a_session_token(metadata_service: Any) -> None:
    me = _who(metadata_service)
    assert me == InstanceIdentity("i-0123456789abcdef0", "123456789012", "eu-west-1", "eu-west-1b", "m7i.4xlarge")
    assert me.arn == "arn:aws:ec2:eu-west-1:123456789012:instance/i-0123456789abcdef0"
    assert metadata_service.seen == [
        ("PUT", "/prefix/latest/api/token", None),
        ("GET", "/prefix/latest/dynamic/instance-identity/document", "the-token"),
    ]


def test_settings_take_precedence_over_the_document(metadata_service: Any) -> None:
    me = _who(metadata_service, instance_id="i-0123456789abcdef0", availability_zone="eu-west-1c")
    assert (me.instance_id, me.region, me.zone) == ("i-0123456789abcdef0", "eu-west-1", "eu-west-1c")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"region": "us-east-2"}, "availability_zone"),
        ({"availability_zone": "us-east-2a"}, "availability_zone"),
        ({"encrypted": True, "kms_key_id": "arn:aws:kms:us-east-2:123456789012:key/1"}, "kms_key_id"),
        ({"endpoint_url": "https://ec2.us-east-2.amazonaws.com"}, "endpoint_url"),
    ],
)
def test_settings_of_another_region_than_the_document_are_refused(
    metadata_service: Any, settings: dict[str, object], key: str
) -> None:
    with refused(ConfigError, f"provider.aws.{key}"):
        _who(metadata_service, **settings)


def test_an_instance_that_the_document_contradicts_is_refused(metadata_service: Any) -> None:
    with pytest.raises(ConfigError):
        _who(metadata_service, instance_id="i-0aaaaaaaaaaaaaaaa")


@pytest.mark.parametrize(
    ("shown", "is_refused"),
    [
        ("i-0bbbbbbbbbbbbbbbb", True),
        ("i-0aaaaaaaaaaaaaaaa", False),
        ("Not Specified", False),  # QEMU, and bare metal of others
        (None, False),
    ],
)
def test_an_instance_that_the_firmware_contradicts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str | None, is_refused: bool
) -> None:
    """A disk copied into an image takes a configured id, and so the volumes, to another instance."""
    tag = tmp_path / "board_asset_tag"
    if shown is not None:
        tag.write_text(f"{shown}\n", encoding="ascii")
    monkeypatch.setattr(identity, "ASSET_TAG", tag)
    place = {"region": "us-east-1", "availability_zone": "us-east-1a", "account_id": "123456789012"}
    settings = parse({**place, "instance_id": "i-0aaaaaaaaaaaaaaaa"}, {})
    if is_refused:
        with pytest.raises(ConfigError):
            who(settings)
    else:
        assert who(settings).instance_id == "i-0aaaaaaaaaaaaaaaa"


def test_metadata_service_is_not_used_when_all_is_set() -> None:
    settings = {
        "instance_id": "i-1",
        "region": "cn-north-1",
        "availability_zone": "cn-north-1a",
        "account_id": "1",
    }
    me = who(parse({**settings, "metadata_url": "http://127.0.0.1:1"}, {}))
    assert me.arn == "arn:aws-cn:ec2:cn-north-1:1:instance/i-1"
    assert me.instance_type == ""


def test_each_request_is_retried_once(metadata_service: Any) -> None:
    metadata_service.statuses = [500, 200, 503, 200]
    assert _who(metadata_service).region == "eu-west-1"
    assert [seen[0] for seen in metadata_service.seen] == ["PUT", "PUT", "GET", "GET"]


@pytest.mark.parametrize("listens", [True, False])
def test_unresponsive_service_is_transient(listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        if not listens:
            silent.close()
        with refused(TransientError, "metadata.unreachable"):
            identity_document(url, timeout_s=0.05)


@pytest.mark.parametrize(
    ("statuses", "document", "error", "code", "requests"),
    [
        ([500, 500], "", TransientError, "metadata.unreachable", 2),
        ([403], "", RefusedError, "metadata.refused", 1),
        ([], "<html>", RefusedError, "metadata.malformed", 2),
        ([], "[]", RefusedError, "metadata.malformed", 2),
        ([], '"text"', RefusedError, "metadata.malformed", 2),
        ([], '{"instanceId": "i-1", "region": "us-east-1"}', RefusedError, "metadata.incomplete", 2),
    ],
)
def test_unusable_service_has_its_class_and_code(
    metadata_service: Any, statuses: list[int], document: str, error: type[ProviderError], code: str, requests: int
) -> None:
    metadata_service.statuses, metadata_service.document = statuses, document
    with pytest.raises(error) as caught:
        _who(metadata_service)
    assert (caught.value.code, len(metadata_service.seen)) == (code, requests)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"v1": {"cloud_name": "aws", "region": null}}', True),
        ('{"v1": {"cloud_name": "openstack"}}', False),
        ('{"v1": {"cloud_name": null}}', False),
        ('{"v1": []}', False),
        ("[]", False),
        ("{broken", False),
        (None, False),
    ],
)
def test_cloud_is_detected_from_cloud_init_data(tmp_path: Path, text: str | None, found: bool) -> None:
    path = tmp_path / "instance-data.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert detect(path) is found
