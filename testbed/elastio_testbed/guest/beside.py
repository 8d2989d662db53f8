"""An application that uses a volume beside others: turns of direct reads and writes by several threads.

`python3 beside.py prepare SPEC` makes the files; `python3 beside.py run SPEC REPORT` uses them. Keys of SPEC:
`directory`, `file_bytes` and `jobs` (one file for each thread), `begins_s` (CLOCK_MONOTONIC), `every_s` (the length of
an interval of the report), `disk` (whose requests are counted; empty: none), `below` (the disk below it, to which what
is written is counted), `turns`. A turn has `seconds`, `jobs`
(threads that work in it), `sizes` (of requests in bytes, one drawn for each), `random` (or one after the other),
`reads` (their share, 0 to 1), `rate_bytes_s` (what the application wants; 0: as much as it gets), `synced` (through the
page cache, and each write ends when it is durable), `limits` (a line for `io.max` of its own cgroup; empty: none) and
`command` (which a shell runs in the turn, and which must not end in it; empty: none).

REPORT gets a JSON line for each interval with requests: `interval` (from 0), `bytes`, `requests`, `p95_ms`,
`p99_ms`; for each interval of `disk`: `interval`, `in_flight`, `below_bytes`; and a final line: `{"done": true}` or
`{"error": ...}`.
"""

import itertools
import json
import mmap
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, TextIO

Spec = dict[str, Any]
# CLOCK_MONOTONIC, and the text of /sys/block/DISK/stat; that of the disk below.
Reading = tuple[float, str]
SECTOR = 512
# An application that was held back does not make up for more than this afterwards.
LAG_S = 0.1
LAYOUT_BYTES = 1 << 20
# What a command that is killed may take to end.
END_S = 30.0


class Pace:
    """When requests of a turn may begin, so that they move `rate_bytes_s` together."""

    def __init__(self, rate_bytes_s: float, begins_s: float) -> None:
        self._rate, self._next, self._lock = rate_bytes_s, begins_s, threading.Lock()

    def at(self, size_bytes: int, now: float) -> float:
        """The time (CLOCK_MONOTONIC) from which on the next request may begin."""
        if not self._rate:
            return now
        with self._lock:
            at = max(self._next, now - LAG_S)
            self._next = at + size_bytes / self._rate
        return max(at, now)


class Account:
    """Bytes and times of the requests that ended in each interval."""

    def __init__(self, begins_s: float, every_s: float) -> None:
        self._begins_s, self._every_s = begins_s, every_s
        self._bytes: dict[int, int] = {}
        self._times: dict[int, list[float]] = {}
        self._lock = threading.Lock()

    def add(self, began_s: float, ended_s: float, size_bytes: int) -> None:
        interval = int((ended_s - self._begins_s) / self._every_s)
        with self._lock:
            self._bytes[interval] = self._bytes.get(interval, 0) + size_bytes
            self._times.setdefault(interval, []).append(ended_s - began_s)

    def lines(self) -> Iterator[dict[str, Any]]:
        """The lines of the report, in the order of time."""
        for interval, moved in sorted(self._bytes.items()):
            times = sorted(self._times[interval])
            late = {f"p{n}_ms": round(1000 * times[int(n / 100 * (len(times) - 1))], 2) for n in (95, 99)}
            yield {"interval": interval, "bytes": moved, "requests": len(times), **late}


class InFlight(threading.Thread):
    """Requests in flight at a disk, a mean over each interval from the begin on, and bytes written to that below.

    `lines`: of the report, so far.
    """

    def __init__(self, disk: str, below: str, begins_s: float, every_s: float) -> None:
        super().__init__(daemon=True)
        self._disk, self._below, self._begins_s, self._every_s = disk, below, begins_s, every_s
        self.lines: list[dict[str, Any]] = []

    def run(self) -> None:
        before: Reading | None = None
        below = 0
        for number in itertools.count():
            time.sleep(max(0.0, self._begins_s + number * self._every_s - time.monotonic()))
            now, above = (time.monotonic(), stat_of(self._disk)), below
            below = SECTOR * int(stat_of(self._below).split()[WRITTEN])
            if before is not None:
                found = {"in_flight": round(in_flight(before, now), 2), "below_bytes": below - above}
                self.lines.append({"interval": number - 1, **found})
            before = now


# The field of /sys/block/DISK/stat with the sectors that were written (Documentation/block/stat.rst).
WRITTEN = 6


def stat_of(disk: str) -> str:
    with open(f"/sys/block/{disk}/stat") as file:
        return file.read()


def in_flight(before: Reading, now: Reading) -> float:
    """The mean number of requests, from the milliseconds that all of them took (Documentation/block/stat.rst)."""
    (before_s, before_ms), (now_s, now_ms) = ((s, float(text.split()[10])) for s, text in (before, now))
    return (now_ms - before_ms) / 1000 / (now_s - before_s)


def file_of(spec: Spec, number: int) -> str:
    return os.path.join(spec["directory"], f"file{number}")


