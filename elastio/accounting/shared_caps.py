"""The statements of the agents that share caps: one file for each backing device in one directory, and a lock.

An agent writes its own file only, as a whole, and durably before it spends (`strategy.spending` says what for).
The sum is taken and the file replaced under an flock(2), which the kernel releases when its holder dies. The loop of an
agent never waits for the lock: it asks again at its next sample. The worker that buys waits for LOCK_S at most.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import tzinfo
from pathlib import Path

from elastio import whole_file
from elastio.accounting.database import local_zone
from elastio.accounting.report import periods
from elastio.codec import decode, encode
from elastio.core.actions import CreateVolume
from elastio.core.model import Quote
from elastio.errors import ElastioError, LedgerError, RefusedError, TransientError
from elastio.strategy.spending import Limits, Reservation, Statement, exceeded, total
from elastio.units import agbs

LOCK_S, POLL_S = 10.0, 0.05
VERSION = 1

Change = Callable[[Statement | None], Statement]
"""Makes the new statement from the one in the file; None: there is none."""


@dataclass(frozen=True, slots=True)
class SharedCaps:
    """The statement of this device among those of others. `ports.Reservations`, for the worker that buys."""

    directory: Path
    device: str
    wall: Callable[[], float] = time.time
    zone: Callable[[], tzinfo] = local_zone
    lock_s: float = LOCK_S

    def own(self) -> Statement | None:
        """The own statement; None: there is none. Raises LedgerError."""
        return _read(self._path) if self._path.exists() else None

    def others(self) -> tuple[Statement, ...]:
        """The statements of all others. Raises LedgerError if one cannot be read: then the sum is not known."""
        return tuple(_read(p) for p in sorted(self.directory.glob("*.json")) if p != self._path)

    def put(
        self, change: Change, limits: Limits | None, wall: float, wait_s: float = 0.0, *, renews: bool = False
    ) -> str:
        """Replace the own statement, durably, and return "". `renews`: also one that cannot be read, as if none was.

        With `limits`: only if the sum of all statements stays within them, else return the key of the cap that it
        would pass. Raises LedgerError if nothing could be read or written, or the lock is not free within `wait_s`.
        """
        with self._locked(wait_s):
            new = change(self._own_if_readable() if renews else self.own())
            if limits is not None:
                key = exceeded(*total((*self.others(), new), *periods(wall, self.zone()), wall), limits)
                if key:
                    return key
            _write(self._path, new)
        return ""

    def _own_if_readable(self) -> Statement | None:
        try:
            return self.own()
        except LedgerError:
            return None

    def withdraw(self) -> None:
        """The caps are not shared any more. Raises LedgerError."""
        if self._path.exists():
            with self._locked(0.0), _translated(self._path, "removed"):
                self._path.unlink()

    # --- ports.Reservations ------------------------------------------------------------------------------------

    def reserve(self, action: CreateVolume, quote: Quote) -> bool:
        wall, before = self.wall(), list[Reservation | None]()

        def change(own: Statement | None) -> Statement:
            before[:] = [own.reserved if own else None]
            return self._with_reservation(own, action, quote, wall)

        try:
            key = self.put(change, action.shared, wall, self.lock_s)
        except LedgerError as error:
            raise TransientError(f"nothing was bought: {error}", code="caps.shared") from error
        is_new = not before or before[0] is None or before[0].token != action.token
        if key and is_new:
            text = f"the caps that several devices share leave no room for this volume ({key})"
            raise RefusedError(text, code=key)
        return is_new

    def cancel(self, token: str) -> None:
        def change(own: Statement | None) -> Statement:
            if own is None or own.reserved is None or own.reserved.token != token:
                raise LedgerError("nothing is reserved", code="shared.none")
            return replace(own, reserved=None)

        try:
            self.put(change, None, self.wall(), self.lock_s)
        except ElastioError:
            return

    def _with_reservation(self, own: Statement | None, action: CreateVolume, quote: Quote, wall: float) -> Statement:
        day, month = periods(wall, self.zone())
        known = own or Statement(self.device, wall, day, month)
        sold = quote.spec
        made = Reservation(
            token=action.token,
            opened_wall=wall,
            agbs_per_s=agbs(sold.bandwidth_mb_s, sold.size_bytes, 1.0),
            cost_per_s=quote.price_per_hour / 3600 if quote.price_known else 0.0,
            minimum_s=quote.minimum_s,
            until_wall=wall + action.least_s,
            step_s=quote.step_s,
        )
        return replace(known, reserved=made)

    # --- files -------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> Path:
        return self.directory / f"{self.device}.json"

    @contextmanager
    def _locked(self, wait_s: float) -> Iterator[None]:
        path = self.directory / "lock"
        with _translated(path, "locked"):
            self.directory.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            until = time.monotonic() + wait_s
            while not _took(descriptor):
                if time.monotonic() >= until:
                    raise LedgerError(f"{path} is locked by another agent", code="shared.locked")
                time.sleep(POLL_S)
            yield
        finally:
            os.close(descriptor)


def _took(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _read(path: Path) -> Statement:
    try:
        document = json.loads(path.read_text())
        if document.pop("version") != VERSION:
            raise ValueError("another version")
        return decode(Statement, document)
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        text = f"{path} cannot be read ({error}): start the agent of that device, or remove the file if it is gone"
        raise LedgerError(text, code="shared.unreadable") from error


def _write(path: Path, statement: Statement) -> None:
    """The whole file or nothing, on stable storage."""
    text = json.dumps({"version": VERSION, **encode(statement)})
    with _translated(path, "written"):
        whole_file.replace(path, text.encode(), sync=True)
        whole_file.sync_directory(path.parent)


@contextmanager
def _translated(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LedgerError(f"{path} cannot be {what}: {error.strerror}", code="shared.unwritable") from error
