"""Programs and files in a guest, through the QEMU guest agent."""

import base64
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from elastio_testbed.hypervisor.channel import Channel, ChannelTimeout
from elastio_testbed.hypervisor.errors import GuestError, GuestTimeout, HypervisorError
from elastio_testbed.hypervisor.programs import BASE_ENV, CALL_S, Completed

_PING_S = 5.0
_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 0.5
_CHUNK_BYTES = 1 << 20


class GuestAgent:
    """`Programs`, through the QEMU guest agent."""

    def __init__(self, channel: Channel, is_open: Callable[[], bool], console_tail: Callable[[], str]) -> None:
        self._channel = channel
        self._is_open = is_open
        self._console_tail = console_tail

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until the agent answers."""
        deadline = time.monotonic() + timeout_s
        # Requests sent before the agent opens its port would queue up and be answered all at once.
        while not self._is_open():
            if time.monotonic() > deadline:
                raise GuestTimeout(self._with_console("the guest agent did not start in time"))
            time.sleep(_FIRST_POLL_S)
        self._call("guest-ping", {}, max(_PING_S, deadline - time.monotonic()))

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,
    ) -> Completed:
        deadline = time.monotonic() + timeout_s
        pid = self.spawn(argv, env=env, input=input)
        done = self.wait(pid, deadline - time.monotonic())
        if done is None:
            self._call("guest-exec", {"path": "/usr/bin/kill", "arg": ["-KILL", str(pid)]})
            raise GuestTimeout(self._with_console(f"{' '.join(argv)}: still running after {timeout_s:.0f} s"))
        return done

    def spawn(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, input: bytes | None = None) -> int:
        """Start a program as `run` does, and return its PID."""
        arguments: dict[str, Any] = {"path": argv[0], "arg": list(argv[1:]), "capture-output": True}
        arguments["env"] = [f"{name}={value}" for name, value in {**BASE_ENV, **(env or {})}.items()]
        if input is not None:
            arguments["input-data"] = base64.b64encode(input).decode()
        return int(self._call("guest-exec", arguments)["pid"])

    def wait(self, pid: int, timeout_s: float) -> Completed | None:
        """Wait for the end of a program that was started by `spawn`; None after `timeout_s`."""
        status = self._await_exit(pid, time.monotonic() + timeout_s)
        return None if status is None else _completed(status)

    def feed(self, pipe: str, message: Callable[[], bytes]) -> None:
        """Write to a named pipe that a program reads, without starting one; `message` is called as late as possible."""
        handle = self._call("guest-file-open", {"path": pipe, "mode": "w"})
        self._call("guest-file-write", {"handle": handle, "buf-b64": base64.b64encode(message()).decode()})
        self._call("guest-file-close", {"handle": handle})

    def check(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> str:
        done = self.run(argv, timeout_s=timeout_s, input=input)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise GuestError(self._with_console(f"{' '.join(argv)}: exit code {done.returncode}: {said}"))
        return done.text

    def write_file(self, path: str | PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        # `install` creates a new file each time, so the old file's mode never applies to the new content.
        argv = ["install", "-D", "-m", f"{mode:o}", "/dev/stdin", str(path)]
        self.check(argv, timeout_s=CALL_S, input=data)

    def read_file(self, path: str | PurePosixPath) -> bytes:
        handle = self._call("guest-file-open", {"path": str(path), "mode": "r"})
        chunks: list[bytes] = []
        try:
            while True:
                part = self._call("guest-file-read", {"handle": handle, "count": _CHUNK_BYTES})
                chunks.append(base64.b64decode(part["buf-b64"]))
                if part["eof"] or not chunks[-1]:
                    return b"".join(chunks)
        finally:
            self._call("guest-file-close", {"handle": handle})

    def _await_exit(self, pid: int, deadline: float) -> dict[str, Any] | None:
        poll_s = _FIRST_POLL_S
        while True:
            status: dict[str, Any] = self._call("guest-exec-status", {"pid": pid})
            if status["exited"]:
                return status
            if time.monotonic() > deadline:
                return None
            time.sleep(poll_s)
            poll_s = min(2 * poll_s, _LONGEST_POLL_S)

    def _call(self, command: str, arguments: Mapping[str, object], timeout_s: float = CALL_S) -> Any:
        try:
            return self._channel.execute(command, arguments, timeout_s=timeout_s)
        except ChannelTimeout as error:
            raise GuestTimeout(self._with_console(str(error))) from error
        except HypervisorError as error:
            raise GuestError(self._with_console(str(error))) from error

    def _with_console(self, message: str) -> str:
        return f"{message}\n--- console ---\n{self._console_tail()}"


def _completed(status: Mapping[str, Any]) -> Completed:
    returncode = -status["signal"] if "signal" in status else status["exitcode"]
    output = (base64.b64decode(status.get(stream, "")) for stream in ("out-data", "err-data"))
    return Completed(returncode, *output)
