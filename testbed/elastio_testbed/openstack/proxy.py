"""A reverse proxy for Keystone, Nova and Cinder: forwards requests, injects faults, records, and plays recordings.

Recordings do not depend on machine and port: in paths and bodies the services are called `keystone.lab`, `nova.lab`
and `cinder.lab`. Responses contain the proxy's own addresses instead, at the host name that the client has used. So a
guest that reaches this machine as 10.0.2.2 gets a catalogue that it can use.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from elastio_testbed.openstack.cassette import KEPT_HEADERS, Cassette, CassetteError, Exchange

SERVICES: Mapping[str, int] = {"keystone": 5000, "nova": 8774, "cinder": 8776}
# A little less than the client's time-out of 10 s: a response that would be too late is recorded as none.
_UPSTREAM_S = 9.0
_UPSTREAM_NAMES = {
    f"{host}:{port}": f"{name}.lab" for name, port in SERVICES.items() for host in ("127.0.0.1", "localhost")
}
_HOP_HEADERS = ("connection", "content-length", "transfer-encoding", "host", "accept-encoding")


@dataclass(frozen=True, slots=True)
class ProxyFault:
    """A response in place of the next matching request; with status 0 it is carried out and gets no response.

    `path` is a part of the request's path.
    """

    service: str
    method: str
    path: str
    status: int
    body: Mapping[str, Any]


class ApiProxy:
    """One loopback listener for each service. `live`: forward to the cloud and record, else play `cassette`."""

    def __init__(self, cassette: Cassette, *, live: bool) -> None:
        self.cassette, self.live = cassette, live
        self.faults: list[ProxyFault] = []
        self._lock = threading.Lock()
        self._servers = {name: _Server(("127.0.0.1", 0), self, name) for name in SERVICES}

    def __enter__(self) -> Self:
        for server in self._servers.values():
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.shutdown()
            server.server_close()

    def auth_url(self, host: str = "127.0.0.1") -> str:
        """Keystone's URL for a client that reaches this machine as `host`."""
        return f"http://{host}:{self._servers['keystone'].server_port}/v3"

    def answer(self, service: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Exchange:
        """The exchange of one request: from the cloud, a fault, or the cassette."""
        host = headers.get("Host", "").rpartition(":")[0]
        names = self._names(host)
        addresses = {name: address for address, name in names.items()}
        asked = _parsed(_replaced(body.decode(), names))
        with self._lock:
            if not self.live:
                found = self.cassette.play(service, method, path, asked)
            else:
                found = self._live(service, method, path, headers, body, asked)
                self.cassette.record(found)
        text = json.dumps(found.body) if isinstance(found.body, dict | list) else str(found.body or "")
        located = {key: _replaced(value, addresses) for key, value in found.headers.items()}
        return Exchange(service, method, path, asked, found.status, located, _replaced(text, addresses))

    def _live(
        self, service: str, method: str, path: str, headers: Mapping[str, str], body: bytes, asked: Any
    ) -> Exchange:
        fault = next((f for f in self.faults if (f.service, f.method) == (service, method) and f.path in path), None)
        if fault is not None:
            self.faults.remove(fault)
            if fault.status:
                shown = {"content-type": "application/json"}
                return Exchange(service, method, path, asked, fault.status, shown, dict(fault.body))
        connection = http.client.HTTPConnection("127.0.0.1", SERVICES[service], timeout=_UPSTREAM_S)
        try:
            passed = {k: v for k, v in headers.items() if k.lower() not in _HOP_HEADERS}
            connection.request(method, path, body or None, {**passed, "Host": f"127.0.0.1:{SERVICES[service]}"})
            response = connection.getresponse()
            text = _replaced(response.read().decode(), _UPSTREAM_NAMES)
            kept = {
                k.lower(): _replaced(v, _UPSTREAM_NAMES) for k, v in response.getheaders() if k.lower() in KEPT_HEADERS
            }
        except (OSError, http.client.HTTPException):
            return Exchange(service, method, path, asked, 0)
        finally:
            connection.close()
        status = 0 if fault is not None else response.status
        return Exchange(service, method, path, asked, status, kept, _parsed(text))

    def _names(self, host: str) -> dict[str, str]:
        """The services' names in recordings, by the proxy's addresses for a client that knows it as `host`."""
        return {f"{host}:{server.server_port}": f"{name}.lab" for name, server in self._servers.items()}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], proxy: ApiProxy, service: str) -> None:
        super().__init__(address, _Handler)
        self.proxy, self.service = proxy, service


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _do(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            found = self.server.proxy.answer(self.server.service, self.command, self.path, dict(self.headers), body)
        except CassetteError as error:
            found = Exchange("", "", "", None, 418, {}, str(error))
        self.close_connection = True
        if found.status:
            self._send(found)

    do_GET = do_POST = do_PUT = do_DELETE = _do

    def _send(self, found: Exchange) -> None:
        data = str(found.body).encode()
        self.send_response(found.status)
        for key, value in found.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        if found.status not in (204, 304):
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the cassette has all requests."""


def _replaced(text: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
