"""An EC2 endpoint (moto's server in this process), a metadata service, and responses injected into the SDK."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"  # read when moto is imported

import botocore
import botocore.session
from botocore.awsrequest import AWSResponse
from moto.server import ThreadedMotoServer

from elastio_aws import identity
from elastio_aws.provider import AwsProvider, open_provider

REGION = "us-east-1"
ZONE = "us-east-1a"
ACCOUNT = "123456789012"
BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"

SDK_CHANGED = (
    f"botocore {botocore.__version__} loads or stores its data in another way than elastio_aws/slim.py expects: "
    "adapt slim.py, or pin botocore below this version"
)

Open = Callable[..., AwsProvider]


@pytest.fixture(autouse=True, scope="session")
def _environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the machine's AWS settings and proxies."""
    nothing = str(tmp_path_factory.mktemp("home") / "none")
    with pytest.MonkeyPatch.context() as patch:
        for name in [key for key in os.environ if key.startswith("AWS_") or key.lower().endswith("_proxy")]:
            patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", "key")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setattr(identity, "ASSET_TAG", Path(nothing))  # these may run on an instance of EC2
        patch.setenv("AWS_CONFIG_FILE", nothing)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
        yield


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def slim_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trimmed SDK data, shared by all tests."""
    from elastio_aws import slim

    root = tmp_path_factory.mktemp("botocore")
    try:
        slim.build(root)
    except Exception as error:  # whatever a changed SDK raises
        pytest.fail(f"{SDK_CHANGED} ({error!r})")
    return root


@pytest.fixture(scope="session")
def sdk(moto_url: str) -> Iterator[Any]:
    """A client of the SDK with full data, to check what the provider did."""
    client = botocore.session.Session().create_client("ec2", region_name=REGION, endpoint_url=moto_url)
    yield client
    client.close()


@pytest.fixture
def instance_id(sdk: Any) -> str:
    response = sdk.run_instances(
        ImageId="ami-12345678",
        MinCount=1,
        MaxCount=1,
        InstanceType="m7i.4xlarge",
        Placement={"AvailabilityZone": ZONE},
    )
    return str(response["Instances"][0]["InstanceId"])


@pytest.fixture
def open_aws(moto_url: str, slim_root: Path, instance_id: str) -> Iterator[Open]:
    """Opens providers against moto; keyword arguments are settings."""
    opened: list[AwsProvider] = []

    def open_with(**settings: object) -> AwsProvider:
        known: dict[str, object] = {
            "endpoint_url": moto_url,
            "region": REGION,
            "availability_zone": ZONE,
            "account_id": ACCOUNT,
            "instance_id": instance_id,
            "instance_type": "m7i.4xlarge",
            "cache_dir": str(slim_root),
            "max_attempts": 1,
        }
        opened.append(open_provider({**known, **settings}, BACKING))
        return opened[-1]

    yield open_with
    for provider in opened:
        provider.close()


@pytest.fixture
def provider(open_aws: Open) -> AwsProvider:
    """A provider with the usual settings."""
    return open_aws()


@dataclass
class _Body:
    text: bytes

    def stream(self) -> Iterator[bytes]:
        yield self.text


def respond(
    provider: AwsProvider, operation: str, status: int, code: str = "", text: str = "Sorry.", body: str = ""
) -> list[str]:
    """From now on EC2 responds to the operation with this status, error code or body. Returns the list of requests."""
    calls: list[str] = []
    xml = (
        f"<Response><Errors><Error><Code>{code}</Code><Message>{text}</Message></Error></Errors>"
        "<RequestID>0</RequestID></Response>"
    )

    def reply(request: Any, **_: Any) -> AWSResponse:
        calls.append(str(request.body))
        return AWSResponse(request.url, status, {}, _Body((body or xml).encode()))

    provider.ec2().client().meta.events.register(f"before-send.ec2.{operation}", reply)
    return calls


def returns(client: Any, operation: str, *results: dict[str, Any]) -> list[dict[str, Any]]:
    """The SDK's client returns these results in turn, then the last one. Returns the list of requests."""
    requests: list[dict[str, Any]] = []

    def reply(params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]]:
        requests.append(dict(params["body"]))
        return type("Response", (), {"status_code": 200}), results[min(len(requests), len(results)) - 1]

    client.meta.events.register(f"before-call.ec2.{operation}", reply)
    return requests


@dataclass
class Metadata:
    """A metadata service under a path prefix. Each request takes one of `statuses`; without one it is 200."""

    url: str = ""
    document: str = ""
    statuses: list[int] = field(default_factory=list)
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)


@pytest.fixture
def metadata_service() -> Iterator[Metadata]:
    service = Metadata(
        document=json.dumps(
            {
                "instanceId": "i-0123456789abcdef0",
                "region": "eu-west-1",
                "availabilityZone": "eu-west-1b",
                "instanceType": "m7i.4xlarge",
                "accountId": ACCOUNT,
            }
        )
    )

    class Handler(http.server.BaseHTTPRequestHandler):
        def _reply(self) -> None:
            token = self.headers.get("X-aws-ec2-metadata-token")
            service.seen.append((self.command, self.path, token))
            asks_token = self.command == "PUT" and self.path == "/prefix/latest/api/token"
            status = service.statuses.pop(0) if service.statuses else 200
            if status == 200 and not asks_token and token != "the-token":
                status = 401
            body = ("the-token" if asks_token else service.document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = _reply

        def log_message(self, format: str, *args: Any) -> None:
            """No log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    service.url = f"http://127.0.0.1:{server.server_port}/prefix"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield service
    server.shutdown()
    thread.join()
    server.server_close()
