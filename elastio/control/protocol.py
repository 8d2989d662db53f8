"""The control protocol: one JSON object per line over a Unix stream socket, one request and one reply per connection.

Request: `{"version": 1, "command": "boost", "size_bytes": 1073741824}`.
Reply: `{"version": 1, "ok": true, "text": "...", ...}`, or
`{"version": 1, "ok": false, "error": "...", "code": "..."}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from elastio.errors import ControlError

VERSION = 1
MAX_LINE_BYTES = 64 * 1024
# `why` shows at most this many decisions; a long journal does not fit a reply.
MAX_DECISIONS = 200
DEFAULT_DECISIONS = 20

# An inhibition that nobody ends only keeps boosts from starting, so a week is a safe limit; also for announced bursts.
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


def refused(error: str, code: str = "") -> Message:
    """The reply to a request that was refused. `error` is one sentence that gives the reason, `code` a stable word."""
    return {"ok": False, "error": error, "code": code}


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


FLAG = range(2)  # 0 or 1
SIZE = range(1, 2**63)
VOLUME_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

# The one declaration of every command and its fields: a whole number in a range, or a text. All but `status` and `why`
# are a `RequestKind` with fields of `Request` (elastio.core.model).
COMMANDS: Mapping[str, Mapping[str, range | re.Pattern[str]]] = {
    "status": {},
    "boost": {"size_bytes": SIZE},
    "flush": {},
    "pause": {},
    "resume": {"accepts_loss": FLAG},
    "quiesce": {"seconds": range(1, MAX_HOLD_S + 1)},
    "unquiesce": {},
    "shutdown": {"reboots": FLAG, "cancels": FLAG},
    "recover": {"accepts_loss": FLAG, "brings_back": FLAG, "is_foreign": FLAG, "volume_id": VOLUME_ID},
    "gc": {},
    "learn": {"size_bytes": SIZE},
    "expect": {"seconds": range(1, MAX_HOLD_S + 1), "size_bytes": SIZE},
    "why": {"count": range(1, MAX_DECISIONS + 1)},
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
    form = COMMANDS[command].get(name)
    if form is None:
        raise ControlError(f"{command} has no field {name}", code="field.unknown")
    if isinstance(form, range):
        if type(value) is int and value in form:
            return bool(value) if form is FLAG else value
        allowed = f"a whole number from {form[0]} to {form[-1]}"
    else:
        if isinstance(value, str) and form.fullmatch(value):
            return value
        allowed = "at most 128 letters, digits and . _ : -"
    raise ControlError(f"{name} of {command} must be {allowed}", code=f"{command}.{name}")


def fields_of(message: Message) -> Message:
    """The fields of a parsed request, without version and command."""
    return {k: v for k, v in message.items() if k not in _HEADER}


def needs_root(message: Message) -> str:
    """What only root may do of what this request asks, not every member of the socket's group; empty: nothing.

    Whether a request needs `accepts_loss` depends on the state, and is decided by the core.
    """
    if message.get("accepts_loss"):
        return "accept the loss of data"
    return "take over another machine's volume" if message.get("is_foreign") else ""
