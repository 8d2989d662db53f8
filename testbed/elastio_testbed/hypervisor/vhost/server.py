"""The process that serves the disks of one machine: one thread, one loop.

Started by `storage` with the descriptor of its control socket as its only argument (`__main__`), in the folder of the
machine, where slot N listens on the socket `sN`. A command is a line of JSON, `{"do": NAME, ...}`; its answer is one,
too: `{}` or a value, or `{"error": TEXT}`. The process ends when the control socket does.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elastio_testbed.hypervisor.vhost.disk import ServedDisk
from elastio_testbed.hypervisor.vhost.memory import BadAddress
from elastio_testbed.hypervisor.vhost.session import Session
from elastio_testbed.hypervisor.vhost.store import FileStore, NbdStore
from elastio_testbed.hypervisor.vhost.throttle import Throttle


def socket_name(slot: int) -> str:
    """The socket of a slot, in the folder of the machine."""
    return f"s{slot}"


class Slot:
    """A disk in its slot. One machine is connected at a time; a later connection replaces an earlier one."""

    def __init__(self, number: int, disk: ServedDisk, server: Server) -> None:
        self.disk, self._server, self._session = disk, server, None
        self._path = Path(socket_name(number))
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        server.watch(self._listener.fileno(), self._accept)
        if (fd := disk.store.fileno()) is not None:
            server.watch(fd, self._take_answer)

    _session: Session | None

    def close(self) -> None:
        self._drop_session()
        self._server.unwatch(self._listener.fileno())
        self._listener.close()
        self._path.unlink(missing_ok=True)
        self.close_store()

    def close_store(self) -> None:
        """Close the file; its disk is broken, or goes."""
        if (fd := self.disk.store.fileno()) is not None:
            self._server.unwatch(fd)
        self.disk.store.close()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._drop_session()
        self._session = session = Session(connection, self.disk, self._watch, self._server.unwatch)
        self._watch(connection.fileno(), lambda: self._take_message(session))

    def _watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Watch a descriptor of the session, which ends when its machine breaks the rules."""

        def guarded() -> None:
            try:
                on_readable()
            except (OSError, BadAddress, ValueError, struct.error) as error:
                print(f"disk {self.disk.serial}: {error}", file=sys.stderr, flush=True)
                self._drop_session()

        self._server.watch(fd, guarded)

    def _take_message(self, session: Session) -> None:
        if not session.on_readable():
            self._drop_session()

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._server.unwatch(session.connection.fileno())
            session.close()

    def _take_answer(self) -> None:
        try:
            self.disk.store.on_readable()
        except OSError as error:
            print(f"disk {self.disk.serial}: {error}", file=sys.stderr, flush=True)
            fd = self.disk.store.fileno()
            assert fd is not None
            self._server.unwatch(fd)


class Server:
    """The loop and the slots."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control.makefile("rwb", buffering=0)
        self._selector = selectors.DefaultSelector()
        self._slots: dict[int, Slot] = {}
        self._goes_on = True
        self.watch(control.fileno(), self._obey)

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """Call `on_readable` from the loop whenever the descriptor is readable."""
        self._selector.register(fd, selectors.EVENT_READ, on_readable)

    def unwatch(self, fd: int) -> None:
        """Undo `watch`; nothing happens if it is undone already."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(fd)

    def run(self) -> None:
        """Serve until the control socket ends."""
        while self._goes_on:
            for key, _ in self._selector.select(self._pause_s()):
                # An earlier event of this round may have closed this one's descriptor.
                if self._selector.get_map().get(key.fd) is key:
                    key.data()
            now = time.monotonic()
            for slot in self._slots.values():
                if slot.disk.due is not None and slot.disk.due <= now:
                    slot.disk.run()

    def _pause_s(self) -> float | None:
        due = [slot.disk.due for slot in self._slots.values() if slot.disk.due is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _obey(self) -> None:
        line = self._control.readline()
        if not line:
            self._goes_on = False
            return
        command = json.loads(line)
        try:
            answer = getattr(self, f"do_{command.pop('do')}")(**command)
        except (OSError, KeyError) as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        self._control.write(json.dumps(answer or {}).encode() + b"\n")

    # --- commands ----------------------------------------------------------------------------------------

    def do_add(
        self, slot: int, serial: str, path: str, nbd: str | None, bytes_per_second: int | None, iops: int | None
    ) -> None:
        """Serve a raw file, or the NBD export on the socket `nbd`, in a slot."""
        store = NbdStore(Path(nbd)) if nbd else FileStore(Path(path))
        disk = ServedDisk(serial, store, Throttle(bytes_per_second, iops), time.monotonic)
        self._slots[slot] = Slot(slot, disk, self)

    def do_remove(self, slot: int) -> None:
        """End the connection and close the file."""
        self._slots.pop(slot).close()

    def do_limit(self, slot: int, bytes_per_second: int | None, iops: int | None) -> None:
        self._slots[slot].disk.limit(Throttle(bytes_per_second, iops))

    def do_break(self, slot: int) -> None:
        """Fail all requests of the disk from now on, and close its file."""
        self._slots[slot].disk.break_down()
        self._slots[slot].close_store()

    def do_moved(self, slot: int) -> dict[str, Any]:
        return {"moved_bytes": self._slots[slot].disk.moved_bytes}
