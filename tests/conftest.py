"""What a test may not do, whoever calls it: run programs, leave this machine, write under /sys.

Python's audit events see every way to do these things, also from a library or a forked child. A test that has to
run programs says so with the marker `runs_programs` (or `guest`), a fixture by asking for the fixture of that name;
nothing lifts the other two.
"""

from __future__ import annotations

import gc
import ipaddress
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

RUNS_PROGRAMS = ("runs_programs", "guest")
PROGRAM_EVENTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
PEER_EVENTS = {"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"}
NAME_EVENTS = {"socket.getaddrinfo", "socket.gethostbyname"}
GOLDEN = Path(__file__).parent / "golden"
MEMORY, ROOM_BYTES = "/dev/shm", 1 << 30
# More than Python's own 700, since little of what tests make has cycles.
NEW_OBJECTS = 20_000
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


class ForbiddenInTestError(BaseException):
    """Not an Exception, so that no handler of the code under test takes it for a failure it knows."""


class Guard:
    """Judges audit events while a test is set up, runs and is torn down."""

    def __init__(self) -> None:
        self.is_on = False
        self.may_run_programs = False

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in PROGRAM_EVENTS and not self.may_run_programs:
            raise ForbiddenInTestError(f"a test without the marker runs_programs ran {arguments[:2]}")
        if event in PEER_EVENTS and not is_on_this_machine(arguments[1]):
            raise ForbiddenInTestError(f"a test used a socket outside loopback: {event} {arguments[1]}")
        if event in NAME_EVENTS and not is_loopback(arguments[0]):
            raise ForbiddenInTestError(f"a test looked up a name outside this machine: {arguments[0]}")
        if event == "open" and is_write_under_sys(*arguments):
            raise ForbiddenInTestError(f"a test opened {arguments[0]} for writing")


def is_on_this_machine(address: Any) -> bool:
    """True for loopback, and for every family that is not the Internet's (their addresses begin with no host)."""
    return not (isinstance(address, tuple) and isinstance(address[0], str)) or is_loopback(address[0])


def is_loopback(host: Any) -> bool:
    if host is None:
        return True
    name = host.decode() if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def is_write_under_sys(path: Any, mode: Any, flags: Any) -> bool:
    if not isinstance(path, str | bytes | os.PathLike) or not isinstance(flags, int) or not flags & WRITING:
        return False
    return os.path.normpath(os.fsdecode(path)).startswith("/sys/")


GUARD = Guard()
sys.addaudithook(GUARD)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="write tests/golden instead of comparing with it")


@pytest.fixture
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str, str], None]:
    """Compares printed text with a file of tests/golden, in which `TMP` stands for the test's own folder."""

    def compare(name: str, printed: str) -> None:
        path, text = GOLDEN / name, printed.replace(str(tmp_path), "TMP")
        if request.config.getoption("--write-golden"):
            path.write_text(text)
        assert text == path.read_text()

    return compare


def pytest_collection_finish(session: pytest.Session) -> None:
    """Spare the garbage collector what stays to the end: it went through all collected tests again and again, and in
    copies of the process (tests/crash/branches.py), where each page that it looks at has to be copied."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "runs_programs: may run programs; every other test is stopped when it tries")


@pytest.fixture(scope="session")
def runs_programs() -> None:
    """For fixtures that run programs: a test that uses one may run them too."""


def memory() -> str | None:
    """A filesystem in memory with room, on which programs may be run; None: there is none."""
    with suppress(OSError):
        found = os.statvfs(MEMORY)
        if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= ROOM_BYTES:
            return MEMORY
    return None


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A directory in memory if there is room: what rewrites many files waits for the disk else."""
    with tempfile.TemporaryDirectory(dir=memory()) as folder:
        yield Path(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Around fixtures as well: one of a wider scope is judged by the first test that asks for it."""
    marked = any(item.get_closest_marker(name) for name in RUNS_PROGRAMS)
    GUARD.may_run_programs = marked or "runs_programs" in getattr(item, "fixturenames", ())
    GUARD.is_on = True
    try:
        return (yield)
    finally:
        GUARD.is_on = False
