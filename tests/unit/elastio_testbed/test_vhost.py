"""The disk server with a driver: bytes, limits, flushes, broken disks and broken drivers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from elastio_testbed.cuts.power import PowerStrip
from elastio_testbed.hypervisor import Disk, HypervisorError
from elastio_testbed.hypervisor.vhost.memory import BadAddress, Memory, Region
from elastio_testbed.hypervisor.vhost.storage import DiskServer
from elastio_testbed.hypervisor.vhost.store import NbdStore
from elastio_testbed.hypervisor.vhost.throttle import Throttle
from elastio_testbed.hypervisor.vhost.virtqueue import Virtqueue
from tests.unit.elastio_testbed.vhost_driver import (
    DISCARD,
    FLUSH,
    GET_ID,
    GUEST,
    IOERR,
    OK,
    READ,
    UNSUPPORTED,
    WRITE,
    WRITE_ZEROES,
    Driver,
)

pytestmark = pytest.mark.runs_programs

SERIAL = "vol0123456789abcdef0"
SIZE = 64 * 1024
BLOCK = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "disk.img"
    path.write_bytes(b"o" * SIZE)
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[DiskServer]:
    (tmp_path / "vm").mkdir()
    made = DiskServer(tmp_path / "vm")
    yield made
    made.kill()


@pytest.fixture
def driver(server: DiskServer, path: Path, tmp_path: Path) -> Iterator[Driver]:
    server.add(3, Disk(SERIAL, path, None))
    with Driver(tmp_path / "vm/s3") as made:
        yield made


def test_the_disk_shows_its_size_and_no_optimal_size(driver: Driver) -> None:
    assert driver.capacity == SIZE // 512
    assert driver.optimal_io_size == 0
    assert driver.features & 1 << 9, "flushes are not offered, so the kernel would send none"


def test_a_serial_of_twenty_characters_is_whole(driver: Driver) -> None:
    driver.send(GET_ID, room=20)
    assert driver.status() == OK
    assert bytes(driver.memory[driver.data_at : driver.data_at + 20]).decode() == SERIAL


@pytest.mark.parametrize("indirect", [False, True])
def test_what_is_written_is_in_the_file_and_read_again(
    driver: Driver, server: DiskServer, path: Path, *, indirect: bool
) -> None:
    data = Random(1).randbytes(3 * BLOCK)
    driver.send(WRITE, BLOCK, data, indirect=indirect)
    assert driver.status() == OK
    assert path.read_bytes() == b"o" * BLOCK + data + b"o" * (SIZE - 4 * BLOCK)
    assert driver.read(BLOCK, 3 * BLOCK) == data
    assert server.moved_bytes(3) == 6 * BLOCK


@pytest.mark.parametrize("kind", [DISCARD, WRITE_ZEROES])
def test_a_forgotten_range_reads_as_zeros(driver: Driver, path: Path, kind: int) -> None:
    driver.send(kind, 0, struct.pack("<QII", 2 * BLOCK // 512, BLOCK // 512, 0))
    assert driver.status() == OK
    assert path.read_bytes() == b"o" * 2 * BLOCK + bytes(BLOCK) + b"o" * (SIZE - 3 * BLOCK)


def test_a_request_beyond_the_end_fails_and_does_not_grow_the_file(driver: Driver, path: Path) -> None:
    driver.send(WRITE, SIZE - 512, b"n" * 1024)
    assert driver.status() == IOERR
    driver.send(READ, SIZE, room=512)
    assert driver.status() == IOERR
    assert path.read_bytes() == b"o" * SIZE


def test_an_unknown_request_is_unsupported(driver: Driver) -> None:
    driver.send(99)
    assert driver.status() == UNSUPPORTED


# --- limits ----------------------------------------------------------------------------------------------


def wait_under(throttle: Throttle, length: int, count: int) -> float:
    """Seconds until `count` requests have passed, each as soon as it may."""
    now = 100.0
    for _ in range(count):
        now += throttle.wait_s(now)
        throttle.account(length)
    return now - 100.0


def test_the_long_run_rate_is_the_limit_after_a_tenth_of_a_second() -> None:
    # All requests but the first two wait: the bucket bears a tenth of a second, and the one that overflows it.
    assert wait_under(Throttle(1000, None), 100, 101) == pytest.approx((100 * 100 - 100) / 1000)
    assert wait_under(Throttle(None, 50), 10**9, 101) == pytest.approx((100 - 5) / 50)
    assert wait_under(Throttle(1000, 1), 100, 11) == pytest.approx(10 - 0.1), "the slower of both limits counts"
    assert wait_under(Throttle(None, None), 10**9, 101) == 0


def test_what_waits_under_a_limit_passes_when_it_is_lifted(driver: Driver, server: DiskServer, path: Path) -> None:
    slow = Disk(SERIAL, path, 1)
    server.limit(3, slow)
    driver.send(WRITE, 0, b"1" * BLOCK)
    assert driver.status() == OK, "the first request passes"
    driver.send(WRITE, 0, b"2" * BLOCK)
    assert not driver.is_answered(within_s=0.2)
    assert path.read_bytes()[:1] == b"1"
    server.limit(3, Disk(SERIAL, path, None))
    assert driver.status() == OK
    assert path.read_bytes()[:1] == b"2"


def test_a_flush_does_not_wait_for_the_limit(driver: Driver, server: DiskServer, path: Path) -> None:
    server.limit(3, Disk(SERIAL, path, 1))
    driver.send(WRITE, 0, b"1" * BLOCK)
    assert driver.status() == OK
    driver.send(FLUSH)
    assert driver.status() == OK


def test_a_discard_neither_waits_for_the_limit_nor_counts(driver: Driver, server: DiskServer, path: Path) -> None:
    everything = struct.pack("<QII", 0, SIZE // 512, 0)
    server.limit(3, Disk(SERIAL, path, BLOCK))
    driver.send(DISCARD, 0, everything)
    assert driver.status() == OK
    driver.send(WRITE, 0, b"1" * BLOCK)
    assert driver.status() == OK, "the first request that counts"
    driver.send(DISCARD, 0, everything)
    assert driver.status() == OK
    driver.send(WRITE, 0, b"2" * BLOCK)
    assert not driver.is_answered(within_s=0.2)
    assert path.read_bytes() == bytes(SIZE)


# --- what breaks -----------------------------------------------------------------------------------------


def test_a_broken_disk_fails_what_waits_and_what_comes(driver: Driver, server: DiskServer, path: Path) -> None:
    server.limit(3, Disk(SERIAL, path, 1))
    driver.send(WRITE, 0, b"1" * BLOCK)
    assert driver.status() == OK
    driver.send(WRITE, 0, b"2" * BLOCK)
    server.break_down(3)
    assert driver.status() == IOERR
    for kind in (READ, FLUSH):
        driver.send(kind, room=512 if kind == READ else 0)
        assert driver.status() == IOERR
    assert path.read_bytes()[:1] == b"1"
    server.remove(3)


def test_a_driver_that_names_foreign_memory_loses_its_disk_only(
    driver: Driver, server: DiskServer, path: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.img"
    other.write_bytes(b"x" * SIZE)
    server.add(4, Disk("other", other, None))
    with Driver(tmp_path / "vm/s4") as second:
        driver.offer([(GUEST - 16, 16, 0), (GUEST, 1, 2)])
        assert driver.has_ended()
        assert second.read(0, 4) == b"xxxx"
    with Driver(tmp_path / "vm/s3") as again:
        assert again.read(0, 4) == b"oooo"


def test_a_chain_that_does_not_end_is_the_end_of_the_connection(driver: Driver) -> None:
    # The first descriptor of a table of one points to itself.
    entry = struct.pack("<QIHH", GUEST + 0x4000, 16, 1, 0)
    driver.memory[0x3000:0x3010] = entry
    driver.offer([(GUEST + 0x3000, 16, 4)])
    assert driver.has_ended()


def test_requests_of_a_machine_that_went_are_forgotten(
    driver: Driver, server: DiskServer, path: Path, tmp_path: Path
) -> None:
    server.limit(3, Disk(SERIAL, path, 1))
    driver.send(WRITE, 0, b"1" * BLOCK)
    assert driver.status() == OK
    driver.send(WRITE, 0, b"2" * BLOCK)
    driver.socket.shutdown(2)
    assert driver.has_ended()
    server.limit(3, Disk(SERIAL, path, None))
    with Driver(tmp_path / "vm/s3") as again:
        assert again.read(0, 1) == b"1"


def test_a_file_that_is_not_there_is_refused_and_the_slot_stays_free(
    server: DiskServer, path: Path, tmp_path: Path
) -> None:
    with pytest.raises(HypervisorError):
        server.add(3, Disk(SERIAL, tmp_path / "none", None))
    server.add(3, Disk(SERIAL, path, None))
    server.remove(3)
    assert not (tmp_path / "vm/s3").exists()
    with pytest.raises(HypervisorError):
        server.remove(3)


def test_a_killed_server_is_an_error(server: DiskServer) -> None:
    server.kill()
    with pytest.raises(HypervisorError):
        server.moved_bytes(3)


# --- behind NBD ------------------------------------------------------------------------------------------


def test_only_what_was_flushed_survives_a_cut_behind_nbd(server: DiskServer, path: Path, tmp_path: Path) -> None:
    with PowerStrip() as strip:
        server.add(3, Disk(SERIAL, path, None, socket=strip.plug(path)))
        with Driver(tmp_path / "vm/s3") as driver:
            driver.send(WRITE, 0, b"flushed.")
            assert driver.status() == OK
            driver.send(FLUSH)
            assert driver.status() == OK
            driver.send(WRITE, 512, b"volatile")
            assert driver.status() == OK
            assert driver.read(512, 8) == b"volatile"
            assert strip.cut({path: tmp_path / "cut"}, 0.0, 1) == 8
            assert not driver.features & 1 << 13, "what is behind NBD cannot discard"
        server.remove(3)
    left = (tmp_path / "cut").read_bytes()
    assert (left[:8], left[512:520]) == (b"flushed.", b"oooooooo")


def test_many_large_reads_and_writes_at_once_pass_behind_nbd(tmp_path: Path) -> None:
    """More than the sockets hold in both directions: one that only sends, or only receives, would wait for ever."""
    path, mib = tmp_path / "large.img", 1 << 20
    path.write_bytes(b"o" * 16 * mib)
    errors: list[int] = []
    rooms = [bytearray(mib) for _ in range(8)]
    with PowerStrip() as strip:
        store = NbdStore(strip.plug(path))
        for number, room in enumerate(rooms):
            store.read(2 * number * mib, [memoryview(room)], errors.append)
            store.write((2 * number + 1) * mib, [memoryview(b"n" * mib)], errors.append)
        while len(errors) < 16:
            store.on_readable()
        store.close()
    assert errors == [0] * 16
    assert rooms == [b"o" * mib] * 8
    assert path.read_bytes() == (b"o" * mib + b"n" * mib) * 8


# --- the queue -------------------------------------------------------------------------------------------


def test_the_indexes_of_a_queue_wrap() -> None:
    view = memoryview(bytearray(0x4000))
    memory = Memory([Region(0, 0, len(view), view)])
    queue = Virtqueue(memory, 4, 0, 0x1000, 0x2000, 65535)
    struct.pack_into("<QIHH", view, 0, 0x3000, 16, 0, 0)
    struct.pack_into("<H", view, 0x1002, 65535)
    assert queue.pop() is None
    for available in (0, 1):
        struct.pack_into("<H", view, 0x1002, available)
        chain = queue.pop()
        assert chain is not None
        assert queue.pop() is None
    struct.pack_into("<H", view, 0x2002, 65535)
    queue.push(2, 7)
    assert struct.unpack_from("<II", view, 0x2004 + 8 * 3) == (2, 7)
    assert struct.unpack_from("<H", view, 0x2002) == (0,)


@pytest.mark.parametrize("size", [0, 3, 512])
def test_a_queue_of_an_impossible_size_is_refused(size: int) -> None:
    view = memoryview(bytearray(0x10000))
    with pytest.raises(BadAddress):
        Virtqueue(Memory([Region(0, 0, len(view), view)]), size, 0, 0x4000, 0x8000, 0)
