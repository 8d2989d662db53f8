"""The control protocol: one JSON object per line over a Unix stream socket, one request, one reply.

Request: `{"version": 1, "command": "boost", "size_bytes": 1073741824}`.
Reply: `{"version": 1, "ok": true, "text": "...", ...}`, or `{"version": 1, "ok": false, "error": "..."}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from elastio.errors import ControlError

VERSION = 1
MAX_LINE_BYTES = 64 * 1024
# `why` shows at most this many decisions; a long journal does not fit a reply.
MAX_DECISIONS = 200

# A hold that nobody ends, for at most a week, keeps a machine slow and nothing else.
MAX_HOLD_S = 7 * 86400

Message = dict[str, Any]

# Command -> the fields it may carry, each with its least and its most.
COMMANDS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "status": {},
    "boost": {"size_bytes": (1, 2**63 - 1)},
    "flush": {},
    "pause": {},
    "resume": {},
    "quiesce": {"seconds": (1, MAX_HOLD_S)},
    "unquiesce": {},
    "shutdown": {"reboots": (0, 1)},
    "recover": {"accepts_loss": (0, 1)},
    "gc": {},
    "learn": {"size_bytes": (1, 2**63 - 1)},
    "why": {"count": (1, MAX_DECISIONS)},
}


# Command -> the texts it may carry, each with its form.
TEXTS: Mapping[str, Mapping[str, re.Pattern[str]]] = {"recover": {"volume_id": re.compile(r"[A-Za-z0-9._:-]{1,128}")}}


class UnreachableError(ControlError):
    """No daemon answers on the control socket."""


class RefusedByAgentError(ControlError):
    """The daemon answered no."""


def accepted(text: str = "", **fields: object) -> Message:
    """A reply that says yes. `text` is one sentence for the operator."""
    return {"ok": True, "text": text, **fields}


def refused(error: str) -> Message:
    """A reply that says no, and why."""
    return {"ok": False, "error": error}


def encode(message: Mapping[str, object]) -> bytes:
    """One line, with the version in it."""
    return json.dumps({"version": VERSION, **message}, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message in one line. Raises ControlError where it is none of this version."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ControlError(f"the message is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ControlError("the message is not a JSON object")
    version = message.get("version")
    if version != VERSION:
        raise ControlError(
            f"the message is of version {version} of the control protocol, this side speaks {VERSION}: "
            "use the `elastio` of the agent's own release"
        )
    return message


def gives_up_data(message: Message) -> bool:
    """What membership of a group does not allow."""
    return message["command"] == "recover" and bool(message.get("accepts_loss"))


def parse_request(line: bytes) -> Message:
    """A checked request: a known command with known fields within their bounds. Raises ControlError."""
    message = decode(line)
    command = message.get("command")
    if not isinstance(command, str) or command not in COMMANDS:
        raise ControlError(f"{command!r} is not a command; known are {', '.join(COMMANDS)}")
    for name, value in message.items():
        if name not in ("version", "command"):
            _check_field(command, name, value)
    return message


def _check_field(command: str, name: str, value: object) -> None:
    form = TEXTS.get(command, {}).get(name)
    if form is not None:
        if not isinstance(value, str) or not form.fullmatch(value):
            raise ControlError(f"{name} of {command} must be letters, digits and . _ : -, at most 128 of them")
        return
    allowed = COMMANDS[command].get(name)
    if allowed is None:
        raise ControlError(f"{command} has no field {name}")
    if isinstance(value, bool) or not isinstance(value, int) or not allowed[0] <= value <= allowed[1]:
        raise ControlError(f"{name} of {command} must be a whole number from {allowed[0]} to {allowed[1]}")
