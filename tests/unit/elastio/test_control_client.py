"""The operator's end of the control socket, against agents that answer, refuse, hang or are not there."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from elastio.control.client import ControlClient
from elastio.control.protocol import RefusedByAgentError, UnreachableError
from elastio.errors import ControlError


def asked_of(path: Path, serve: Callable[[socket.socket], object], padding: str = "") -> None:
    """Ask `boost` of an agent that does with its one connection what `serve` says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(1)

        def once() -> None:
            served, _ = listener.accept()
            with served:
                serve(served)

        thread = threading.Thread(target=once)
        thread.start()
        try:
            ControlClient(path, timeout_s=10).ask("boost", padding=padding)
        finally:
            thread.join()


def answer(reply: bytes) -> Callable[[socket.socket], object]:
    def serve(served: socket.socket) -> None:
        served.recv(65536)
        served.sendall(reply)

    return serve


def code_of(error: type[ControlError], ask: Callable[[], object]) -> str:
    with pytest.raises(error) as failed:
        ask()
    return failed.value.code


def test_an_agent_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    client = ControlClient(tmp_path / "none.sock")
    assert code_of(UnreachableError, lambda: client.ask("status")) == "socket.closed"


def test_a_path_that_no_socket_can_have_is_named(tmp_path: Path) -> None:
    client = ControlClient(tmp_path / ("n" * 108))
    assert code_of(UnreachableError, lambda: client.ask("status")) == "socket.path"


def test_gives_up_on_an_agent_that_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hung:
        hung.bind(str(tmp_path / "s.sock"))
        hung.listen(1)
        client = ControlClient(tmp_path / "s.sock", timeout_s=0.05)
        assert code_of(UnreachableError, lambda: client.ask("status")) == "socket.timeout"


def test_a_refusal_is_an_error_with_the_agents_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedByAgentError) as refused:
        asked_of(tmp_path / "s.sock", answer(b'{"version":1,"ok":false,"error":"the quota is used up"}\n'))
    assert str(refused.value) == "the quota is used up"


def test_receives_a_refusal_that_came_before_the_request_was_read(tmp_path: Path) -> None:
    """The server does not read from a refused client: the reason must not be lost in a broken pipe.

    The request is larger than the socket's buffer, so that sending it cannot end before the server has closed.
    """
    refusal = b'{"version":1,"ok":false,"error":"16 clients are connected already"}\n'
    with pytest.raises(RefusedByAgentError):
        asked_of(tmp_path / "s.sock", lambda served: served.sendall(refusal), padding="x" * 4_000_000)


@pytest.mark.parametrize("reply", [b"", b'{"version":1'])
def test_an_agent_that_dies_over_the_request_is_not_running(reply: bytes, tmp_path: Path) -> None:
    assert code_of(UnreachableError, lambda: asked_of(tmp_path / "s.sock", answer(reply))) == "socket.closed"


@pytest.mark.parametrize(
    ("reply", "code"),
    [(b"hello\n", "message.syntax"), (b'{"version":9,"ok":true}\n', "message.version")],
)
def test_a_reply_that_makes_no_sense_is_a_control_error(reply: bytes, code: str, tmp_path: Path) -> None:
    assert code_of(ControlError, lambda: asked_of(tmp_path / "s.sock", answer(reply))) == code


def test_a_reply_without_end_is_cut_off(tmp_path: Path) -> None:
    def flood(served: socket.socket) -> None:
        served.recv(65536)
        try:
            for _ in range(100):
                served.sendall(b"x" * 65536)
        except OSError:
            return  # the client has hung up, as it should
        pytest.fail("the client read it all")

    assert code_of(ControlError, lambda: asked_of(tmp_path / "s.sock", flood)) == "reply.too_large"
