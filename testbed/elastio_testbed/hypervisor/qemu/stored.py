"""States of booted guests, from which others resume instead of booting.

Theory of operation. Of machines that boot alike, one boots without disks. When it is at rest, a program in it waits
for a message (`waking`), and QEMU is stopped and migrates to a file. The entry of the image cache holds this stream,
the root overlay that belongs to it, and their checksums. Its name is the digest of all that a stream depends on: the
image, QEMU's whole command line without the paths of one machine, QEMU's version, and under KVM the processor.

A machine without an overlay of its own copies that of the entry, so it needs no file of the entry once it runs, and a
later start boots for real from its own overlay. QEMU loads the stream, the guest continues, and before any other
command runs in it, the program that waits sets the clock and reseeds the random generator: two copies would otherwise
draw the same bytes. Disks are hot-plugged then.

QEMU does not notice a changed byte in a stream; the checksums do. A state that cannot be resumed is deleted, and the
machine boots. Copies have the same /etc/machine-id and boot ID, as they are of one boot; until they boot again.
"""

import contextlib
import functools
import json
import logging
import os
import shlex
import shutil
import subprocess
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from elastio_testbed.hypervisor.errors import HypervisorError
from elastio_testbed.hypervisor.qemu.agent import GuestAgent
from elastio_testbed.hypervisor.qemu.command import Hardware, Wiring, qemu_argv
from elastio_testbed.hypervisor.qemu.process import OVERLAY, Qemu, last_lines, launch
from elastio_testbed.hypervisor.qemu.waking import PROGRAM, lull, wake
from elastio_testbed.image import GuestImage
from elastio_testbed.image.cache import cache_directory, cached, digest_of, discard, prune

VARIABLE = "ELASTIO_STORED_STATE"
# Each takes some 200 MB: the memory that a guest uses after its boot, and what it wrote meanwhile.
_KEPT_STATES = 8
_STREAM, _MANIFEST = "stream", "manifest.json"
_CONTENTS = (_STREAM, OVERLAY)
_MIGRATION_S, _POLL_S = 120.0, 0.02
# No limit: QEMU's default is that of a network.
_BANDWIDTH_BYTES_S = 10**11
_CHUNK_BYTES = 1 << 20
_FAILURES = (HypervisorError, OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError)
_LOG = logging.getLogger(__name__)


def is_wanted(chosen: bool | None = None) -> bool:
    """Whether machines resume: as `chosen`, else as $ELASTIO_STORED_STATE says (`yes` or `no`), else yes.

    Raises HypervisorError for another value of the variable.
    """
    if chosen is not None:
        return chosen
    value = os.environ.get(VARIABLE) or "yes"
    if value not in ("yes", "no"):
        raise HypervisorError(f"{VARIABLE} is {value!r}: use yes or no")
    return value == "yes"


@dataclass(frozen=True)
class Kind:
    """Machines that boot alike; `ports` are the names of their virtio-serial ports."""

    image: GuestImage
    hardware: Hardware
    ports: tuple[str, ...] = ()

    def digest(self) -> str:
        """The digest of all that a stored state depends on."""
        somewhere = Path("file")
        wiring = Wiring(somewhere, somewhere, 0, 0, dict.fromkeys(self.ports, somewhere))
        argv = qemu_argv(self.image, self.hardware, wiring, [])
        processor = "" if self.hardware.accel.startswith("tcg") else _processor(Path("/proc/cpuinfo").read_text())
        return digest_of([self.image.digest, str(self.image.root), *argv, _qemu_version(), processor, PROGRAM])


@dataclass(frozen=True)
class StoredState:
    """An entry of the image cache."""

    kind: Kind
    entry: Path

    def resume(self, directory: Path, ports: Mapping[str, Path]) -> Qemu | None:
        """A running machine with its files in `directory`, where it gets the stored root.

        None where that fails: then the state is deleted, `directory` has no root, and a line of the log says why.
        """
        try:
            return _resumed(self, directory, ports)
        except _FAILURES as error:
            _say("a stored state cannot be resumed and was deleted; the guest boots", error)
        discard(self.entry)
        return None


def stored_state(kind: Kind, timeout_s: float) -> StoredState | None:
    """The state of such machines; the first call boots one, which may take `timeout_s`.

    None where none can be stored; a line of the log says why.
    """
    try:
        cache = cache_directory()
        entry = cached(cache / f"state-{kind.digest()}", lambda unfinished: _store(kind, unfinished, timeout_s))
        prune(cache, "state-*", keep=_KEPT_STATES)
    except _FAILURES as error:
        _say("no state can be stored; the guest boots", error)
        return None
    return StoredState(kind, entry)


