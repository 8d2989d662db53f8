"""`elastio profile`, and the agent's looks, of real programs on a loop device that a cgroup limits.

A profile is compared with the scheduler's own counts.

Needs root, loop devices, and the io controller of cgroups, of either version: on a machine without them a test fails.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from click.testing import CliRunner

from elastio.agent.accountant import lost
from elastio.agent.worker import ForkWorker
from elastio.host.group_watch import GroupWatch
from elastio.host.machine import SystemClock
from elastio.host.sysfs import Sysfs, wait_for
from elastio.strategy.account import Totals, account
from elastio.strategy.watched_bursts import Seen, Watch
from elastio_cli.app import App
from elastio_cli.main import main

LOAD = Path(__file__).with_name("disk_load.py")
CAP_MB_S, LOAD_S = 8, 2
BLKIO, UNIFIED = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
MAX = f"rbps=max wbps={CAP_MB_S}000000"


def shell(script: str, *args: str) -> str:
    """What it prints. A program of its own, because a test itself writes nothing under /sys."""
    return subprocess.run(
        ["sh", "-euc", script, "sh", *args], check=True, capture_output=True, text=True
    ).stdout.strip()


@dataclass(frozen=True)
class Limited:
    """A disk, and a cgroup whose writes to it are limited."""

    device: str
    group: Path
    counts: Path

    def profile(self, *words: str, seconds: str = str(LOAD_S)) -> tuple[dict[str, Any], tuple[float, float]]:
        """The answer for `disk_load.py`, and the seconds that it ran and was in the run queue."""
        *options, kind = words
        load = [sys.executable, "-I", str(LOAD), kind, self.device, seconds, str(self.counts)]
        enter = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(self.group), *load]
        args = ["profile", "--json", "--device", self.device, *options, "--", *enter]
        result = CliRunner().invoke(main, args, obj=App(), catch_exceptions=False)
        assert result.exit_code == 0, result.output
        ran, queued = self.counts.read_text().split()[:2]
        return json.loads(result.stdout), (int(ran) / 1e9, int(queued) / 1e9)


@pytest.fixture
def limited(tmp_path: Path, runs_programs: None) -> Iterator[Limited]:
    image, name = tmp_path / "disk", f"elastio-test-{os.getpid()}"
    image.write_bytes(b"\1" * (32 << 20))
    device = shell('losetup --find --show "$1"', str(image))
    group = (BLKIO if BLKIO.is_dir() else UNIFIED) / name
    try:
        number = Path(f"/sys/block/{Path(device).name}/dev").read_text().strip()
        if BLKIO.is_dir():
            file, text = "blkio.throttle.write_bps_device", f"{number} {CAP_MB_S}000000"
        else:
            shell("echo +io > /sys/fs/cgroup/cgroup.subtree_control")
            file, text = "io.max", f"{number} {MAX}"
        shell('mkdir "$1" && echo "$3" > "$1/$2"', str(group), file, text)
        yield Limited(device, group, tmp_path / "counts")
    finally:
        shell('[ ! -d "$1" ] || rmdir "$1"; losetup --detach "$2"', str(group), device)


@pytest.mark.parametrize("options", [("--bandwidth", str(CAP_MB_S)), ()], ids=["limit given", "not given"])
@pytest.mark.parametrize("kind", ["sync", "libaio", "io_uring"])
def test_a_program_at_the_limit_waits_for_bandwidth(kind: str, options: tuple[str, ...], limited: Limited) -> None:
    found, (ran_s, queued_s) = limited.profile(*options, kind)
    account, seconds = found["account"], found["seconds"]
    assert found["mostly"] == "bandwidth"
    assert [limit["write_mb_s"] for limit in found["limits"]] == [CAP_MB_S]
    assert account["unknown_s"] == pytest.approx(0, abs=0.05 * seconds)
    busy_s = account["computing_s"] + account["queue_s"]
    assert busy_s == pytest.approx(
        ran_s + queued_s, abs=0.1 * seconds
    )  # some thirty readings, on a machine that is busy
    # Until it writes it starts, and may wait for the disk that it comes from: that is elsewhere.
    assert LOAD_S - busy_s - 0.1 * seconds <= account["bandwidth_s"] <= seconds - busy_s + 0.1 * seconds


def written(disk: str) -> int:
    """Sectors."""
    return int(Path(f"/sys/block/{disk}/stat").read_text().split()[6])


def test_the_agents_looks_at_a_program_at_the_limit_show_that_it_waits_for_bandwidth(
    limited: Limited, tmp_path: Path
) -> None:
    """The cgroups are a tree of files: the kernel's of version 2 need not count I/O on this machine."""
    name, root = Path(limited.device).name, tmp_path / "root"
    groups = root / "sys/fs/cgroup"
    group = groups / "load.service"
    group.mkdir(parents=True)
    for folder in ("proc", "sys/block", "sys/class"):
        (root / folder).symlink_to(f"/{folder}")
    for file in ("cgroup.controllers", "cgroup.subtree_control"):
        (groups / file).write_text("io")
    number = Path(f"/sys/block/{name}/dev").read_text().strip()
    (group / "io.max").write_text(f"{number} {MAX}")
    load = [sys.executable, "-I", str(LOAD), "sync", limited.device, "30", str(limited.counts)]
    with subprocess.Popen(
        ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(limited.group), *load]
    ) as program:
        looks: ForkWorker[Watch, Seen] = ForkWorker("account", GroupWatch(Sysfs(root), SystemClock(), sleep).look, lost)
        try:
            assert wait_for(lambda: written(name) > 0, 20), "what it does before it writes is not looked at"
            (group / "cgroup.procs").write_text(f"{program.pid}")
            found = Totals()
            for look in range(5):
                (group / "io.stat").write_text(f"{number} rbytes=0 wbytes={look} rios=0 wios={look}")
                found = found.plus(
                    answer(looks, Watch(1.0, name, None, ("*.service",))).groups.get(group.name, Totals())
                )
        finally:
            looks.close(0.0)
            program.kill()
    known = account(found)
    waited_s = known.seconds - known.computing_s - known.queue_s  # on a machine that is busy, it waits for it too
    assert known.bandwidth_s > 0.9 * waited_s > 0


def answer(looks: ForkWorker[Watch, Seen], watch: Watch) -> Seen:
    looks.submit(watch, 30.0)
    while (pipe := looks.readable_pipe()) is not None:
        pipe.poll(30.0)
        seen = looks.poll()
        if seen is not None:
            return seen
    raise AssertionError
