"""Pages are locked, as the kernel shows for a child process."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("runs_programs")

# Of a page that several processes have mapped, each counts its share, which changes as others start and end. So what
# is locked later is counted in a mapping of this process alone, and not as a difference of two sums.
LOCK = r"""
import ctypes, mmap, re
from elastio.host.machine import stay_in_memory

def locked_kb(file, begin):
    with open(f"/proc/self/{file}") as shown:
        return int(re.search(rf"^{begin}-.*?^Locked: +(\d+) kB", shown.read(), re.DOTALL | re.MULTILINE)[1])

trouble = stay_in_memory()
at_once = locked_kb("smaps_rollup", "[0-9a-f]+")
later = mmap.mmap(-1, 8 << 20)
later[: 1 << 20] = bytes(1 << 20)
begin = ctypes.addressof(ctypes.c_char.from_buffer(later))
print(trouble or "locked", at_once, locked_kb("smaps", f"{begin:x}"))
"""


def run(limit_bytes: int | None) -> tuple[str, int, int]:
    """The output, KiB locked at once, and KiB locked when the first MiB of eight was used."""

    def lower() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit_bytes, limit_bytes))

    program = [sys.executable, "-c", LOCK]
    if limit_bytes is not None:  # root may lock whatever the limit says, unless that right is taken away
        program = ["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "--no-new-privs", *program]
    done = subprocess.run(program, capture_output=True, text=True, check=True, preexec_fn=lower, timeout=60)
    result, at_once_kb, later_kb = done.stdout.rsplit(maxsplit=2)
    return result, int(at_once_kb), int(later_kb)


def test_pages_are_locked_when_they_are_used_and_no_earlier() -> None:
    result, at_once_kb, later_kb = run(None)
    assert result == "locked"
    assert at_once_kb > 1024  # an interpreter, to begin with
    assert 1024 <= later_kb < 6 << 10  # huge pages round up


def test_a_limit_is_a_reason_and_no_error() -> None:
    result, at_once_kb, later_kb = run(4096)
    assert result != "locked"
    assert (at_once_kb, later_kb) == (0, 0)
