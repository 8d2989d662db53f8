"""The control socket: what it answers, whom it refuses, and that nothing a client does blocks it."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import selectors
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elastio.control.protocol import MAX_LINE_BYTES, Message, Reply, accepted, parse_request
from elastio.control.server import DECIDE_S, MAX_CLIENTS, TRANSFER_S, ControlServer, Handler
from elastio.errors import ControlError, ElastioError, HostError, LockedError


class Bench:
    """A server and its selector, turned by hand, with a stopped clock."""

    def __init__(self, path: Path, handle: Handler, group: str | None) -> None:
        self.now = 100.0
        self.selector = selectors.DefaultSelector()
        self.server = ControlServer(path, group, handle, monotonic=lambda: self.now)
        self.server.register(self.selector)
        self.path = path

    def turn(self) -> None:
        """Serve until nothing is ready any more."""
        for _ in range(10_000):
            ready = self.selector.select(0)
            if not ready:
                break
            for key, mask in ready:
                assert key.data is self.server
                self.server.on_ready(key, mask)
        else:
            pytest.fail("the server spins")
        self.server.sweep()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(5)
        sock.connect(str(self.path))
        return sock

    def ask(self, line: bytes) -> Message:
        with self.connect() as sock:
            sock.sendall(line)
            self.turn()
            return reply_on(sock)

    def watched(self) -> int:
        return len(self.selector.get_map())


def reply_on(sock: socket.socket) -> Message:
    received = b""
    while not received.endswith(b"\n") and (chunk := sock.recv(65536)):
        received += chunk
    message: Message = json.loads(received)
    return message


def asks(command: str, **fields: Any) -> bytes:
    return json.dumps({"version": 1, "command": command, **fields}).encode() + b"\n"


def echo(request: Message, reply: Reply) -> None:
    reply(accepted("yes", request=request))


OpenBench = Callable[..., Bench]


@pytest.fixture
def open_bench(tmp_path: Path) -> Iterator[OpenBench]:
    """Opens a bench, which is closed after the test."""
    with contextlib.ExitStack() as opened:

        def open_one(handle: Handler, group: str | None = None) -> Bench:
            bench = Bench(tmp_path / "s.sock", handle, group)
            opened.callback(bench.selector.close)
            opened.callback(bench.server.close)
            return bench

        yield open_one


@pytest.fixture
def bench(open_bench: OpenBench) -> Bench:
    return open_bench(echo)


def test_answers_a_request_with_the_version_in_both(bench: Bench) -> None:
    reply = bench.ask(asks("status"))
    assert reply == {"version": 1, "ok": True, "text": "yes", "request": {"version": 1, "command": "status"}}


def test_answers_a_request_that_arrives_in_pieces(bench: Bench) -> None:
    with bench.connect() as sock:
        for byte in asks("pause"):
            sock.sendall(bytes([byte]))
            bench.turn()
        assert reply_on(sock)["ok"] is True
    bench.turn()
    assert bench.watched() == 1


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"hello\n", "message.syntax"),
        (b"[1]\n", "message.syntax"),
        (b"[" * 60000 + b"\n", "message.syntax"),
        (b'{"command": "status"}\n', "message.version"),
        (b'{"version": 2, "command": "status"}\n', "message.version"),
        (asks("format"), "command.unknown"),
        (b'{"version": 1, "command": ["status"]}\n', "command.unknown"),
        (asks("flush", size_bytes=1), "field.unknown"),
        (asks("boost", size_bytes=0), "boost.size_bytes"),
        (asks("boost", size_bytes=True), "boost.size_bytes"),
        (asks("boost", size_bytes=1.5), "boost.size_bytes"),
        (asks("shutdown", reboots=2), "shutdown.reboots"),
        (asks("recover", volume_id="vol 7"), "recover.volume_id"),
        (asks("why", count=201), "why.count"),
    ],
)
def test_refuses_what_is_not_a_request_of_the_protocol(line: bytes, code: str, bench: Bench) -> None:
    with pytest.raises(ControlError) as refused:
        parse_request(line)
    assert refused.value.code == code
    assert bench.ask(line) == {"version": 1, "ok": False, "error": str(refused.value), "code": code}


def test_refuses_a_line_longer_than_the_limit(bench: Bench) -> None:
    assert bench.ask(b'{"version": 1, "command": "' + b"x" * MAX_LINE_BYTES)["ok"] is False


def test_drops_a_client_that_sends_nothing(bench: Bench) -> None:
    with bench.connect() as sock:
        bench.turn()
        bench.now += TRANSFER_S / 2
        bench.turn()
        assert bench.watched() == 2
        bench.now += TRANSFER_S
        bench.turn()
        assert sock.recv(1) == b""
    assert bench.watched() == 1


def test_drops_a_client_that_does_not_read_its_reply(open_bench: OpenBench) -> None:
    bench = open_bench(lambda _, reply: reply(accepted("x" * 4_000_000)))
    with bench.connect() as sock:
        sock.sendall(asks("status"))
        bench.turn()
        assert bench.watched() == 2
        bench.now += TRANSFER_S
        bench.turn()
        assert bench.watched() == 1


def test_sends_a_reply_larger_than_the_socket_takes_at_once(open_bench: OpenBench) -> None:
    bench = open_bench(lambda _, reply: reply(accepted("x" * 2_000_000)))
    received = b""
    with bench.connect() as sock:
        sock.sendall(asks("status"))
        bench.turn()
        while chunk := sock.recv(65536):
            received += chunk
            bench.turn()
    assert len(json.loads(received)["text"]) == 2_000_000


def test_refuses_more_clients_than_the_limit_and_takes_the_next_when_one_leaves(bench: Bench) -> None:
    clients = [bench.connect() for _ in range(MAX_CLIENTS)]
    bench.turn()
    with bench.connect() as late:
        bench.turn()
        assert reply_on(late)["ok"] is False
    clients[0].close()
    bench.turn()
    assert bench.ask(asks("status"))["ok"] is True
    for client in clients:
        client.close()


def test_keeps_answering_after_the_handler_failed(open_bench: OpenBench, caplog: pytest.LogCaptureFixture) -> None:
    def handle(request: Message, reply: Reply) -> None:
        if request["command"] == "pause":
            raise ElastioError("not now")
        reply(accepted(str(1 // (request["command"] != "flush"))))

    bench = open_bench(handle)
    assert bench.ask(asks("pause"))["error"] == "not now"
    assert bench.ask(asks("flush"))["ok"] is False
    assert "ZeroDivisionError" in caplog.text
    assert bench.ask(asks("status"))["ok"] is True


# --- replies that wait for a decision ---------------------------------------------------------------------


class Later:
    """A handler that keeps the replies for later."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def __call__(self, request: Message, reply: Reply) -> None:
        self.replies.append(reply)


