"""The laboratory's own paths, and the endpoint as a program."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

import elastio_testbed
from elastio_testbed.ec2 import Ec2Endpoint, Scale, open_client


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Ec2Endpoint]:
    with Ec2Endpoint(tmp_path, scale=Scale(gib_bytes=2**20), latency_scale=0) as running:
        yield running


def ask(port: int, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_faults_can_be_set_over_http(endpoint: Ec2Endpoint) -> None:
    client = open_client(endpoint)
    wanted = [{"kind": "error", "action": "DescribeVolumes", "code": "InternalError", "times": 2}]
    assert ask(endpoint.port, "PUT", "/_lab/faults", wanted)[0] == 200
    with pytest.raises(ClientError, match="InternalError"):
        client.describe_volumes()
    status, left = ask(endpoint.port, "GET", "/_lab/faults")
    assert (status, [(each["kind"], each["times"]) for each in left]) == (200, [("error", 1)])
    assert ask(endpoint.port, "PUT", "/_lab/faults", []) == (200, [])
    assert client.describe_volumes()["Volumes"] == []


def test_volumes_and_the_log_can_be_read_over_http(endpoint: Ec2Endpoint) -> None:
    made = open_client(endpoint).create_volume(AvailabilityZone="us-east-1a", Size=3, VolumeType="gp3")
    endpoint.settle(10)
    status, rows = ask(endpoint.port, "GET", "/_lab/volumes")
    assert (status, [row["id"] for row in rows]) == (200, [made["VolumeId"]])
    assert (rows[0]["state"], rows[0]["size_gib"], rows[0]["deleted_at"]) == ("available", 3, None)
    assert Path(rows[0]["path"]).stat().st_size == 3 * 2**20
    log = ask(endpoint.port, "GET", "/_lab/log")[1]
    assert [entry["action"] for entry in log if entry["event"] == "call"] == ["CreateVolume"]
    assert {entry["state"] for entry in log if entry["event"] == "volume"} == {"creating", "available"}


def test_delays_quota_and_budget_can_be_set_over_http(endpoint: Ec2Endpoint) -> None:
    assert ask(endpoint.port, "PUT", "/_lab/latency", {"latency_scale": 0.5, "attach": [3, 9]})[0] == 200
    assert endpoint.latency.scale == 0.5
    assert ask(endpoint.port, "GET", "/_lab/latency")[1]["attach"] == [3, 9]
    assert ask(endpoint.port, "PUT", "/_lab/quota", {"max_volumes": 7}) == (
        200,
        {"max_volumes": 7, "max_gib": 51_200},
    )
    assert endpoint.quota.max_volumes == 7
    assert ask(endpoint.port, "PUT", "/_lab/buckets", {"enabled": False}) == (200, {"enabled": False})
    assert not endpoint.buckets.enabled


def test_instances_can_be_made_warned_and_ended_over_http(endpoint: Ec2Endpoint) -> None:
    status, made = ask(endpoint.port, "POST", "/_lab/instances", {"instance_type": "c5.xlarge"})
    assert status == 200
    assert made["imds_url"] == endpoint.imds_url(made["instance_id"])
    notice = {"instance_id": made["instance_id"], "action": "stop", "in_s": 30}
    assert ask(endpoint.port, "PUT", "/_lab/spot", notice)[0] == 200
    ended = {"instance_id": made["instance_id"]}
    assert ask(endpoint.port, "POST", "/_lab/terminate", ended) == (200, ended)
    reservations = open_client(endpoint).describe_instances()["Reservations"]
    assert reservations[0]["Instances"][0]["State"]["Name"] == "terminated"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/_lab/nothing", None, 404),
        ("POST", "/_lab/volumes", None, 405),
        ("PUT", "/_lab/faults", {"kind": "throttle"}, 400),
        ("PUT", "/_lab/faults", [{"kind": "explode"}], 400),
        ("PUT", "/_lab/latency", {"teleport": [1, 2]}, 400),
        ("PUT", "/_lab/latency", [1], 400),
        ("PUT", "/_lab/quota", {"max_volumes": "many"}, 400),
        ("PUT", "/_lab/buckets", {}, 400),
        ("PUT", "/_lab/spot", {"instance_id": "i-none"}, 400),
        ("POST", "/_lab/instances", {"colour": "red"}, 400),
    ],
)
def test_bad_requests_are_answered_with_a_reason(
    endpoint: Ec2Endpoint, method: str, path: str, body: object, status: int
) -> None:
    answer = ask(endpoint.port, method, path, body)
    assert answer[0] == status
    assert answer[1]["error"]


def test_a_body_that_is_no_json_is_refused(endpoint: Ec2Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request("PUT", "/_lab/faults", body="{")
        assert connection.getresponse().status == 400
    finally:
        connection.close()


def test_a_request_without_an_action_is_refused(endpoint: Ec2Endpoint) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request("POST", "/", body="Version=2016-11-15")
        response = connection.getresponse()
        assert (response.status, b"MissingAction" in response.read()) == (400, True)
    finally:
        connection.close()


def test_a_taken_port_is_an_error_at_the_start(endpoint: Ec2Endpoint, tmp_path: Path) -> None:
    second = Ec2Endpoint(tmp_path / "second", port=endpoint.port)
    with pytest.raises(OSError, match="in use"):
        second.start()
    second.stop()


def test_only_the_loopback_interface_is_served(endpoint: Ec2Endpoint) -> None:
    with socket.socket() as other, pytest.raises(OSError, match="refused"):
        other.connect(("127.0.0.2", endpoint.port))  # another address of this machine
    assert endpoint.url == f"http://127.0.0.1:{endpoint.port}"


@pytest.mark.runs_programs
def test_the_endpoint_runs_as_a_program_until_it_is_told_to_end(tmp_path: Path) -> None:
    root = Path(elastio_testbed.__file__).parents[1]
    command = [sys.executable, "-m", "elastio_testbed.ec2", "--folder", str(tmp_path), "--latency-scale", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as program:
        try:
            assert program.stdout is not None
            first, second = program.stdout.readline(), program.stdout.readline()
            port = int(first.rsplit(":", 1)[1])
            assert ask(port, "GET", "/_lab/volumes") == (200, [])
            assert re.fullmatch(rf"i-\w+ AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:{port}/\S+\n", second)
        finally:
            program.send_signal(signal.SIGTERM)
            program.wait(30)
    assert program.returncode == 0