def prepare(spec: Spec) -> None:
    os.makedirs(spec["directory"], exist_ok=True)
    block = os.urandom(LAYOUT_BYTES)
    for number in range(spec["jobs"]):
        with open(file_of(spec, number), "wb") as file:
            for _ in range(spec["file_bytes"] // LAYOUT_BYTES):
                file.write(block)
            os.fsync(file.fileno())


def limit(line: str) -> None:
    """Set this line in `io.max` of this process's own cgroup."""
    with open("/proc/self/cgroup") as file:
        group = file.read().strip().partition("::")[2]
    with open(f"/sys/fs/cgroup{group}/io.max", "w") as file:
        file.write(line)


def run_until(command: str, ends_s: float) -> None:
    """Raises OSError if the command ends before, or cannot be ended."""
    process = subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
    try:
        process.wait(timeout=max(0.0, ends_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        try:
            process.wait(timeout=END_S)
            return
        except subprocess.TimeoutExpired:
            raise OSError(f"the command does not end: {command}") from None
    raise OSError(f"the command ended too early: {command}")


def turns_of(spec: Spec) -> Iterator[tuple[dict[str, Any], float, float]]:
    """Each turn with its begin and end."""
    begins_s = spec["begins_s"]
    for turn in spec["turns"]:
        yield turn, begins_s, begins_s + turn["seconds"]
        begins_s += turn["seconds"]


class Thread(threading.Thread):
    """One thread with its file. `failure`: why it ended early."""

    def __init__(self, spec: Spec, number: int, paces: list[Pace], account: Account) -> None:
        super().__init__(daemon=True)
        self._spec, self._number, self._paces, self._account = spec, number, paces, account
        self._draw = random.Random(number)
        self._next = 0
        self.failure: str | None = None

    def run(self) -> None:
        try:
            largest = max(size for turn in self._spec["turns"] for size in turn["sizes"])
            buffer = memoryview(mmap.mmap(-1, largest))
            for (turn, begins_s, ends_s), pace in zip(turns_of(self._spec), self._paces, strict=True):
                time.sleep(max(0.0, begins_s - time.monotonic()))
                if self._number < turn["jobs"]:
                    way = os.O_DSYNC if turn["synced"] else os.O_DIRECT
                    descriptor = os.open(file_of(self._spec, self._number), os.O_RDWR | way)
                    self._turn(turn, ends_s, pace, descriptor, buffer)
                    os.close(descriptor)
        except OSError as error:
            self.failure = str(error)

    def _turn(self, turn: dict[str, Any], ends_s: float, pace: Pace, descriptor: int, buffer: memoryview) -> None:
        while (now := time.monotonic()) < ends_s:
            size = self._draw.choice(turn["sizes"])
            at = pace.at(size, now)
            if at >= ends_s:
                return
            time.sleep(at - now)
            began_s = time.monotonic()
            self._request(turn, size, descriptor, buffer)
            self._account.add(began_s, time.monotonic(), size)

    def _request(self, turn: dict[str, Any], size: int, descriptor: int, buffer: memoryview) -> None:
        places = self._spec["file_bytes"] // size
        place = self._draw.randrange(places) if turn["random"] else self._next % places
        self._next += 1
        act = os.preadv if self._draw.random() < turn["reads"] else os.pwritev
        if act(descriptor, [buffer[:size]], place * size) != size:
            raise OSError("a request was cut short")


def run(spec: Spec, report: TextIO) -> None:
    now = time.monotonic()
    if now > spec["begins_s"]:
        raise OSError(f"the program was ready {now - spec['begins_s']:.1f} s too late")
    account = Account(spec["begins_s"], spec["every_s"])
    paces = [Pace(turn["rate_bytes_s"], begins_s) for turn, begins_s, _ in turns_of(spec)]
    threads = [Thread(spec, number, paces, account) for number in range(spec["jobs"])]
    device = InFlight(spec["disk"], spec["below"], spec["begins_s"], spec["every_s"])
    for thread in (*threads, *([device] if spec["disk"] else [])):
        thread.start()
    for turn, begins_s, ends_s in turns_of(spec):
        time.sleep(max(0.0, begins_s - time.monotonic()))
        if turn["limits"]:
            limit(turn["limits"])
        if turn["command"]:
            run_until(turn["command"], ends_s)
    for thread in threads:
        thread.join()
    failures = [thread.failure for thread in threads if thread.failure]
    if failures:
        raise OSError(failures[0])
    for line in (*account.lines(), *device.lines):
        report.write(json.dumps(line) + "\n")


def main() -> None:
    with open(sys.argv[2]) as file:
        spec = json.load(file)
    if sys.argv[1] == "prepare":
        prepare(spec)
        return
    with open(sys.argv[3], "w", buffering=1) as report:
        try:
            run(spec, report)
            report.write(json.dumps({"done": True}) + "\n")
        except OSError as error:
            report.write(json.dumps({"error": str(error)}) + "\n")


if __name__ == "__main__":
    main()
