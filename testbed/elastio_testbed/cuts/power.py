"""Serves disks with volatile write caches to QEMU, and cuts the power of all of them in one instant."""

from __future__ import annotations

import asyncio
import random
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.cuts.contents import Contents
from elastio_testbed.hypervisor import nbd
from elastio_testbed.hypervisor.channel import in_background
from elastio_testbed.hypervisor.errors import HypervisorError

_CALL_S, _CUT_S = 60.0, 300.0
# A write is acknowledged no sooner, so that a flush issued meanwhile does not cover it.
_WRITE_S = 0.001


@dataclass(slots=True)
class Export:
    """One disk that is served."""

    contents: Contents
    socket: Path
    server: asyncio.Server | None = None


class PowerStrip:
    """Serves all disks of one machine. A context manager; the disks must not be in use when it exits."""

    def __init__(self) -> None:
        self._sockets = tempfile.TemporaryDirectory(prefix="elastio-nbd-")
        self._exports: dict[Path, Export] = {}  # used by the background thread only
        self._made = 0

    def __enter__(self) -> PowerStrip:
        return self

    def __exit__(self, *_: object) -> None:
        in_background(self._end(*self._exports), _CALL_S)
        self._sockets.cleanup()

    def plug(self, path: Path) -> Path:
        """Serve the raw file at `path`, which is considered durable, and return the socket. Idempotent.

        Raises HypervisorError for a file that cannot be served.
        """
        try:
            return in_background(self._serve(path), _CALL_S)
        except (OSError, subprocess.SubprocessError) as error:
            raise HypervisorError(f"{path} cannot be served: {error}") from error

    def unplug(self, path: Path) -> None:
        """Stop serving a file; nothing happens if it is not served."""
        in_background(self._end(path), _CALL_S)

    def cut(self, targets: Mapping[Path, Path], survival: float, seed: int) -> int:
        """Write what a power cut leaves of each file to its target, see `Contents.cut`. Returns the bytes lost.

        Meanwhile no request of any disk is answered. QEMU's own `stop` would flush.
        Raises KeyError for a file that is not served.
        """
        return in_background(self._cut(targets, survival, random.Random(seed)), _CUT_S)

    async def _serve(self, path: Path) -> Path:
        if path not in self._exports:
            self._made += 1
            export = Export(Contents(path), Path(self._sockets.name) / f"{self._made}")

            async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                if await nbd.negotiate(reader, writer, export.contents.size_bytes):
                    await nbd.requests(reader, lambda request: _take(export.contents, writer, request))
                writer.close()

            export.server = await asyncio.start_unix_server(client, export.socket)
            self._exports[path] = export
        return self._exports[path].socket

    async def _end(self, *paths: Path) -> None:
        for path in paths:
            export = self._exports.pop(path, None)
            if export is not None:
                if export.server is not None:
                    export.server.close()
                export.contents.close()

    async def _cut(self, targets: Mapping[Path, Path], survival: float, rng: random.Random) -> int:
        # Nothing else runs on this thread meanwhile.
        return sum(self._exports[path].contents.cut(target, survival, rng) for path, target in targets.items())


async def _take(contents: Contents, writer: asyncio.StreamWriter, request: nbd.Request) -> None:
    if request.kind == nbd.READ:
        nbd.reply(writer, request, contents.read(request.offset, request.length))
    elif request.kind == nbd.WRITE:
        write = contents.write(request.offset, request.data)

        def done() -> None:
            write.is_done = True
            nbd.reply(writer, request)

        asyncio.get_running_loop().call_later(_WRITE_S, done)
    elif request.kind == nbd.FLUSH:
        contents.make_durable(contents.answered())
        nbd.reply(writer, request)
    else:
        nbd.refuse(writer, request)
    await writer.drain()