def _say(what: str, error: Exception) -> None:
    _LOG.warning("%s: %s", what, str(error).partition("\n")[0] or type(error).__name__)


def _store(kind: Kind, directory: Path, timeout_s: float) -> None:
    """Fill the entry `directory`. The caller has its lock."""
    _remove_unfinished(directory)
    boot = directory / "boot"
    qemu = launch(kind.image, kind.hardware, boot, [], {name: boot / f"port{n}" for n, name in enumerate(kind.ports)})
    try:
        agent = GuestAgent(qemu.agent, qemu.agent_port_is_open, functools.partial(last_lines, boot))
        agent.wait_ready(timeout_s)
        waiting = lull(agent)
        qemu.command("stop")
        _save(qemu, directory / _STREAM)
    finally:
        qemu.kill()
    (boot / OVERLAY).rename(directory / OVERLAY)
    shutil.rmtree(boot)
    manifest = {"waiting": waiting} | {name: _checksum(directory / name) for name in _CONTENTS}
    (directory / _MANIFEST).write_text(json.dumps(manifest))
    for name in (*_CONTENTS, _MANIFEST):
        _sync(directory / name)


def _remove_unfinished(directory: Path) -> None:
    """Delete what builders of the same entry left that were killed."""
    prefix = directory.name.rpartition(".")[0]
    for other in directory.parent.glob(f"{prefix}.*"):
        if other != directory:
            shutil.rmtree(other, ignore_errors=True)


def _save(qemu: Qemu, stream: Path) -> None:
    """Write the state of the stopped machine, and the last of its root, to files. `stream` appears when complete."""
    part = stream.with_suffix(".part")
    qemu.command("migrate-set-parameters", {"max-bandwidth": _BANDWIDTH_BYTES_S})
    script = f"cat > {shlex.quote(str(part))} && mv {shlex.quote(str(part))} {shlex.quote(str(stream))}"
    qemu.command("migrate", {"uri": f"exec:{script}"})

    def is_done() -> bool:
        status = qemu.command("query-migrate").get("status")
        if status in ("failed", "cancelled"):
            raise HypervisorError("QEMU cannot write the state of the guest")
        return status == "completed" and stream.exists()

    _until(is_done, "the state of the guest was not written in time")


def _resumed(state: StoredState, directory: Path, ports: Mapping[str, Path]) -> Qemu:
    manifest = json.loads((state.entry / _MANIFEST).read_text())
    for name in _CONTENTS:
        if _checksum(state.entry / name) != manifest[name]:
            raise HypervisorError(f"{name} is damaged")
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as undo:
        undo.callback((directory / OVERLAY).unlink, missing_ok=True)
        shutil.copyfile(state.entry / OVERLAY, directory / OVERLAY)
        qemu = launch(state.kind.image, state.kind.hardware, directory, [], ports, is_incoming=True)
        undo.callback(qemu.kill)
        _load(qemu, state.entry / _STREAM)
        qemu.command("cont")
        agent = GuestAgent(qemu.agent, qemu.agent_port_is_open, functools.partial(last_lines, directory))
        wake(agent, int(manifest["waiting"]))
        undo.pop_all()
    return qemu


def _load(qemu: Qemu, stream: Path) -> None:
    qemu.command("migrate-incoming", {"uri": f"exec:cat {shlex.quote(str(stream))}"})
    # As when it was stored, the machine is then stopped.
    _until(lambda: qemu.command("query-status")["status"] == "paused", "the state was not loaded in time")


def _until(is_done: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + _MIGRATION_S
    while not is_done():
        if time.monotonic() > deadline:
            raise HypervisorError(message)
        time.sleep(_POLL_S)


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


@functools.cache
def _qemu_version() -> str:
    argv = ["qemu-system-x86_64", "--version"]
    return subprocess.run(argv, capture_output=True, text=True, timeout=_MIGRATION_S, check=True).stdout


def _processor(cpuinfo: str) -> str:
    """What guests see of the host's processor."""
    first = cpuinfo.partition("\n\n")[0].splitlines()
    return "\n".join(line for line in first if line.startswith(("vendor_id", "cpu family", "model", "flags")))
