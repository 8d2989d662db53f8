"""The control protocol: one JSON object per line over a Unix stream socket, one request and one reply per connection.

Request: `{"version": 1, "command": "boost", "size_bytes": 1073741824}`.
Reply: `{"version": 1, "ok": true, "text": "...", ...}`, or `{"version": 1, "ok": false, "error": "..."}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from elastio.errors import ControlError

VERSION = 1
MAX_LINE_BYTES = 64 * 1024
# `why` shows at most this many decisions; a long journal does not fit a reply.
MAX_DECISIONS = 200
DEFAULT_DECISIONS = 20

# An inhibition that nobody ends only keeps boosts from starting, so a week is a safe limit.
MAX_HOLD_S = 7 * 86400

Message = dict[str, Any]
Reply = Callable[[Message], None]


class UnreachableError(ControlError):
    """No daemon answers on the control socket."""


class RefusedByAgentError(ControlError):
    """The daemon refused the request."""


def accepted(text: str = "", **fields: object) -> Message:
    """The reply to a request that was accepted. `text` is one sentence for the operator."""
    return {"ok": True, "text": text, **fields}


def refused(error: str) -> Message:
    """The reply to a request that was refused. `error` is one sentence that gives the reason."""
    return {"ok": False, "error": error}


def encode(message: Mapping[str, object]) -> bytes:
    """The message and the protocol version as one line."""
    return json.dumps({"version": VERSION, **message}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in one line. Raises ControlError if it is not a message of this version."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"the message is not JSON: {error}", code="message.syntax") from error
    if not isinstance(message, dict):
        raise ControlError("the message is not a JSON object", code="message.syntax")
    version = message.get("version")
    if version != VERSION:
        raise ControlError(
            f"the message is of version {version} of the control protocol, this side speaks {VERSION}: "
            "use the `elastio` of the agent's own release",
            code="message.version",
        )
    return message


# --- requests ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number within bounds."""

    least: int
    most: int

    def read(self, value: object) -> int:
        """The value. Raises ValueError that says what is allowed."""
        if isinstance(value, bool) or not isinstance(value, int) or not self.least <= value <= self.most:
            raise ValueError(f"a whole number from {self.least} to {self.most}")
        return value


class Flag(Whole):
    """0 or 1 on the wire."""

    def read(self, value: object) -> bool:
        return bool(Whole.read(self, value))


@dataclass(frozen=True, slots=True)
class Name:
    """A name that the cloud gave."""

    def read(self, value: object) -> str:
        """The value. Raises ValueError that says what is allowed."""
        if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9._:-]{1,128}", value):
            raise ValueError("at most 128 letters, digits and . _ : -")
        return value


SIZE = Whole(1, 2**63 - 1)
FLAG = Flag(0, 1)

# The one declaration of every command and its fields. All but `status` and `why` are a `RequestKind`, and their fields
# are those of `Request` (elastio.core.model).
COMMANDS: Mapping[str, Mapping[str, Whole | Name]] = {
    "status": {},
    "boost": {"size_bytes": SIZE},
    "flush": {},
    "pause": {},
    "resume": {},
    "quiesce": {"seconds": Whole(1, MAX_HOLD_S)},
    "unquiesce": {},
    "shutdown": {"reboots": FLAG},
    "recover": {"accepts_loss": FLAG, "volume_id": Name()},
    "gc": {},
    "learn": {"size_bytes": SIZE},
    "why": {"count": Whole(1, MAX_DECISIONS)},
}
_HEADER = ("version", "command")


def parse_request(line: bytes) -> Message:
    """A known command with valid fields. Raises ControlError."""
    message = decode(line)
    command = message.get("command")
    if not isinstance(command, str) or command not in COMMANDS:
        raise ControlError(
            f"{command!r} is not a command; the commands are {', '.join(COMMANDS)}", code="command.unknown"
        )
    return {k: v if k in _HEADER else _read_field(command, k, v) for k, v in message.items()}


def _read_field(command: str, name: str, value: object) -> object:
    field = COMMANDS[command].get(name)
    if field is None:
        raise ControlError(f"{command} has no field {name}", code="field.unknown")
    try:
        return field.read(value)
    except ValueError as error:
        raise ControlError(f"{name} of {command} must be {error}", code=f"{command}.{name}") from error


def fields_of(message: Message) -> Message:
    """The fields of a parsed request, without version and command."""
    return {k: v for k, v in message.items() if k not in _HEADER}


def gives_up_data(message: Message) -> bool:
    """True if the request needs root: members of the socket's group may not accept the loss of data."""
    return message["command"] == "recover" and bool(message.get("accepts_loss"))
