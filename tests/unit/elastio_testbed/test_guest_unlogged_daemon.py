"""The daemon without its event log is the daemon, in all else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elastio.ports import Reporter
from elastio_testbed.guest import unlogged_daemon

ROOT = Path(__file__).parents[3]
CODE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
sys.path.insert(0, {str(ROOT / "testbed/elastio_testbed/guest")!r})
import unlogged_daemon
unlogged_daemon.without_event_log()
from elastio.agent import daemon
from elastio.agent import elastiod
assert daemon.EventLog is unlogged_daemon.Untold
elastiod.journald.handler().format
told = {{"narrate", "LogEvent"}} & set(vars(sys.modules["elastio.agent.narration"]))
assert not told and "elastio.agent.log_events" not in sys.modules, told
"""


@pytest.mark.runs_programs
def test_nothing_that_tells_events_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_it_has_what_the_loop_calls() -> None:
    calls = [name for name in vars(Reporter) if not name.startswith("_")]
    assert [name for name in calls if not hasattr(unlogged_daemon.Untold, name)] == []
