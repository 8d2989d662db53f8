"""The host's side of the guest's agent; `guest/uml_agent.py` is the other."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from elastio_testbed.guest.uml_agent import FAILED, NOT_STARTED
from elastio_testbed.hypervisor.errors import GuestError, GuestTimeout
from elastio_testbed.hypervisor.programs import BASE_ENV, CALL_S, Completed


class UmlPrograms:
    """`Programs`: `line` is the host's end of the guest's serial line, `share` the folder that the guest mounts."""

    def __init__(self, line: socket.socket, share: Path, console_tail: Callable[[], str]) -> None:
        self._line, self._share, self._console_tail = line, share, console_tail
        self._lock = threading.Lock()
        self._number = 0
        self._codes: dict[int, int] = {}
        self._waiting: dict[int, threading.Event] = {}
        self._has_ended = False
        threading.Thread(target=self._read_codes, daemon=True, name="uml-programs").start()

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,
    ) -> Completed:
        request = {"kind": "run", "argv": list(argv), "env": {**BASE_ENV, **(env or {})}, "input": input is not None}
        return self._request(request, " ".join(argv), timeout_s, input)

    def check(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> str:
        done = self.run(argv, timeout_s=timeout_s, input=input)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise self._error(f"{' '.join(argv)}: exit code {done.returncode}: {said}")
        return done.text

    def write_file(self, path: str | PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        self._request({"kind": "write", "path": str(path), "mode": mode}, f"write {path}", CALL_S, data)

    def read_file(self, path: str | PurePosixPath) -> bytes:
        return self._request({"kind": "read", "path": str(path)}, f"read {path}", CALL_S).stdout

    def _request(
        self, request: Mapping[str, object], what: str, timeout_s: float, data: bytes | None = None
    ) -> Completed:
        with self._lock:
            self._number += 1
            number = self._number
            answered = self._waiting[number] = threading.Event()
            if self._has_ended:
                answered.set()
        files = {name: self._share / f"{number}.{name}" for name in ("json", "in", "out", "err")}
        try:
            if data is not None:
                files["in"].write_bytes(data)
            files["json"].write_text(json.dumps(request))
            self._send(b"%d\n" % number)
            if not answered.wait(timeout_s):
                self._send(b"k%d\n" % number)
                raise GuestTimeout(self._with_console(f"{what}: still running after {timeout_s:.0f} s"))
            return self._completed(number, what, files)
        finally:
            with self._lock:
                del self._waiting[number]
                self._codes.pop(number, None)
            for file in files.values():
                file.unlink(missing_ok=True)

    def _completed(self, number: int, what: str, files: Mapping[str, Path]) -> Completed:
        with self._lock:
            code = self._codes.get(number)
        if code is None:
            raise self._error(f"{what}: the guest has ended")
        out, err = (files[name].read_bytes() if files[name].exists() else b"" for name in ("out", "err"))
        if code in (NOT_STARTED, FAILED):
            raise self._error(f"{what}: {err.decode(errors='replace')}")
        return Completed(code, out, err)

    def _send(self, data: bytes) -> None:
        try:
            with self._lock:
                self._line.sendall(data)
        except OSError as error:
            raise self._error(f"the guest has ended: {error}") from error

    def _read_codes(self) -> None:
        left = b""
        while True:
            got = b""
            with contextlib.suppress(OSError):
                got = self._line.recv(4096)
            if not got:
                break
            *lines, left = (left + got).split(b"\n")
            for line in lines:
                self._take(line)
        with self._lock:
            self._has_ended = True
            for answered in self._waiting.values():
                answered.set()

    def _take(self, line: bytes) -> None:
        number, _, code = line.partition(b" ")
        if not number.isdigit():
            return  # READY of an agent that was started again
        with self._lock:
            answered = self._waiting.get(int(number))
            if answered is not None:
                self._codes[int(number)] = int(code)
                answered.set()

    def _error(self, message: str) -> GuestError:
        return GuestError(self._with_console(message))

    def _with_console(self, message: str) -> str:
        return f"{message}\n--- console ---\n{self._console_tail()}"
