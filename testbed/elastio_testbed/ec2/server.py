"""The HTTP server, in threads of this process, on the loopback interface only."""

from __future__ import annotations

import socket
import threading
from typing import Any

from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler

from elastio_testbed.ec2.application import Application

HOST = "127.0.0.1"
# The interval at which the accepting thread checks for its end.
_POLL_S = 0.02


class _QuietHandler(WSGIRequestHandler):
    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing: the endpoint keeps its own log."""


class _Server(ThreadedWSGIServer):
    """Tracks its connections: idle ones would outlive the endpoint."""

    def __init__(self, application: Application) -> None:
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(HOST, 0, application, handler=_QuietHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def close_all(self) -> None:
        """Wake every thread that waits for another request on its connection."""
        with self._open_lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    continue  # closed by the client


class HttpServer:
    """Serves an application until `stop`."""

    def __init__(self, application: Application) -> None:
        """Bind a free port and start serving."""
        self._application = application
        self._server = _Server(application)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="ec2-http", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The listening port."""
        return int(self._server.server_address[1])

    def stop(self, timeout_s: float) -> None:
        """Close the port and all connections. Raises TimeoutError when the accepting thread does not end."""
        self._application.closing.set()
        self._server.shutdown()
        self._server.close_all()
        self._server.server_close()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the HTTP server did not end within {timeout_s} s")
