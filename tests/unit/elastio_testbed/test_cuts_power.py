"""A disk with a volatile cache: what a flush makes durable, what a cut takes, and the protocol of QEMU."""

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.cuts.contents import Contents
from elastio_testbed.cuts.power import PowerStrip

pytestmark = pytest.mark.runs_programs

BLOCK = 4096
OLD, NEW = b"o" * BLOCK, b"n" * BLOCK


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    path = tmp_path / "disk"
    path.write_bytes(OLD * 4)
    return path


@pytest.fixture
def contents(disk: Path) -> Iterator[Contents]:
    made = Contents(disk)
    yield made
    made.close()


def left(contents: Contents, survival: float, seed: int = 1) -> bytes:
    target = contents.path.with_name("cut")
    contents.cut(target, survival, random.Random(seed))
    return target.read_bytes()


def test_a_cut_keeps_a_random_part(contents: Contents) -> None:
    for block in range(4):
        contents.write(block * BLOCK, NEW).is_done = True
    assert left(contents, survival=1) == NEW * 4
    found = {left(contents, survival=0.5, seed=seed) for seed in range(20)}
    assert len(found) > 5
    assert contents.cut(contents.path.with_name("cut"), 0, random.Random(1)) == 4 * BLOCK


def test_the_later_of_two_writes_of_a_block_is_the_durable_one(contents: Contents) -> None:
    for data in (OLD, b"m" * BLOCK, NEW):
        contents.write(0, data).is_done = True
    contents.make_durable(contents.answered())
    assert left(contents, survival=0) == NEW + OLD * 3


class Client:
    """The client side of the protocol, as QEMU uses it."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        assert self.get(18)[:16] == b"NBDMAGICIHAVEOPT"
        self.socket.sendall(struct.pack(">I", 1))
        self.option(8)
        assert struct.unpack(">QIII", self.get(20))[2] == 2**31 + 1  # no structured replies
        self.option(7, struct.pack(">IH", 0, 0))
        kind, length = struct.unpack(">QIII", self.get(20))[2:]
        assert kind == 3
        self.size_bytes = struct.unpack(">HQH", self.get(length))[1]
        assert struct.unpack(">QIII", self.get(20))[2] == 1

    def get(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            assert part, "the server has closed the connection"
            data += part
        return data

    def option(self, number: int, data: bytes = b"") -> None:
        self.socket.sendall(struct.pack(">8sII", b"IHAVEOPT", number, len(data)) + data)

    def send(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"") -> None:
        self.socket.sendall(request(kind, offset, length, data))

    def reply(self, length: int = 0) -> tuple[int, int, bytes]:
        """Handle, error and data of a reply."""
        _, error, handle = struct.unpack(">IIQ", self.get(16))
        return handle, error, self.get(length)


READ, WRITE, FLUSH, TRIM = 0, 1, 3, 4


def request(kind: int, offset: int = 0, length: int = 0, data: bytes = b"") -> bytes:
    """A request whose handle is its kind."""
    return struct.pack(">IHHQQI", 0x25609513, 0, kind, kind, offset, len(data) or length) + data


def test_a_client_reads_what_it_wrote_and_a_cut_leaves_what_it_flushed(disk: Path, tmp_path: Path) -> None:
    with PowerStrip() as strip:
        client = Client(strip.plug(disk))
        assert client.size_bytes == 4 * BLOCK
        client.send(WRITE, 0, data=NEW)
        assert client.reply()[:2] == (WRITE, 0)
        client.send(FLUSH)
        assert client.reply()[:2] == (FLUSH, 0)
        client.send(WRITE, BLOCK, data=NEW)
        client.reply()
        client.send(READ, BLOCK, BLOCK)
        assert client.reply(BLOCK) == (READ, 0, NEW)
        assert strip.cut({disk: tmp_path / "cut"}, survival=0, seed=1) == BLOCK
        client.socket.close()
    assert (tmp_path / "cut").read_bytes() == NEW + OLD * 3
    assert disk.read_bytes() == NEW + NEW + OLD * 2


def test_a_flush_that_is_issued_before_the_acknowledgement_does_not_cover_the_write(disk: Path, tmp_path: Path) -> None:
    with PowerStrip() as strip:
        client = Client(strip.plug(disk))
        client.socket.sendall(request(WRITE, 0, data=NEW) + request(FLUSH))
        assert {client.reply()[0], client.reply()[0]} == {WRITE, FLUSH}
        assert strip.cut({disk: tmp_path / "cut"}, survival=0, seed=1) == BLOCK
        client.socket.close()


def test_a_request_that_was_not_offered_is_refused(disk: Path) -> None:
    with PowerStrip() as strip:
        client = Client(strip.plug(disk))
        client.send(TRIM, 0, BLOCK)
        assert client.reply()[1] != 0
        client.socket.close()


def test_a_disk_that_is_plugged_again_is_durable_as_it_is(disk: Path, tmp_path: Path) -> None:
    with PowerStrip() as strip:
        first = strip.plug(disk)
        assert strip.plug(disk) == first
        client = Client(first)
        client.send(WRITE, 0, data=NEW)
        client.reply()
        client.socket.close()
        strip.unplug(disk)
        strip.plug(disk)
        strip.cut({disk: tmp_path / "cut"}, survival=0, seed=1)
    assert (tmp_path / "cut").read_bytes() == NEW + OLD * 3
    assert not list(tmp_path.glob("*.durable"))
