"""The kernel's own sum of what waits for I/O. The processes of a command: `host/test_task_states.py`."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.host.sysfs import Sysfs
from elastio_adviser.command_tasks import pressure_s


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=2500000\nfull avg10=0.00 total=1\n", 2.5),
        ("", None),
        ("some nonsense", None),
    ],
)
def test_pressure_is_seconds_of_some_or_not_known(text: str, expected: float | None, tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path)
    (tmp_path / "proc/pressure").mkdir(parents=True)
    sysfs.path("proc/pressure/io").write_text(text)
    assert pressure_s(sysfs, None) == expected
    assert pressure_s(sysfs, "sys/fs/cgroup/gone.slice") is None
