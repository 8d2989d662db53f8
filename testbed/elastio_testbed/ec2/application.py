"""The endpoint's WSGI application: it injects faults, throttles calls and dispatches the rest."""

from __future__ import annotations

import re
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from moto.core.request import Request
from werkzeug.wrappers import Response

from elastio_testbed.ec2.api import LabResponse
from elastio_testbed.ec2.buckets import RateBuckets
from elastio_testbed.ec2.faults import CALL_KINDS, IMDS, Fault, FaultKind
from elastio_testbed.ec2.world import World

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

# EC2 API reference, "Error codes": client errors have status 400 except for these, server errors 500 or 503.
_STATUS = {
    "AuthFailure": 401,
    "UnauthorizedOperation": 403,
    "DryRunOperation": 412,
    "InternalError": 500,
    "InternalFailure": 500,
    "InsufficientVolumeCapacity": 500,
    "RequestLimitExceeded": 503,
    "Unavailable": 503,
    "ServiceUnavailable": 503,
}
_CODE = re.compile(r"<Code>([^<]*)</Code>")
# A request with one of these parameters does not ask for every resource.
_NARROWING = ("Filter", "MaxResults", "NextToken", "VolumeId", "InstanceId", "SnapshotId")
_PAGE = "<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>"


class LabRequest(Request):
    """A request as moto expects it, from a server that sends its own Date header."""

    from_wsgi_server = True


class _Disconnect(Exception):
    """The caller gets no response."""


class Application:
    """The WSGI application. Once `closing` is set, every call ends with a closed connection."""

    def __init__(
        self,
        world: World,
        buckets: RateBuckets,
        imds: Callable[[Request], Response],
    ) -> None:
        self._world = world
        self._buckets = buckets
        self._imds = imds
        self.closing = threading.Event()

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer one request, or close its connection."""
        request = LabRequest(environ)
        if self.closing.is_set():
            raise _disconnected(request)
        request.get_data()  # an unread body would be parsed as the connection's next request
        if request.path.startswith("/imds/"):
            return self._call(request, IMDS, self._imds)(environ, start_response)
        return self._call(request, request.values.get("Action", ""), self._answer)(environ, start_response)

    def _call(self, request: Request, action: str, answer: Callable[[Request], Response]) -> Response:
        began = time.monotonic()
        throttled = self._over_budget(request, action)
        # A throttled call does not use up a fault.
        fault = None if throttled else self._world.faults.take(action, CALL_KINDS)
        note: dict[str, object] = {"action": action, "fault": str(fault.kind) if fault else None}
        try:
            response = _throttled() if throttled else self._respond(request, answer, fault)
        except _Disconnect:
            # Logged first: the caller may read the log as soon as the connection ends.
            self._world.log.add("call", **note, status=None, code=None, elapsed_s=time.monotonic() - began)
            raise _disconnected(request) from None
        code = _CODE.search(response.get_data(as_text=True)) if response.status_code >= 400 else None
        note |= {"status": response.status_code, "code": code[1] if code else None}
        self._world.log.add("call", **note, elapsed_s=time.monotonic() - began)
        return response

    def _over_budget(self, request: Request, action: str) -> bool:
        narrowed = any(name.startswith(_NARROWING) for name in request.values)
        return action != IMDS and not self._buckets.take(action, narrowed=narrowed)

    def _respond(self, request: Request, answer: Callable[[Request], Response], fault: Fault | None) -> Response:
        if fault is None:
            return answer(request)
        instead = self._injected(fault)
        response = answer(request) if instead is None else instead
        if fault.kind is FaultKind.DROP_AFTER:
            raise _Disconnect
        if fault.kind is FaultKind.STALL_AFTER:
            self._wait(fault.seconds)
        return response

    def _injected(self, fault: Fault) -> Response | None:
        if fault.kind is FaultKind.THROTTLE:
            return _throttled()
        if fault.kind is FaultKind.ERROR:
            return error_response(fault.code, "Injected by the laboratory.")
        if fault.kind is FaultKind.HTTP:
            return Response(_PAGE.format(status=fault.status), fault.status, mimetype="text/html")
        if fault.kind is FaultKind.DROP_BEFORE:
            raise _Disconnect
        if fault.kind is FaultKind.LATENCY:
            self._wait(fault.seconds)
        return None

    def _wait(self, seconds: float) -> None:
        if self.closing.wait(seconds):
            raise _Disconnect

    def _answer(self, request: Request) -> Response:
        try:
            with self._world.lock:
                status, headers, body = LabResponse(self._world).answer(request)
        except NotImplementedError as error:
            return error_response("InvalidAction", str(error))
        except Exception:
            self._world.log.add("handler_failed", trace=traceback.format_exc())
            return error_response("InternalError", "An internal error has occurred.")
        text = body.decode() if isinstance(body, bytes) else body
        if status >= 400 and (code := _CODE.search(text)):
            status = _STATUS.get(code[1], status)
        headers.pop("status", None)
        return Response(text, status, headers)


def error_response(code: str, message: str) -> Response:
    """An error response of EC2, with the HTTP status of its code."""
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error>'
        f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
        f"</Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    return Response(body, _STATUS.get(code, 400), mimetype="text/xml")


def _throttled() -> Response:
    return error_response("RequestLimitExceeded", "Request limit exceeded.")


def _disconnected(request: Request) -> ConnectionAbortedError:
    connection: socket.socket = request.environ["werkzeug.socket"]
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError as error:
        return ConnectionAbortedError(f"the caller has closed the connection already: {error}")
    return ConnectionAbortedError("closed by a fault of the laboratory")
