"""The client of the control socket: one request, one reply, with a timeout."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path

from elastio.control.protocol import Message, RefusedByAgentError, UnreachableError, decode, encode
from elastio.control.status import Status
from elastio.errors import ControlError
from elastio.units import MOST_SOCKET_BYTES

# A reply holds the status or MAX_DECISIONS decisions.
MAX_REPLY_BYTES = 4 * 1024 * 1024
# Commands that need no decision.
PROMPT = ("status", "why")
PROMPT_S = 10.0


class ControlClient:
    """Sends requests to the daemon on `path`. Every call ends within `timeout_s`, which is longer than any decision."""

    def __init__(self, path: Path, timeout_s: float = 65.0) -> None:
        self.path = path
        self.timeout_s = timeout_s

    def ask(self, command: str, **fields: object) -> Message:
        """The reply to one request.

        Raises UnreachableError if no daemon answers, RefusedByAgentError if it refuses, ControlError if the reply is
        invalid.
        """
        _require_possible(self.path)
        timeout_s = min(PROMPT_S, self.timeout_s) if command in PROMPT else self.timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(timeout_s)
                sock.connect(str(self.path))
                # The daemon may refuse before it reads the request: the reply can be read even if sending fails.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    sock.sendall(encode({"command": command, **fields}))
                line = _read_line(sock, deadline)
        except PermissionError as error:
            raise UnreachableError(
                f"only root and its group may use {self.path}: use sudo, or join the group (agent.socket_group)",
                code="socket.permission",
            ) from error
        except TimeoutError as error:
            raise UnreachableError(
                f"the agent did not answer on {self.path} within {timeout_s:.0f} s: see `systemctl status elastiod`",
                code="socket.timeout",
            ) from error
        except OSError as error:
            raise UnreachableError(
                f"the agent is not running (no answer on {self.path}): start it with `systemctl start elastiod`",
                code="socket.closed",
            ) from error
        reply = decode(line)
        if not reply.get("ok"):
            text = str(reply.get("error", "the agent refused without a reason"))
            raise RefusedByAgentError(text, code=str(reply.get("code", "")))
        return reply

    def status(self) -> Status:
        """The status document the daemon published last."""
        document = self.ask("status").get("status")
        if not isinstance(document, dict):
            raise ControlError(
                "the agent's reply has no status: agent and `elastio` are of different releases", code="reply.status"
            )
        return Status.from_json(document)


def _require_possible(path: Path) -> None:
    if len(os.fsencode(path)) > MOST_SOCKET_BYTES:
        raise UnreachableError(
            f"no agent can listen on {path}: the path of a Unix socket has at most {MOST_SOCKET_BYTES} bytes",
            code="socket.path",
        )


def _read_line(sock: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        sock.settimeout(left)
        chunk = sock.recv(65536)
        if not chunk:
            raise ConnectionResetError("closed without a reply")
        received += chunk
        if len(received) > MAX_REPLY_BYTES:
            raise ControlError("the agent's reply is larger than any reply of this release", code="reply.too_large")
    return bytes(received)
