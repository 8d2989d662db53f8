"""The server of the control socket. It runs in the daemon's only selector and never blocks it.

Root, the daemon's own user and members of one group may connect. The mode of the socket file enforces this, and the
peer's credentials (SO_PEERCRED) are checked as well. The number of clients, the bytes and the time are limited.
"""

from __future__ import annotations

import errno
import grp
import logging
import os
import selectors
import socket
import stat
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elastio.control.protocol import MAX_LINE_BYTES, Message, Reply, encode, needs_root, parse_request, refused
from elastio.errors import ControlError, ElastioError, HostError, LockedError

MAX_CLIENTS = 16
# To send a request, and again to take the reply.
TRANSFER_S = 2.0
# For the daemon to decide on a request. Longer than its longest scan of a kernel that hangs.
DECIDE_S = 60.0
# Linux: the supplementary groups of the peer (asm-generic/socket.h). They come from the kernel, because a name service
# that hangs would hang the daemon.
SO_PEERGROUPS = 59
MAX_GROUPS_BYTES = 1024  # the most that Python's getsockopt takes: 256 groups

_log = logging.getLogger(__name__)


Handler = Callable[[Message, Reply], None]


@dataclass(eq=False)
class _Client:
    """One connection: receives a request, may wait for a decision, sends a reply."""

    sock: socket.socket
    deadline: float
    received: bytes = b""
    reply: bytes = b""
    is_waiting: bool = False  # for the handler's reply
    is_answered: bool = False


