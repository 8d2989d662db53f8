"""`elastio-testbed run pgbench`: PostgreSQL on an xfs of its own beside a sequential writer, on the slow volume."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from elastio.core.shares import MOST_RESERVED
from elastio.units import MB, SECTOR
from elastio_testbed.bars import Asked
from elastio_testbed.conditions import observe
from elastio_testbed.console import Say
from elastio_testbed.experiment import Scaled, Setup
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA, Guest
from elastio_testbed.sharing.applications import CALL_S, LAYOUT_S, TIME, VOLUMES, Applications, started
from elastio_testbed.sharing.controls import NONE, SHARES
from elastio_testbed.sharing.experiment import about
from elastio_testbed.sharing.pgbench import SETTLE_S, Turn, bars, of_log, runs_of
from elastio_testbed.trial import Plan

# In an image of their own.
PACKAGES = ("postgresql",)
DATABASE, WRITER = "/database", "/backup"
WEIGHTS = {"database": 800, "writer": 100}
# Of pgbench: a database of 150 MB, which is larger than what PostgreSQL keeps in memory.
SCALE, CLIENTS = 10, 4
DATABASE_MIB, WRITTEN_MIB = 800, 400
# A commit of PostgreSQL alone is several requests, and takes 14 ms here.
RUN_S, LEAST_S, TARGET_MS = 200.0, 50.0, 5.0
# The runs take turns: the host is up to a third faster in one minute than in the next. Long ones: at its begin the
# writer fills the page cache, and PostgreSQL has the volume for itself.
TURNS = 2
SOCKET, LOG = "/var/tmp", "/var/tmp/pgbench-log"
# A page goes to the log as a whole when it is first changed after a checkpoint. So each turn begins with one, and none
# falls into it.
SETTINGS = ("-c", "checkpoint_timeout=1h")
# The server's programs are not in PATH.
SERVER = 'PATH=$PATH:$(echo /usr/lib/postgresql/*/bin) exec "$@"'
CONTROLS = (NONE, SHARES)


def pgbench_result(asked: Asked, keep: Callable[[Mapping[str, Any]], None], say: Say) -> dict[str, Any]:
    """Run it; `keep` gets the document after each turn. Raises HypervisorError, ImageError."""
    turns: list[Turn] = []
    found: dict[str, Any] = {}
    image = build_guest_image(extra=PACKAGES, suite=asked.suite)
    plan = Plan("demo", (Setup.ADAPTIVE,), scale=TIME, bandwidth=asked.bandwidth, seed=asked.seed)
    with started(image, plan, Scaled(VOLUMES, TIME, asked.bandwidth)) as both:
        conditions = asdict(observe(both.guest.check(["uname", "-r"])))
        prepare(both)
        for control, is_alone in ((NONE, True), (NONE, False), (SHARES, False)) * TURNS:
            say(f"pgbench: {'alone' if is_alone else f'beside a writer, {control}'}")
            turns.append(_turn(both, control, max(LEAST_S, RUN_S * asked.scale) / TURNS, is_alone=is_alone))
            runs = runs_of(turns)
            found = {
                **about("pgbench", asked, conditions, both, CONTROLS),
                "services": [{"name": name, "weight": weight} for name, weight in WEIGHTS.items()],
                "clients": CLIENTS,
                "bars": [bar.to_json() for bar in bars(runs)],
                "runs": [run.to_json() for run in runs],
            }
            keep(found)
    return found


def prepare(both: Applications) -> None:
    """Two filesystems in place of the one that the guest has, at full speed, and a database on the first."""
    guest = both.guest
    both.share({"enabled": "false"})
    guest.check(["elastio", "pause"], timeout_s=CALL_S)
    guest.vm.set_limit(guest.serial, None)
    disk = f"/dev/{both.name}"
    guest.check(["sh", "-c", f"umount {DATA} && wipefs -qa {disk}"], timeout_s=CALL_S)
    guest.check(["sh", "-c", f"printf ',{DATABASE_MIB}M\\n,\\n' | sfdisk -q {disk}; udevadm settle"], timeout_s=CALL_S)
    for number, place in enumerate((DATABASE, WRITER), start=1):
        guest.check(["mkfs.xfs", "-q", "-f", "-K", f"{disk}p{number}"], timeout_s=CALL_S)
        guest.check(["sh", "-c", f"mkdir -p {place} && mount {disk}p{number} {place}"], timeout_s=CALL_S)
    guest.check(["sh", "-c", f"systemctl stop postgresql; chown postgres {DATABASE}"], timeout_s=CALL_S)
    _as_postgres(guest, "initdb", "-A", "trust", "-D", f"{DATABASE}/data")
    server = ["postgres", "-D", f"{DATABASE}/data", "-k", SOCKET, *SETTINGS]
    guest.check(_service("database", "--property=User=postgres", *_found(*server)), timeout_s=CALL_S)
    _as_postgres(guest, "sh", "-c", f"until pg_isready -q -h {SOCKET}; do sleep 0.2; done; createdb -h {SOCKET} bench")
    _as_postgres(guest, "pgbench", "-q", "-i", "-s", str(SCALE), "-h", SOCKET, "bench")
    guest.check(["sync"], timeout_s=LAYOUT_S)
    guest.vm.set_limit(guest.serial, guest.cap_bytes_s)


def _found(*command: str) -> list[str]:
    return ["/bin/sh", "-c", SERVER, "-", *command]


def _as_postgres(guest: Guest, *command: str) -> str:
    return guest.check(["runuser", "-u", "postgres", "--", *_found(*command)], timeout_s=LAYOUT_S)


def _service(name: str, *rest: str) -> list[str]:
    return ["systemd-run", "--collect", f"--unit={name}", f"--property=IOWeight={WEIGHTS[name]}", *rest]


def _turn(both: Applications, control: str, seconds: float, *, is_alone: bool) -> Turn:
    both.share(_shares(both) if control == SHARES else {"enabled": "false"})
    both.guest.check(["sh", "-c", f"rm -f {LOG}*"])
    _as_postgres(both.guest, "psql", "-q", "-h", SOCKET, "-c", "checkpoint", "bench")
    command = ["pgbench", "-n", "-c", str(CLIENTS), "-T", str(round(seconds)), "-l", f"--log-prefix={LOG}"]
    if is_alone:
        _as_postgres(both.guest, *command, "-h", SOCKET, "bench")
        writer_mb_s = None
    else:
        with _writer(both.guest):
            before, begun_s = _written_mb(both), time.monotonic()
            _as_postgres(both.guest, *command, "-h", SOCKET, "bench")
            writer_mb_s = round((_written_mb(both) - before) / (time.monotonic() - begun_s), 2)
    both.require_phase("idle")
    log = both.guest.check(["sh", "-c", f"cat {LOG}*"], timeout_s=CALL_S)
    return of_log(log.splitlines(), round(seconds), control, writer_mb_s)


def _shares(both: Applications) -> dict[str, str]:
    """By weight; where the kernel keeps none, by a reservation of as much."""
    shares = {"enabled": "true", "latency_ms": f'{{ "database.service" = {TARGET_MS:g} }}'}
    if not both.has_weights:
        part = min(0.99 * MOST_RESERVED, WEIGHTS["database"] / sum(WEIGHTS.values()))
        shares["reserve"] = f'{{ "database.service" = {part * both.slow_mb_s:.2f} }}'
    return shares


@contextmanager
def _writer(guest: Guest) -> Iterator[None]:
    fio = f"fio --name=writer --directory={WRITER} --rw=write --bs=1m --size={WRITTEN_MIB}m --time_based --runtime=1000"
    guest.check(_service("writer", *fio.split()), timeout_s=CALL_S)
    time.sleep(SETTLE_S)
    try:
        yield
    finally:
        guest.check(["systemctl", "stop", "writer"], timeout_s=CALL_S)
        guest.check(["sync"], timeout_s=LAYOUT_S)


def _written_mb(both: Applications) -> float:
    """What the second filesystem has written of the device, in MB."""
    counted = both.guest.check(["cat", f"/sys/block/{both.name}/{both.name}p2/stat"]).split()
    return int(counted[6]) * SECTOR / MB