@pytest.fixture
def later(open_bench: OpenBench) -> tuple[Bench, Later]:
    handle = Later()
    return open_bench(handle), handle


def test_gives_each_waiting_client_its_own_reply(later: tuple[Bench, Later]) -> None:
    bench, handle = later
    with bench.connect() as one, bench.connect() as two:
        one.sendall(asks("boost"))
        bench.turn()
        two.sendall(asks("flush"))
        bench.turn()
        handle.replies[1](accepted("second"))
        handle.replies[0](accepted("first"))
        assert [reply_on(one)["text"], reply_on(two)["text"]] == ["first", "second"]
    assert bench.watched() == 1


def test_a_client_that_left_before_the_decision_is_forgotten(later: tuple[Bench, Later]) -> None:
    bench, handle = later
    with bench.connect() as sock:
        sock.sendall(asks("boost"))
        bench.turn()
    bench.turn()
    assert bench.watched() == 1
    handle.replies[0](accepted("too late"))
    assert bench.watched() == 1


def test_a_request_nobody_decides_on_is_refused_in_the_end(later: tuple[Bench, Later]) -> None:
    bench, handle = later
    with bench.connect() as sock:
        sock.sendall(asks("boost"))
        bench.turn()
        bench.now += DECIDE_S - 1
        bench.turn()
        assert bench.watched() == 2
        bench.now += 1
        bench.turn()
        handle.replies[0](accepted("too late"))
        assert reply_on(sock)["ok"] is False


def test_refuses_who_is_waiting_when_it_closes(open_bench: OpenBench) -> None:
    bench = open_bench(Later())
    with bench.connect() as sock:
        sock.sendall(asks("boost"))
        bench.turn()
        bench.server.close()
        assert reply_on(sock)["ok"] is False
    assert not bench.path.exists()


