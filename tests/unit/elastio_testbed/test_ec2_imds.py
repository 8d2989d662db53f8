"""The instance metadata service, over HTTP and as boto3 uses it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.utils import InstanceMetadataRegionFetcher

from elastio_testbed.ec2 import Ec2Endpoint, Fault, FaultKind

_TTL = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN = "X-aws-ec2-metadata-token"


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    with Ec2Endpoint(tmp_path, region="eu-west-1") as running:
        yield running


@pytest.fixture
def instance_id(endpoint: Ec2Endpoint) -> str:
    return endpoint.add_instance(None, "c5.xlarge", "eu-west-1b")


def ask(endpoint: Ec2Endpoint, method: str, path: str, headers: dict[str, str] | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def token(endpoint: Ec2Endpoint, instance_id: str) -> str:
    status, text = ask(endpoint, "PUT", f"/imds/{instance_id}/latest/api/token", {_TTL: "60"})
    assert status == 200
    return text


def read(endpoint: Ec2Endpoint, instance_id: str, path: str) -> tuple[int, str]:
    headers = {_TOKEN: token(endpoint, instance_id)}
    return ask(endpoint, "GET", f"/imds/{instance_id}/latest/{path}", headers)


def test_metadata_tells_who_and_where_the_instance_is(endpoint: Ec2Endpoint, instance_id: str) -> None:
    expected = {
        "meta-data/instance-id": instance_id,
        "meta-data/instance-type": "c5.xlarge",
        "meta-data/placement/region": "eu-west-1",
        "meta-data/placement/availability-zone": "eu-west-1b",
    }
    assert {path: read(endpoint, instance_id, path)[1] for path in expected} == expected
    document = json.loads(read(endpoint, instance_id, "dynamic/instance-identity/document")[1])
    assert (document["instanceId"], document["region"]) == (instance_id, "eu-west-1")
    assert (document["availabilityZone"], document["instanceType"]) == ("eu-west-1b", "c5.xlarge")


@pytest.mark.parametrize("headers", [{}, {_TOKEN: "guessed"}])
def test_without_a_token_there_is_no_metadata(endpoint: Ec2Endpoint, instance_id: str, headers: dict[str, str]) -> None:
    path = f"/imds/{instance_id}/latest/meta-data/instance-id"
    assert ask(endpoint, "GET", path, headers) == (401, "")


def test_a_token_is_good_for_its_own_instance_only(endpoint: Ec2Endpoint, instance_id: str) -> None:
    other = endpoint.add_instance(None)
    path = f"/imds/{instance_id}/latest/meta-data/instance-id"
    assert ask(endpoint, "GET", path, {_TOKEN: token(endpoint, other)})[0] == 401
    assert ask(endpoint, "GET", path, {_TOKEN: token(endpoint, instance_id)}) == (200, instance_id)


@pytest.mark.parametrize("headers", [{}, {_TTL: "0"}, {_TTL: "21601"}, {_TTL: "an hour"}])
def test_a_token_needs_a_lifetime_within_six_hours(
    endpoint: Ec2Endpoint, instance_id: str, headers: dict[str, str]
) -> None:
    assert ask(endpoint, "PUT", f"/imds/{instance_id}/latest/api/token", headers)[0] == 400


def test_unknown_instances_paths_and_methods_are_not_served(endpoint: Ec2Endpoint, instance_id: str) -> None:
    assert ask(endpoint, "PUT", "/imds/i-none/latest/api/token", {_TTL: "60"})[0] == 404
    assert read(endpoint, instance_id, "meta-data/colour")[0] == 404
    assert ask(endpoint, "GET", f"/imds/{instance_id}/latest/api/token")[0] == 405
    assert ask(endpoint, "POST", f"/imds/{instance_id}/latest/meta-data/instance-id")[0] == 405
    endpoint.terminate_instance(instance_id)
    assert ask(endpoint, "PUT", f"/imds/{instance_id}/latest/api/token", {_TTL: "60"})[0] == 404


def test_a_spot_notice_shows_up_when_it_is_given(endpoint: Ec2Endpoint, instance_id: str) -> None:
    path = "meta-data/spot/instance-action"
    assert read(endpoint, instance_id, path)[0] == 404
    endpoint.interrupt_spot(instance_id, "stop", in_s=90)
    notice = json.loads(read(endpoint, instance_id, path)[1])
    assert notice["action"] == "stop"
    assert notice["time"].endswith("Z")
    with pytest.raises(ValueError, match="explode"):
        endpoint.interrupt_spot(instance_id, "explode")


def test_boto3_in_a_guest_finds_its_credentials_and_its_region(
    endpoint: Ec2Endpoint, instance_id: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.imds_url(instance_id))
    session = boto3.Session()
    credentials = session.get_credentials()
    client = session.client("ec2", endpoint_url=endpoint.url, region_name="eu-west-1")
    assert credentials is not None
    assert (credentials.method, credentials.token) == ("iam-role", instance_id)
    assert client.describe_volumes(MaxResults=5)["Volumes"] == []
    assert InstanceMetadataRegionFetcher(base_url=endpoint.imds_url(instance_id)).retrieve_region() == "eu-west-1"


def test_faults_reach_the_metadata_service_by_its_own_name(endpoint: Ec2Endpoint, instance_id: str) -> None:
    endpoint.faults.add(Fault(FaultKind.THROTTLE, times=None))
    held = token(endpoint, instance_id)
    endpoint.faults.add(Fault(FaultKind.HTTP, "Imds", status=503))
    path = f"/imds/{instance_id}/latest/meta-data/instance-id"
    assert ask(endpoint, "GET", path, {_TOKEN: held})[0] == 503
    assert ask(endpoint, "GET", path, {_TOKEN: held}) == (200, instance_id)


def test_the_url_for_a_guest_names_the_host_it_uses(endpoint: Ec2Endpoint, instance_id: str) -> None:
    assert endpoint.url_from("10.0.2.2") == f"http://10.0.2.2:{endpoint.port}"
    assert endpoint.imds_url(instance_id, "10.0.2.2").endswith(f":{endpoint.port}/imds/{instance_id}")
