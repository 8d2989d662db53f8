"""The HTTP server, in threads of this process, on the loopback interface only."""

from __future__ import annotations

import contextlib
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


class HttpServer(ThreadedWSGIServer):
    """Serves an application on a free port until `end`. Tracks its connections: idle ones would outlive it."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(HOST, 0, application, handler=_QuietHandler)
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_S,), name="ec2-http", daemon=True)
        self._thread.start()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end(self, timeout_s: float) -> None:
        """Close the port and all connections. Raises TimeoutError when the accepting thread does not end."""
        self._application.closing.set()
        self.shutdown()
        # This wakes every thread that waits for another request on its connection.
        with self._open_lock:
            for connection in self._open:
                with contextlib.suppress(OSError):  # closed by the client
                    connection.shutdown(socket.SHUT_RDWR)
        self.server_close()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise TimeoutError(f"the HTTP server did not end within {timeout_s} s")
