"""Programs and files in a guest: what the laboratory asks of an agent, however it is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

# The environment of a program, in addition to what its caller gives.
BASE_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
# An agent answers from its main loop; under emulation and load that can take seconds.
CALL_S = 90.0


@dataclass(frozen=True)
class Completed:
    """A program that has ended in the guest; a negative `returncode` is the signal that ended it."""

    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as text, without trailing line ends."""
        return self.stdout.decode(errors="replace").rstrip("\n")


class Programs(Protocol):
    """The agent of one running machine.

    Every call raises GuestTimeout when the guest does not answer in time and GuestError when it refuses or has
    ended. Calls may come from several threads.
    """

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        input: bytes | None = None,
    ) -> Completed:
        """Run a program (found on PATH, no shell) and wait for its end. A failed program does not raise.

        Processes that inherited its output are waited for, too. After `timeout_s` the program is killed.
        At most 16 MiB of each output stream are kept.
        """

    def check(self, argv: Sequence[str], *, timeout_s: float, input: bytes | None = None) -> str:
        """Run a program that has to succeed, and return its output as text. Raises GuestError when it fails."""

    def write_file(self, path: str | PurePosixPath, data: bytes, mode: int = 0o644) -> None:
        """Create or replace a file, and create missing directories. The file never has another mode."""

    def read_file(self, path: str | PurePosixPath) -> bytes:
        """The contents of a file of at most some MB."""
