"""The guard of this test suite stops what a test may not do."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ForbiddenInTestError

SYS = Path("/sys/elastio-test-guard")


def test_no_program_runs_without_the_marker() -> None:
    with pytest.raises(ForbiddenInTestError, match="without the marker runs_programs"):
        subprocess.run(["true"], check=False)


@pytest.mark.runs_programs
def test_a_program_runs_with_the_marker() -> None:
    assert subprocess.run(["true"], check=False).returncode == 0


def test_a_fixture_may_carry_the_permission(runs_programs: None) -> None:
    assert subprocess.run(["true"], check=False).returncode == 0


@pytest.mark.runs_programs
@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("0.0.0.0", 0)])
def test_no_socket_leaves_this_machine(address: tuple[str, int]) -> None:
    with socket.socket() as sock, pytest.raises(ForbiddenInTestError, match="outside loopback"):
        sock.bind(address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(ForbiddenInTestError):
        sock.sendto(b"", address)


def test_no_name_is_looked_up() -> None:
    with pytest.raises(ForbiddenInTestError, match=r"example\.invalid"):
        socket.getaddrinfo("example.invalid", 80)


def test_loopback_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


def test_nothing_is_written_under_sys() -> None:
    with pytest.raises(ForbiddenInTestError, match="for writing"):
        SYS.write_text("1")
    with pytest.raises(ForbiddenInTestError, match="for writing"):
        os.open("/dev/../sys/elastio-test-guard", os.O_WRONLY)
    with pytest.raises(FileNotFoundError):
        SYS.read_text()


def test_no_handler_of_errors_takes_it_for_a_failure_it_knows() -> None:
    assert not issubclass(ForbiddenInTestError, Exception)
