"""Announces a burst to the agent, as `elastio expect --in SECONDS --size BYTES` does.

The command itself takes an emulated processor seconds to start, by which each announced time would be wrong. So the
same request is sent straight to the agent's control socket.
"""

import json
import socket


class AnnouncementError(OSError):
    """The agent refused the announcement, or did not answer."""


def announce(path: str, seconds: float, size_bytes: int) -> None:
    """Announce a burst of so many bytes in so many seconds, at the socket `path`. Raises AnnouncementError."""
    request = {"version": 1, "command": "expect", "seconds": max(1, round(seconds)), "size_bytes": size_bytes}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        try:
            sock.connect(path)
            sock.sendall(json.dumps(request).encode() + b"\n")
            line = sock.makefile().readline()
        except OSError as error:
            raise AnnouncementError(f"the agent does not answer an announcement: {error}") from error
    try:
        reply = json.loads(line)
    except ValueError as error:
        raise AnnouncementError("the agent's answer to an announcement is not JSON") from error
    if not reply.get("ok"):
        raise AnnouncementError(f"the agent refused an announcement: {reply.get('error')}")