class ControlServer:
    """Answers requests on a Unix socket from within another event loop.

    Call `register` once, `on_ready` for every ready key whose `data` is this server, and `sweep` in every
    iteration of the loop. `handle` gets a parsed request (`elastio.control.protocol.parse_request`) and the function
    that sends its reply, which it calls now or later. `asked_by` is the uid of the client whose request it handles.
    """

    def __init__(
        self,
        path: Path,
        group: str | None,
        handle: Handler,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Bind the socket. Raises LockedError if another daemon answers on it, HostError if it cannot be created."""
        self.path = path
        self._handle = handle
        self._monotonic = monotonic
        self.asked_by: int | None = None  # None: the kernel does not say, or no request is handled
        self._gid = _gid_of(group)
        self._clients: dict[int, _Client] = {}
        self._selector: selectors.BaseSelector | None = None
        self._listener = _listen(path, self._gid)

    def register(self, selector: selectors.BaseSelector) -> None:
        """Add the listener. Ready keys with `data is self` are passed to `on_ready` from now on."""
        self._selector = selector
        selector.register(self._listener, selectors.EVENT_READ, self)

    def on_ready(self, key: selectors.SelectorKey, mask: int) -> None:
        """Process one ready key without blocking."""
        if key.fd == self._listener.fileno():
            self._accept()
            return
        client = self._clients.get(key.fd)
        if client is None:
            return
        try:
            self._send(client) if client.is_answered else self._receive(client)
        except BlockingIOError:
            return
        except OSError as error:
            _log.debug("control client left: %s", error)
            self._drop(client)

    def sweep(self) -> None:
        """Refuse or drop clients whose deadline has passed."""
        now = self._monotonic()
        for client in [c for c in self._clients.values() if now >= c.deadline]:
            if client.is_waiting:
                self._answer(client, refused(f"the agent did not decide within {DECIDE_S:.0f} s"))
            else:
                self._drop(client)

    def close(self) -> None:
        """Refuse the clients that wait, close every connection and remove the socket file."""
        for client in list(self._clients.values()):
            if client.is_waiting:
                self._answer(client, refused("the agent is stopping"))
        for client in list(self._clients.values()):
            self._drop(client)
        if self._selector is not None:
            self._selector.unregister(self._listener)
            self._selector = None
        self._listener.close()
        self.path.unlink(missing_ok=True)

    # --- connections -----------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            # The client may have left, or the process may be out of descriptors: the client tries again.
            _log.debug("control connection not accepted: %s", error)
            return
        sock.setblocking(False)
        client = _Client(sock, self._monotonic() + TRANSFER_S)
        self._clients[sock.fileno()] = client
        self._watch(client, selectors.EVENT_READ)
        if not self._is_allowed(sock):
            self._answer(client, refused("only root and members of the agent's group may use this socket"))
        elif len(self._clients) > MAX_CLIENTS:
            self._answer(client, refused(f"{MAX_CLIENTS} clients are connected already: try again later"))

    def _is_allowed(self, sock: socket.socket) -> bool:
        try:
            uid, gid = _peer(sock)
            if uid in (0, os.geteuid()) or (self._gid is not None and gid == self._gid):
                return True
            groups = sock.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, MAX_GROUPS_BYTES)
        except OSError as error:
            _log.warning("control client without credentials: %s", error)
            return False
        return self._gid is not None and self._gid in struct.unpack(f"{len(groups) // 4}i", groups)

    def _receive(self, client: _Client) -> None:
        chunk = client.sock.recv(MAX_LINE_BYTES + 1)
        if client.is_waiting:
            if not chunk:  # the client left before the decision
                self._drop(client)
            return
        client.received += chunk
        line, newline, _ = client.received.partition(b"\n")
        if len(line) > MAX_LINE_BYTES:
            self._answer(client, refused(f"a request is at most {MAX_LINE_BYTES} bytes"))
        elif newline:
            self._ask(client, line)
        elif not chunk:
            self._drop(client)

    def _ask(self, client: _Client, line: bytes) -> None:
        client.is_waiting = True
        client.deadline = self._monotonic() + DECIDE_S

        def reply(message: Message) -> None:
            if client.is_waiting:  # not after the deadline, and not if the client has left
                self._answer(client, message)

        try:
            message = parse_request(line)
            if (reserved := needs_root(message)) and not _is_root(client.sock):
                raise ControlError(f"only root may {reserved}", code=f"{message['command']}.accepts_loss")
            self.asked_by = _uid(client.sock)
            self._handle(message, reply)
        except ElastioError as error:
            reply(refused(str(error), error.code))
        except Exception:
            # A bug in a reply must not stop an agent that guards data; it is logged with its traceback.
            _log.exception("a control request failed")
            reply(refused("the agent failed to answer: see `journalctl -u elastiod`"))
        finally:
            self.asked_by = None

    def _answer(self, client: _Client, reply: Mapping[str, object]) -> None:
        client.reply = encode(reply)
        client.is_answered, client.is_waiting = True, False
        client.deadline = self._monotonic() + TRANSFER_S
        try:
            self._send(client)
        except BlockingIOError:
            self._watch(client, selectors.EVENT_WRITE)
        except OSError as error:
            _log.debug("control client left: %s", error)
            self._drop(client)

    def _send(self, client: _Client) -> None:
        client.reply = client.reply[client.sock.send(client.reply) :]
        if client.reply:
            self._watch(client, selectors.EVENT_WRITE)
        else:
            self._drop(client)

    def _watch(self, client: _Client, events: int) -> None:
        if self._selector is None:
            return
        if client.sock.fileno() in self._selector.get_map():
            self._selector.modify(client.sock, events, self)
        else:
            self._selector.register(client.sock, events, self)

    def _drop(self, client: _Client) -> None:
        client.is_waiting = False
        fileno = client.sock.fileno()
        if self._selector is not None and fileno in self._selector.get_map():
            self._selector.unregister(client.sock)
        self._clients.pop(fileno, None)
        client.sock.close()


# --- credentials ---------------------------------------------------------------------------------------------


def _peer(sock: socket.socket) -> tuple[int, int]:
    """User and group of the peer process, as the kernel recorded them. Raises OSError."""
    packed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, gid = struct.unpack("3i", packed)
    return uid, gid


def _uid(sock: socket.socket) -> int | None:
    """The user of the peer process; None: the kernel does not say."""
    try:
        return _peer(sock)[0]
    except OSError as error:
        _log.warning("control client without credentials: %s", error)
        return None


def _is_root(sock: socket.socket) -> bool:
    """True for root and for the user that the agent runs as."""
    return _uid(sock) in (0, os.geteuid())


# --- the socket file -----------------------------------------------------------------------------------------


def _gid_of(group: str | None) -> int | None:
    if not group:
        return None
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        # Root can still use the socket, so the agent starts and guards the data without the group.
        _log.warning("there is no group %s: only root can use the control socket", group)
        return None


def _listen(path: Path, gid: int | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _clear(path)
        listener.bind(str(path))
        if gid is not None:
            os.chown(path, -1, gid)
        path.chmod(0o660 if gid is not None else 0o600)
        # No client can connect before this line, so none sees the file with another mode.
        listener.listen(MAX_CLIENTS)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise HostError(
            f"the control socket {path} cannot be created: {error.strerror or error}", code="socket.create"
        ) from error
    except ElastioError:
        listener.close()
        raise
    return listener


def _clear(path: Path) -> None:
    """Remove the socket of a killed daemon. A socket that answers, and any other file, stays."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise HostError(f"{path} exists and is not a socket: move it away or set agent.socket", code="socket.type")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(TRANSFER_S)
        answered = probe.connect_ex(str(path))
    if answered in (0, errno.EAGAIN, errno.ETIMEDOUT):
        raise LockedError(f"another agent answers on {path}: stop it first")
    path.unlink()
