"""What a clouds.yaml may be wrong in, and a Keystone on the loopback with services in two regions."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elastio.errors import AuthError, RefusedError
from elastio_openstack.client import Cloud
from elastio_openstack.settings import parse
from tests.fixtures.errors import refused

CREDENTIAL = {"application_credential_id": "a", "application_credential_secret": "b"}
VERSION = {"id": "v2.1", "status": "CURRENT", "version": "2.90", "min_version": "2.1"}
TOKEN = {
    "methods": ["application_credential"],
    "user": {"id": "u", "name": "u", "domain": {"id": "default", "name": "Default"}},
    "roles": [],
    "expires_at": "2999-01-01T00:00:00.000000Z",
    "issued_at": "2026-01-01T00:00:00.000000Z",
}
NOBODY = "http://127.0.0.1:9/v3"


@pytest.fixture
def keystone() -> Iterator[str]:
    """Its auth_url. Its catalog has the compute service in GRA5 and SBG3; GRA5 has no server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def _reply(self, status: int, body: object, **headers: str) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(text)

        def do_GET(self) -> None:
            if "/servers/" in self.path:
                status = 404 if self.path.endswith("/none") else 200
                return self._reply(status, {"server": {"region": self.path.split("/")[1]}})
            return self._reply(200, {"version": {**VERSION, "links": [{"rel": "self", "href": url + self.path}]}})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            endpoints = [
                {"interface": "public", "region": name, "region_id": name, "url": f"{url}/{name}/v2.1", "id": name}
                for name in ("GRA5", "SBG3")
            ]
            catalog = [{"type": "compute", "name": "nova", "id": "n", "endpoints": endpoints}]
            self._reply(201, {"token": {**TOKEN, "catalog": catalog}}, X_Subject_Token="t")

        def log_message(self, format: str, *args: Any) -> None:
            """No log."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"{url}/v3"
    server.shutdown()
    thread.join()
    server.server_close()


def cloud_of(tmp_path: Path, document: object, **settings: object) -> Cloud:
    path = tmp_path / "clouds.yaml"
    path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
    return Cloud(parse({"cloud": "my", "clouds_file": str(path), "timeout_s": 2, **settings}))


def entry(url: object = NOBODY, **keys: object) -> dict[str, object]:
    return {"auth_type": "v3applicationcredential", "auth": {"auth_url": url, **CREDENTIAL}, **keys}


def without(key: str) -> dict[str, object]:
    return {name: value for name, value in entry().items() if name != key}


@pytest.mark.parametrize(
    "clouds",
    [
        {"my": without("auth_type")},
        {"my": entry(auth_type="password")},
        {"my": entry(profile="no-such-vendor")},
        {"my": entry(profile=["a"])},
        {"my": entry(auth="secret")},
        {"my": entry(auth=None)},
        {"my": entry(auth={"auth_url": NOBODY, **CREDENTIAL, "nonsense": 1})},
        {"my": entry("127.0.0.1:9/v3")},
        {"my": entry("cloud.example")},
        {"my": entry("ftp://127.0.0.1/v3")},
        {"my": entry("http://127.0.0.1:port/v3")},
        {"my": entry(5000)},
        {"my": entry(interface=["public"])},
        {"my": None},
        {"my": "text"},
        ["my"],
        None,
    ],
)
def test_wrong_value_in_clouds_yaml_is_an_error_that_names_the_file(tmp_path: Path, clouds: object) -> None:
    cloud = cloud_of(tmp_path, {"clouds": clouds})
    for use in (cloud.login, cloud.region, lambda: cloud.call("compute", "GET", "/servers/s")):
        with refused(AuthError, "clouds.entry") as caught:
            use()
        assert "clouds.yaml" in str(caught.value)
        assert "auth_type" in str(caught.value)


def test_one_of_several_clouds_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "clouds.yaml"
    path.write_text(json.dumps({"clouds": {"one": entry(), "two": entry()}}), encoding="utf-8")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(path))
    with refused(AuthError, "provider.openstack.cloud"):
        Cloud(parse({})).region()
    monkeypatch.setenv("OS_CLOUD", "two")
    assert Cloud(parse({})).region() == ""


@pytest.mark.parametrize(
    ("keys", "settings", "used"),
    [
        ({}, {}, None),
        ({"regions": ["GRA5", "SBG3"]}, {}, None),
        ({"regions": ["SBG3"]}, {}, "SBG3"),
        ({"region_name": "SBG3"}, {}, "SBG3"),
        ({}, {"region": "SBG3"}, "SBG3"),
    ],
)
def test_one_of_several_regions_has_to_be_named(
    keystone: str, tmp_path: Path, keys: dict[str, object], settings: dict[str, object], used: str | None
) -> None:
    cloud = cloud_of(tmp_path, {"clouds": {"my": entry(keystone, **keys)}}, **settings)
    seen = cloud.call("compute", "GET", "/servers/s")["server"]["region"]
    if used is None:
        # What was bought in the region that the SDK chooses can still be looked at and released.
        assert seen in ("GRA5", "SBG3")
        for method, path in (("POST", "/volumes"), ("GET", "/servers/none")):
            with refused(RefusedError, "provider.openstack.region") as caught:
                cloud.call("compute", method, path)
            assert "GRA5, SBG3" in str(caught.value)
    else:
        assert seen == used
    cloud.close()
