"""What is sent to the service manager, on a real datagram socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio.host.systemd import Notifier


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        yield sock


def received(sock: socket.socket) -> list[str]:
    found = []
    while True:
        try:
            found.append(sock.recv(4096).decode())
        except BlockingIOError:
            return found


def notifier(manager: socket.socket, **more: str) -> Notifier:
    return Notifier({"NOTIFY_SOCKET": manager.getsockname(), **more})


def test_one_message_has_all_its_lines(manager: socket.socket) -> None:
    notifier(manager).send("READY=1", "STATUS=idle")
    assert received(manager) == ["READY=1\nSTATUS=idle"]


def test_an_abstract_address_begins_with_a_nul() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind("\0elastio-test-notify")
        sock.setblocking(False)
        Notifier({"NOTIFY_SOCKET": "@elastio-test-notify"}).send("STOPPING=1")
        assert received(sock) == ["STOPPING=1"]


def test_nothing_is_sent_without_a_manager_and_no_beat_without_a_watchdog(manager: socket.socket) -> None:
    silent = Notifier({})
    silent.send("READY=1")
    silent.beat(1.0)
    notifier(manager).beat(1.0)
    assert received(manager) == []


def test_a_manager_that_is_gone_stops_nothing(tmp_path: Path, manager: socket.socket) -> None:
    orphaned = notifier(manager)
    (tmp_path / "notify").unlink()
    orphaned.send("READY=1")
    assert received(manager) == []


def test_the_watchdog_is_fed_at_a_third_of_its_time(manager: socket.socket) -> None:
    fed = notifier(manager, WATCHDOG_USEC="30000000")
    for second in range(25):
        fed.beat(float(second))
    assert received(manager) == ["WATCHDOG=1"] * 3  # at 0, 10 and 20 s
