"""`elastio watch`: lines where there is no terminal, and a terminal that is given back."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted

from .conftest import FakeAgent, Shell
from .test_status import SITUATIONS

ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
WAIT_S = 30.0  # of a machine that is busy


# --- without a terminal ------------------------------------------------------------------------------------------


def interrupted_after(turns: int, shell: Shell) -> Shell:
    """The command line of somebody who presses Ctrl-C at the given turn."""
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == turns:
            raise KeyboardInterrupt

    return Shell(replace(shell.app, sleep=sleep))


def test_prints_a_line_each_time_and_ends_well_by_an_interrupt(agent: FakeAgent, elastio: Shell) -> None:
    agent.statuses = [SITUATIONS["idle"], SITUATIONS["boosting"]]
    agent.replies["why"] = accepted(decisions=[])
    result = interrupted_after(3, elastio)("watch", "--interval", "1")
    assert (result.exit_code, result.stderr) == (Exit.OK, "")
    assert [line.split()[2] for line in result.stdout.splitlines()] == ["idle", "boosting", "boosting"]
    assert "\x1b" not in result.stdout


def test_once_is_one_line(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["why"] = accepted(decisions=[])
    result = elastio("watch", "--once")
    assert (result.exit_code, result.stdout.count("\n")) == (Exit.OK, 1)


def test_an_agent_that_never_answered_is_an_error(elastio: Shell) -> None:
    result = elastio("watch")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.UNREACHABLE, "", 1)


def test_an_agent_that_stops_is_shown_and_found_again(agent: FakeAgent, elastio: Shell) -> None:
    agent.replies["why"] = accepted(decisions=[])
    turns: list[float] = []

    def sleep(seconds: float) -> None:
        turns.append(seconds)
        if len(turns) == 1:
            agent.stop()
        if len(turns) == 2:
            agent.start()
        if len(turns) == 3:
            raise KeyboardInterrupt

    result = Shell(replace(elastio.app, sleep=sleep))("watch")
    assert result.exit_code == Exit.OK
    assert ["no answer" in line for line in result.stdout.splitlines()] == [False, True, False]


# --- on a terminal -----------------------------------------------------------------------------------------------


@dataclass
class Terminal:
    """A pseudo-terminal with the command in it."""

    process: subprocess.Popen[bytes]
    master: int
    slave: int
    seen: str = ""

    def until(self, text: str) -> str:
        """Everything so far, once `text` is in it."""
        return self._until(lambda: text in self.seen)

    def frame(self, shows: Callable[[str], bool]) -> str:
        """The last whole frame, once it is as wanted; without the sequences that move the cursor."""
        self._until(lambda: shows(self._last_frame()))
        return self._last_frame()

    def _last_frame(self) -> str:
        frames = self.seen.split("\x1b[1;1H")
        lines = re.split(r"\x1b\[\d+;1H", frames[-2] if len(frames) > 2 else "")
        return "\n".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in lines)

    def _until(self, is_there: Callable[[], bool]) -> str:
        deadline = time.monotonic() + WAIT_S
        while not is_there():
            ready, _, _ = select.select([self.master], [], [], deadline - time.monotonic())
            assert ready, f"it did not come: {self.seen[-4000:]!r}"
            self.seen += os.read(self.master, 65536).decode(errors="replace")
            assert time.monotonic() < deadline, f"it did not come: {self.seen[-4000:]!r}"
        return self.seen

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@pytest.fixture
def terminal(agent: FakeAgent, tmp_path: Path) -> Iterator[Terminal]:
    agent.statuses = [SITUATIONS["boosting"]]
    agent.replies["why"] = accepted(decisions=[])
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    # Ctrl-C and SIGWINCH come from a controlling terminal only.
    command = (
        "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n"
        "from elastio_cli.main import main; main(prog_name='elastio')"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", command, "--socket", str(agent.path), "watch", "--interval", "0.2"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
    )
    found = Terminal(process, master, slave)
    yield found
    if process.poll() is None:
        process.kill()
    process.wait()
    os.close(master)
    os.close(slave)


@pytest.mark.runs_programs
def test_ctrl_c_ends_it_with_0_and_gives_the_terminal_back(terminal: Terminal) -> None:
    before = termios.tcgetattr(terminal.slave)
    terminal.until("BOOSTING")
    assert termios.tcgetattr(terminal.slave) != before
    os.write(terminal.master, b"typed\x03")
    ended = terminal.until(LEAVE)
    assert terminal.process.wait(WAIT_S) == Exit.OK
    assert termios.tcgetattr(terminal.slave) == before
    assert ended.count(ENTER) == ended.count(LEAVE) == 1
    assert ended.index("\x1b[?25l") < ended.index("\x1b[?25h")
    assert "typed" not in ended
    assert "Traceback" not in ended


@pytest.mark.runs_programs
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_ends_give_the_terminal_back_too(terminal: Terminal, number: signal.Signals) -> None:
    before = termios.tcgetattr(terminal.slave)
    terminal.until("BOOSTING")
    terminal.process.send_signal(number)
    terminal.until(LEAVE)
    assert terminal.process.wait(WAIT_S) == Exit.OK
    assert termios.tcgetattr(terminal.slave) == before


@pytest.mark.runs_programs
def test_while_it_is_stopped_the_shell_has_the_terminal(terminal: Terminal) -> None:
    terminal.until("BOOSTING")
    terminal.process.send_signal(signal.SIGTSTP)
    terminal.until(LEAVE)
    _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    sofar = len(terminal.seen)
    terminal.process.send_signal(signal.SIGCONT)
    terminal.frame(lambda frame: "BOOSTING" in frame and ENTER in terminal.seen[sofar:])
    os.write(terminal.master, b"\x03")
    assert terminal.process.wait(WAIT_S) == Exit.OK


@pytest.mark.runs_programs
def test_a_resize_is_drawn_in_the_new_size(terminal: Terminal) -> None:
    def widest(frame: str) -> int:
        return max(len(line) for line in frame.split("\n"))

    assert widest(terminal.frame(lambda frame: "BOOSTING" in frame)) <= 80
    terminal.resize(120, 30)
    assert widest(terminal.frame(lambda frame: widest(frame) > 80)) <= 120
    terminal.resize(40, 10)
    small = terminal.frame(lambda frame: widest(frame) <= 40)
    assert len(small.split("\n")) <= 10


@pytest.mark.runs_programs
def test_an_agent_that_stops_is_shown_on_the_terminal_and_found_again(terminal: Terminal, agent: FakeAgent) -> None:
    terminal.until("BOOSTING")
    agent.stop()
    terminal.frame(lambda frame: "NO ANSWER" in frame)
    agent.start()
    # The chart keeps the gap.
    terminal.frame(lambda frame: "NO ANSWER" not in frame and "? no answer" in frame)
    os.write(terminal.master, b"\x03")
    terminal.until(LEAVE)
    assert terminal.process.wait(WAIT_S) == Exit.OK
