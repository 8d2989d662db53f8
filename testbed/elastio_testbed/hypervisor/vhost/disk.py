"""A virtio block device: what it says of itself, its requests, its limit and its counters.

VIRTIO 1.2, section 5.2. Without an optimal I/O size, as QEMU's: bcache would take one for the width of a RAID's stripe.
"""

from __future__ import annotations

import errno
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elastio_testbed.hypervisor.vhost.store import Store
from elastio_testbed.hypervisor.vhost.throttle import Throttle
from elastio_testbed.hypervisor.vhost.virtqueue import Chain

SECTOR = 512
SERIAL_BYTES = 20
_READ, _WRITE, _FLUSH, _GET_ID, _DISCARD, _WRITE_ZEROES = 0, 1, 4, 8, 11, 13
_OK, _IOERR, _UNSUPPORTED = 0, 1, 2
_SEG_MAX, _HAS_FLUSH, _HAS_DISCARD, _HAS_WRITE_ZEROES = 1 << 2, 1 << 9, 1 << 13, 1 << 14
_INDIRECT_DESCRIPTORS = 1 << 28
_HEADER = struct.Struct("<IIQ")
_RANGE = struct.Struct("<QII")
# The segments of a request that fit into a queue beside header and status.
_SEGMENTS = 254
# The most sectors of one discard: as QEMU's virtio-blk.
_DISCARD_SECTORS = (1 << 31) // SECTOR
# Answers a chain, with the number of bytes written into it.
Answer = Callable[[Chain, int], None]


@dataclass(slots=True)
class _Request:
    """One request of the driver; `status` is the byte that says how it went."""

    kind: int
    offset: int
    length: int
    data: Sequence[memoryview]
    status: memoryview
    chain: Chain
    answer: Answer


class ServedDisk:
    """One disk. `moved_bytes`: read and written so far. Requests keep their order under the limit."""

    def __init__(self, serial: str, store: Store, throttle: Throttle, now: Callable[[], float]) -> None:
        self.serial, self.store, self.throttle = serial, store, throttle
        self.moved_bytes = 0
        self.due: float | None = None  # when the first waiting request may pass
        self._now = now
        self._waiting: deque[_Request] = deque()
        self._is_broken = False

    @property
    def features(self) -> int:
        """The features of a block device that it offers."""
        discard = _HAS_DISCARD | _HAS_WRITE_ZEROES if self.store.discards else 0
        return _SEG_MAX | _HAS_FLUSH | _INDIRECT_DESCRIPTORS | discard

    def config(self) -> bytes:
        """The configuration space."""
        queue = struct.pack("<QIIHBBI", self.store.size_bytes // SECTOR, 0, _SEGMENTS, 0, 0, 0, SECTOR)
        topology = struct.pack("<BBHIBBH", 0, 0, 0, 0, 1, 0, 1)
        # Sectors, ranges and alignment of a discard; sectors and ranges of zeros, and that they may be unmapped.
        ranges = struct.pack("<IIIIIBBBB", _DISCARD_SECTORS, 1, 1, _DISCARD_SECTORS, 1, 1, 0, 0, 0)
        return queue + topology + ranges

    def submit(self, chain: Chain, answer: Answer) -> None:
        """Take a request; it is answered now or later."""
        request = _parsed(chain, answer)
        if request is None:
            answer(chain, 0)
            return
        if request.kind in (_READ, _WRITE, _DISCARD, _WRITE_ZEROES):
            self._waiting.append(request)
            self.run()
        else:
            self._carry_out(request)

    def run(self) -> None:
        """Carry out what the limit lets pass by now, and set `due`."""
        self.due = None
        while self._waiting:
            # A discard moves nothing: QEMU and clouds do not count it.
            is_free = self._waiting[0].kind == _DISCARD
            if not self._is_broken and not is_free:
                now = self._now()
                wait_s = self.throttle.wait_s(now)
                if wait_s > 0:
                    self.due = now + wait_s
                    return
            request = self._waiting.popleft()
            self.throttle.account(0 if is_free else request.length)
            self._carry_out(request)

    def limit(self, throttle: Throttle) -> None:
        """Replace the limit, for waiting requests, too."""
        self.throttle = throttle
        self.run()

    def break_down(self) -> None:
        """Fail all requests from now on, those that wait included."""
        self._is_broken = True
        self.run()

    def forget(self) -> None:
        """The machine is gone: its requests are dropped."""
        self._waiting.clear()
        self.due = None

    def _carry_out(self, request: _Request) -> None:
        if request.kind != _GET_ID and (self._is_broken or request.offset + request.length > self.store.size_bytes):
            _finish(request, errno.EIO)
            return

        def done(error: int) -> None:
            if not error and request.kind in (_READ, _WRITE):
                self.moved_bytes += request.length
            _finish(request, error)

        if request.kind == _READ:
            self.store.read(request.offset, request.data, done)
        elif request.kind == _WRITE:
            self.store.write(request.offset, request.data, done)
        elif request.kind == _FLUSH:
            self.store.flush(done)
        elif request.kind == _GET_ID:
            _give_id(request, self.serial)
        elif request.kind in (_DISCARD, _WRITE_ZEROES):
            self.store.discard(request.offset, request.length, done)
        else:
            done(errno.EOPNOTSUPP)


def _parsed(chain: Chain, answer: Answer) -> _Request | None:
    """The request of a chain; None for one that has no room for a status."""
    if not chain.writable or not chain.readable or len(chain.readable[0]) < _HEADER.size:
        return None
    kind, _, sector = _HEADER.unpack_from(chain.readable[0])
    rest = [chain.readable[0][_HEADER.size :], *chain.readable[1:]]
    sent = [view for view in rest if len(view)]
    *room, last = chain.writable
    wanted = [view for view in (*room, last[:-1]) if len(view)]
    data = wanted if kind in (_READ, _GET_ID) else sent
    offset, length = sector * SECTOR, sum(len(view) for view in data)
    if kind in (_DISCARD, _WRITE_ZEROES):
        first, sectors, _ = _RANGE.unpack_from(b"".join(sent))
        offset, length = first * SECTOR, sectors * SECTOR
    return _Request(kind, offset, length, data, last[-1:], chain, answer)


def _give_id(request: _Request, serial: str) -> None:
    # All 20 bytes may be used: there is no terminating zero.
    data = serial.encode()[:SERIAL_BYTES].ljust(SERIAL_BYTES, b"\0")
    for room in request.data:
        part, data = data[: len(room)], data[len(room) :]
        room[: len(part)] = part
    _finish(request, 0)


def _finish(request: _Request, error: int) -> None:
    request.status[0] = _OK if not error else _UNSUPPORTED if error == errno.EOPNOTSUPP else _IOERR
    written = sum(len(view) for view in request.data) if request.kind in (_READ, _GET_ID) and not error else 0
    request.answer(request.chain, written + 1)
