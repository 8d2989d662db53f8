"""The operator's end of the control socket: one request, one reply, bounded in time."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

from elastio.control.protocol import Message, RefusedByAgentError, UnreachableError, decode, encode
from elastio.control.status import Status
from elastio.errors import ControlError

# A reply holds the status or MAX_DECISIONS decisions.
MAX_REPLY_BYTES = 4 * 1024 * 1024
# Commands that are answered at once, without a decision.
PROMPT = ("status", "why")
PROMPT_S = 10.0


class ControlClient:
    """Asks the daemon on `path`. Every call ends within `timeout_s`, which is more than a decision may take."""

    def __init__(self, path: Path, timeout_s: float = 65.0) -> None:
        self.path = path
        self.timeout_s = timeout_s

    def ask(self, command: str, **fields: object) -> Message:
        """The reply to one request.

        Raises UnreachableError where no daemon answers, RefusedByAgentError where it says no, ControlError where
        the reply makes no sense.
        """
        timeout_s = min(PROMPT_S, self.timeout_s) if command in PROMPT else self.timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
                sock.settimeout(timeout_s)
                sock.connect(str(self.path))
                # A refusal can come before the request is read; the reply is there even if sending fails.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    sock.sendall(encode({"command": command, **fields}))
                line = _read_line(sock, deadline)
        except PermissionError as error:
            raise UnreachableError(
                f"{self.path} may only be used by root and by members of its group: "
                "use sudo, or join the group (agent.socket_group)",
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
            raise RefusedByAgentError(str(reply.get("error", "the agent refused and did not say why")))
        return reply

    def status(self) -> Status:
        """The status document the daemon published last."""
        document = self.ask("status").get("status")
        if not isinstance(document, dict):
            raise ControlError(
                "the agent's reply has no status: agent and `elastio` are of different releases", code="reply.status"
            )
        return Status.from_json(document)


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
