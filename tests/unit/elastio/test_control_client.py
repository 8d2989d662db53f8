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


def test_says_how_to_start_an_agent_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"the agent is not running .*start it with `systemctl start elastiod`"):
        ControlClient(tmp_path / "none.sock").ask("status")


def test_gives_up_on_an_agent_that_hangs(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hung:
        hung.bind(str(tmp_path / "s.sock"))
        hung.listen(1)
        with pytest.raises(UnreachableError, match=r"did not answer on .* within 0 s: see `systemctl status elastiod`"):
            ControlClient(tmp_path / "s.sock", timeout_s=0.05).ask("status")


def test_a_refusal_is_an_error_with_the_agents_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(RefusedByAgentError, match=r"^the quota is used up$"):
        asked_of(tmp_path / "s.sock", answer(b'{"version":1,"ok":false,"error":"the quota is used up"}\n'))


def test_hears_a_refusal_that_came_before_the_request_was_read(tmp_path: Path) -> None:
    """A refused client is not read from: the reason must not drown in a broken pipe.

    The request is larger than the socket takes, so that sending it cannot end before the agent has hung up.
    """
    refusal = b'{"version":1,"ok":false,"error":"16 clients are connected already"}\n'
    with pytest.raises(RefusedByAgentError, match="16 clients are connected already"):
        asked_of(tmp_path / "s.sock", lambda served: served.sendall(refusal), padding="x" * 4_000_000)


@pytest.mark.parametrize("reply", [b"", b'{"version":1'])
def test_an_agent_that_dies_over_the_request_is_not_running(reply: bytes, tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match="the agent is not running"):
        asked_of(tmp_path / "s.sock", answer(reply))


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [(b"hello\n", "is not JSON"), (b'{"version":9,"ok":true}\n', "version 9 of the control protocol")],
)
def test_a_reply_that_makes_no_sense_is_a_control_error(reply: bytes, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ControlError, match=sentence):
        asked_of(tmp_path / "s.sock", answer(reply))


def test_a_reply_without_end_is_cut_off(tmp_path: Path) -> None:
    def flood(served: socket.socket) -> None:
        served.recv(65536)
        try:
            for _ in range(100):
                served.sendall(b"x" * 65536)
        except OSError:
            return  # the client has hung up, as it should
        pytest.fail("the client read it all")

    with pytest.raises(ControlError, match="larger than any reply of this release"):
        asked_of(tmp_path / "s.sock", flood)
