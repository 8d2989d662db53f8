"""The connection of one machine to one disk: what was negotiated, and the queue."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass

from elastio_testbed.hypervisor.vhost import messages
from elastio_testbed.hypervisor.vhost.disk import ServedDisk
from elastio_testbed.hypervisor.vhost.memory import BadAddress, Memory, map_region
from elastio_testbed.hypervisor.vhost.messages import Kind, Message
from elastio_testbed.hypervisor.vhost.virtqueue import Chain, Virtqueue

# What is written to a descriptor to signal it: an eventfd's unit, whatever the descriptor is.
_SIGNAL = struct.pack("=Q", 1)
_MESSAGE_S = 10.0
_TRANSPORT_FEATURES = messages.VERSION_1 | messages.PROTOCOL_FEATURES


@dataclass(slots=True)
class _QueuePlan:
    """What the machine has said of the queue so far."""

    size: int = 0
    base: int = 0
    addresses: tuple[int, int, int] | None = None
    kick: int | None = None
    call: int | None = None
    is_enabled: bool = False


class Session:
    """`watch` and `unwatch` register a descriptor with the server's loop. Use from that loop only.

    A machine that breaks the rules is an OSError, BadAddress, ValueError or struct.error of what the loop calls.
    """

    def __init__(
        self,
        connection: socket.socket,
        disk: ServedDisk,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
    ) -> None:
        connection.settimeout(_MESSAGE_S)
        self.connection = connection
        self._disk, self._watch, self._unwatch = disk, watch, unwatch
        self._memory = Memory(())
        self._plan = _QueuePlan()
        self._queue: Virtqueue | None = None
        self._kept: list[int] = []  # descriptors whose end would be the end of the device

    def on_readable(self) -> bool:
        """Handle one message; False at the end of the connection."""
        message = messages.receive(self.connection)
        if message is None:
            return False
        try:
            answer = self._handle(message)
        finally:
            for fd in message.fds:
                os.close(fd)
        if answer is not None:
            messages.reply(self.connection, message, answer)
        return True

    def close(self) -> None:
        """Drop all requests and close all descriptors."""
        self._queue = None
        self._disk.forget()
        self._replace_kick(None)
        self._replace_call(None)
        while self._kept:
            os.close(self._kept.pop())
        self.connection.close()

    def _handle(self, message: Message) -> bytes | None:
        """Obey a message, and return the payload of its reply, if it has one. Unknown ones are ignored."""
        answers = {
            Kind.GET_FEATURES: lambda: _u64(_TRANSPORT_FEATURES | self._disk.features),
            Kind.GET_PROTOCOL_FEATURES: lambda: _u64(messages.PROTOCOL_CONFIG | messages.PROTOCOL_BACKEND_REQUESTS),
            Kind.GET_QUEUE_NUM: lambda: _u64(1),
            Kind.GET_CONFIG: lambda: self._config(*message.config()),
            Kind.GET_VRING_BASE: self._stop_queue,
        }
        orders = {
            Kind.SET_MEM_TABLE: self._share_memory,
            Kind.SET_VRING_NUM: self._set_size,
            Kind.SET_VRING_BASE: self._set_base,
            Kind.SET_VRING_ADDR: self._set_addresses,
            Kind.SET_VRING_KICK: self._set_kick,
            Kind.SET_VRING_CALL: self._set_call,
            Kind.SET_VRING_ENABLE: self._set_enabled,
            Kind.SET_BACKEND_REQ_FD: self._keep,
        }
        if message.kind in answers:
            return answers[Kind(message.kind)]()
        if message.kind in orders:
            orders[Kind(message.kind)](message)
            self._start_queue()
        return None

    def _set_size(self, message: Message) -> None:
        self._plan.size = message.state()[1]

    def _set_base(self, message: Message) -> None:
        self._plan.base = message.state()[1]

    def _set_addresses(self, message: Message) -> None:
        _, descriptors, available, used = message.address()
        self._plan.addresses = descriptors, available, used

    def _set_kick(self, message: Message) -> None:
        self._replace_kick(message.queue_fd()[1])

    def _set_call(self, message: Message) -> None:
        self._replace_call(message.queue_fd()[1])

    def _set_enabled(self, message: Message) -> None:
        self._plan.is_enabled = bool(message.state()[1])

    def _keep(self, message: Message) -> None:
        self._kept, message.fds = [*self._kept, *message.fds], []

    def _config(self, offset: int, size: int, flags: int) -> bytes:
        piece = self._disk.config()[offset : offset + size].ljust(size, b"\0")
        return struct.pack("<III", offset, size, flags) + piece

    def _share_memory(self, message: Message) -> None:
        regions = message.regions()
        if len(regions) != len(message.fds):
            raise BadAddress(f"{len(regions)} regions of memory come with {len(message.fds)} files")
        self._memory = Memory(
            [
                map_region(guest, user, size, offset, fd)
                for (guest, size, user, offset), fd in zip(regions, message.fds, strict=True)
            ]
        )

    def _start_queue(self) -> None:
        plan = self._plan
        if self._queue is not None or not plan.is_enabled or plan.addresses is None or plan.kick is None:
            return
        self._queue = Virtqueue(self._memory, plan.size, *plan.addresses, plan.base)
        self._take_requests()

    def _stop_queue(self) -> bytes:
        base, self._queue = self._queue.next if self._queue else self._plan.base, None
        self._disk.forget()
        self._plan.is_enabled = False
        return struct.pack("<II", 0, base)

    def _kicked(self) -> None:
        assert self._plan.kick is not None
        os.read(self._plan.kick, len(_SIGNAL))
        self._take_requests()

    def _take_requests(self) -> None:
        queue = self._queue
        while queue is not None and queue is self._queue:
            chain = queue.pop()
            if chain is None:
                return
            self._disk.submit(chain, lambda chain, written: self._answer(queue, chain, written))

    def _answer(self, queue: Virtqueue, chain: Chain, written: int) -> None:
        if queue is not self._queue:
            return  # the queue was stopped meanwhile
        queue.push(chain.head, written)
        # Always: whether the driver wants no signal can be read only with a memory barrier, which Python has not.
        if self._plan.call is not None:
            with contextlib.suppress(OSError):  # the machine is gone
                os.write(self._plan.call, _SIGNAL)

    def _replace_kick(self, fd: int | None) -> None:
        old, self._plan.kick = self._plan.kick, fd
        if old is not None:
            self._unwatch(old)
            os.close(old)
        if fd is not None:
            self._watch(fd, self._kicked)

    def _replace_call(self, fd: int | None) -> None:
        old, self._plan.call = self._plan.call, fd
        if old is not None:
            os.close(old)


def _u64(value: int) -> bytes:
    return struct.pack("<Q", value)