# --- who may ask --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [None, "no-such-group"])
def test_without_a_group_the_file_is_for_root_alone(
    group: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ControlServer(tmp_path / "s.sock", group, echo)
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600
    assert ("no-such-group" in caplog.text) is (group is not None)
    server.close()


def test_the_file_is_for_the_group_too(tmp_path: Path) -> None:
    group = grp.getgrgid(os.getegid())
    server = ControlServer(tmp_path / "s.sock", group.gr_name, echo)
    shown = server.path.stat()
    assert (stat.S_IMODE(shown.st_mode), shown.st_gid) == (0o660, group.gr_gid)
    server.close()


@pytest.fixture
def open_to_all(open_bench: OpenBench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenBench:
    """A bench of the group 5000 whose file everybody may open, so that only the peer's credentials decide."""
    monkeypatch.setattr(grp, "getgrnam", lambda _: grp.struct_group(("ops", "x", 5000, [])))
    tmp_path.chmod(0o755)

    def open_one(handle: Handler) -> Bench:
        bench = open_bench(handle, "ops")
        bench.path.chmod(0o666)
        return bench

    return open_one


def connect_as(path: Path, uid: int, gid: int, groups: list[int], request: bytes = b"") -> bytes:
    """Connect as another user, and ask: in a child, because the kernel records who connects."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(path.parent)  # the folders above are closed to others
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.connect(path.name)
            sock.sendall(request)
            os.write(writer, b"connected")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    said = os.read(reader, 100)
    os.close(reader)
    return said


@pytest.mark.parametrize(
    ("uid", "gid", "groups", "is_allowed"),
    [(0, 0, [], True), (4321, 5000, [], True), (4321, 4321, [4999, 5000], True), (4321, 4321, [4999], False)],
)
def test_asks_the_kernel_who_connects(
    uid: int, gid: int, groups: list[int], is_allowed: bool, open_to_all: OpenBench
) -> None:
    bench = open_to_all(echo)
    assert connect_as(bench.path, uid, gid, groups) == b"connected"
    for key, mask in bench.selector.select(1):
        bench.server.on_ready(key, mask)
    # A refused client is answered and dropped at once; one that may ask is kept until it has asked.
    assert (bench.watched() == 2) is is_allowed


@pytest.mark.parametrize(("uid", "is_heard"), [(0, True), (4321, False)])
def test_only_root_may_give_up_data_or_take_volumes_over_and_the_kernel_says_who(
    uid: int, is_heard: bool, open_to_all: OpenBench
) -> None:
    heard: list[tuple[bool, int | None]] = []

    def hear(message: Message, reply: Reply) -> None:
        heard.append((bool(message.get("accepts_loss") or message.get("is_foreign")), opened.server.asked_by))
        reply(accepted())

    opened = open_to_all(hear)
    named = asks("recover", asked_by=0)  # nobody may name somebody else
    harmless = (asks("recover"), asks("recover", accepts_loss=0))
    reserved = (*(asks(name, accepts_loss=1) for name in ("recover", "resume")), asks("recover", is_foreign=1))
    for request in (*harmless, *reserved, named):
        assert connect_as(opened.path, uid, 5000, [], request) == b"connected"
        opened.turn()
    assert heard == [(False, uid), (False, uid), *[(True, uid)] * 3][: 5 if is_heard else 2]


# --- the socket file --------------------------------------------------------------------------------------


def test_replaces_the_socket_that_a_killed_agent_left(open_bench: OpenBench, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "s.sock"))
    bench = open_bench(echo)
    assert bench.ask(asks("status"))["ok"] is True


def test_refuses_to_replace_an_agent_that_answers(bench: Bench) -> None:
    with pytest.raises(LockedError):
        ControlServer(bench.path, None, echo)
    bench.turn()
    assert bench.ask(asks("status"))["ok"] is True


def test_refuses_to_replace_a_file_that_is_not_a_socket(tmp_path: Path) -> None:
    (tmp_path / "s.sock").write_text("precious")
    with pytest.raises(HostError) as refused:
        ControlServer(tmp_path / "s.sock", None, echo)
    assert refused.value.code == "socket.type"
    assert (tmp_path / "s.sock").read_text() == "precious"


def test_a_socket_that_cannot_be_created_is_an_error_of_the_host(tmp_path: Path) -> None:
    with pytest.raises(HostError) as failed:
        ControlServer(tmp_path / "missing" / "s.sock", None, echo)
    assert failed.value.code == "socket.create"
