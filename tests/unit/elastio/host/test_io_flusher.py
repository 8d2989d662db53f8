"""Memory is got without I/O while an adopted volume is suspended, as the kernel shows for a child process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("runs_programs")

PR_GET_IO_FLUSHER = 58
CAP_SYS_RESOURCE = 24
SHOWN = f"""
import ctypes
from elastio.host.machine import as_io_flusher
get = lambda: ctypes.CDLL(None).prctl({PR_GET_IO_FLUSHER}, 0, 0, 0, 0)
before = get()
try:
    with as_io_flusher():
        inside = get()
        raise KeyError
except KeyError:
    print(before, inside, get())
"""


def shown(*prefix: str) -> str:
    return subprocess.run([*prefix, sys.executable, "-c", SHOWN], capture_output=True, text=True, check=True).stdout


def may() -> bool:
    found = re.search(r"^CapEff:\s+([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return bool(int(found[1], 16) & 1 << CAP_SYS_RESOURCE)


def test_the_thread_is_marked_inside_and_as_before_afterwards_where_it_may() -> None:
    assert shown() == ("0 1 0\n" if may() else "-1 -1 -1\n")


def test_without_the_right_nothing_changes() -> None:
    assert shown("setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource") == "-1 -1 -1\n"
