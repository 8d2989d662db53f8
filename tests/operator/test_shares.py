"""Services that share one adaptive device: who may cause a boost, and what each has of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pytest

from elastio.core.capacity import OF_BACKING
from elastio.units import MB
from elastio_testbed.faults.fault_target import CALL_S
from elastio_testbed.faults.lab import Lab
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA
from elastio_testbed.scratch import scratch_folder
from tests.faults.conftest import SEED, Target

pytestmark = pytest.mark.guest

BUFFERED, DIRECT = "--bs=1m --end_fsync=1", "--bs=256k --direct=1 --ioengine=libaio --iodepth=16"
SMALL = "--bs=4k --direct=1 --rw=randwrite --rate_iops=20"
BACKUP, DATABASE = "backup", "database"
# A queue at the volume: that of the backup would be five times as long.
QUEUED_MS = 50.0
# fio adds the kind of what it logs.
LOG = "/var/tmp/database"
# Several times as long as an agent takes to see a load and to ask for a volume.
LONG_S, BOOSTED_S, RELEASED_S = 20.0, 60.0, 180.0
SETTLES_S, MEASURED_S = 5.0, 20.0
# No limit is left for longer when an agent has died.
LIFTED_S = 10.0
LIMITS = "grep -h 222 /sys/fs/cgroup/*/io.max /sys/fs/cgroup/*/*/io.max"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with scratch_folder("elastio-shares-") as name, Lab(build_guest_image(), Path(name), SEED) as lab:
        lab.prepare()
        yield Target(lab)


def configure(lab: Lab, **share: str) -> None:
    """Put this `[share]` in force."""
    lab.guest.write_config(lab.cloud, {"share": share})
    lab.guest.check(["systemctl", "reload", "elastiod"], timeout_s=CALL_S)


def begin(lab: Lab, name: str, how: str) -> None:
    """A service that writes, as fast as the device takes it unless `how` says else, until `end`."""
    fio = f"fio --name={name} --filename={DATA}/{name} --rw=write --size=64m --time_based --runtime=1000 {how}"
    lab.guest.check(["systemd-run", "--collect", f"--unit={name}", *fio.split()])


def end(lab: Lab, name: str) -> None:
    lab.guest.check(["systemctl", "stop", name], timeout_s=CALL_S)


def phase(lab: Lab) -> str:
    return str(lab.guest.status()["phase"])


def wait_for_limits(lab: Lab, wanted: str) -> None:
    """Until the agent is in this phase, and shares the device."""
    lab.wait_until(lambda: phase(lab) == wanted and are_limited(lab), BOOSTED_S, f"limits while {wanted}")


def are_limited(lab: Lab) -> bool:
    """Whether a cgroup has a limit of shares."""
    return lab.succeeds("sh", "-c", LIMITS)


def test_only_a_service_with_the_right_causes_a_boost(target: Target) -> None:
    lab = target.lab
    configure(lab, no_boost='["backup.service"]')
    begin(lab, BACKUP, BUFFERED)
    lab.wait_until(lambda: lab.guest.status()["load"]["write_mb_s"] > 5, CALL_S, "the load")
    until_s = lab.uptime_s() + LONG_S
    utilization = []
    while lab.uptime_s() < until_s:
        status = lab.guest.status()
        assert status["phase"] == "idle", status["load"]
        utilization.append(status["load"]["utilization"])
    assert max(utilization) < 0.1, "nothing of it counts"
    # Only in a second in which the page cache writes for it.
    lab.wait_until(lambda: right(lab, BACKUP) is False, CALL_S, "a backup without the right")
    begin(lab, DATABASE, BUFFERED)
    lab.wait_until(lambda: phase(lab) == "boosting", BOOSTED_S, "the boost")
    end(lab, DATABASE)
    lab.wait_until(lambda: phase(lab) == "idle", RELEASED_S, "the release beside the backup")
    end(lab, BACKUP)
    target.lab.settle(60)
    assert lab.leaked() == ()


def right(lab: Lab, name: str) -> bool | None:
    """Whether the service has the right to a boost, as `elastio shares` shows it; None: it does not use the device."""
    groups = json.loads(lab.guest.check(["elastio", "shares", "--json"], timeout_s=CALL_S))["groups"]
    return {g["cgroup"]: bool(g["boosts"]) for g in groups}.get(f"system.slice/{name}.service")


def moved_bytes(lab: Lab, *names: str) -> list[int]:
    """What each service has written to the adaptive device, as the kernel counts it."""
    number = lab.guest.check(["cat", f"/sys/block/{lab.device()}/dev"]).strip()
    found = []
    for name in names:
        counts = lab.guest.check(["cat", f"/sys/fs/cgroup/system.slice/{name}.service/io.stat"]).split()
        values = counts[counts.index(number) :]
        found.append(int(next(word for word in values if word.startswith("wbytes=")).partition("=")[2]))
    return found


def rates(lab: Lab, settles_s: float = SETTLES_S) -> tuple[float, float]:
    """MB/s of the database and the backup over MEASURED_S, after limits have had so long to settle."""
    settled_s = lab.uptime_s() + settles_s
    lab.wait_until(lambda: lab.uptime_s() >= settled_s, settles_s + CALL_S, "limits that have settled")
    begun_s, before = lab.uptime_s(), moved_bytes(lab, DATABASE, BACKUP)
    lab.wait_until(lambda: lab.uptime_s() >= begun_s + MEASURED_S, MEASURED_S + CALL_S, "what is measured")
    after, took_s = moved_bytes(lab, DATABASE, BACKUP), lab.uptime_s() - begun_s
    first, second = ((new - old) / MB / took_s for old, new in zip(before, after, strict=True))
    return first, second


def test_two_services_share_the_slow_volume_and_the_cache_as_the_limits_say(target: Target) -> None:
    """By a reservation, because user-mode Linux keeps no weights of cgroups: two thirds of the slow volume."""
    lab = target.lab
    slow_mb_s = lab.scaled.backing_bytes_s / MB
    reserved_mb_s = OF_BACKING * slow_mb_s * 2 / 3
    share = {"enabled": "true", "reserve": f'{{ "{DATABASE}.service" = {reserved_mb_s:.2f} }}'}
    configure(lab, **share, may_boost='["nobody.service"]')
    for name in (DATABASE, BACKUP):
        begin(lab, name, DIRECT)
    slow = rates(lab)
    configure(lab, **share)
    lab.wait_until(lambda: phase(lab) == "boosting", BOOSTED_S, "the boost")
    fast = rates(lab)
    for name in (DATABASE, BACKUP):
        end(lab, name)
    lab.wait_until(lambda: phase(lab) == "idle", RELEASED_S, "the release")
    print("slow volume {:.1f} {:.1f}, boosted {:.1f} {:.1f} MB/s".format(*slow, *fast))
    assert slow[0] / slow[1] == pytest.approx(2.0, rel=0.1)
    assert sum(slow) > 0.9 * slow_mb_s
    assert fast[0] > 0.9 * reserved_mb_s
    assert sum(fast) > 2 * slow_mb_s
    assert not are_limited(lab)


def waits_ms(lab: Lab) -> list[tuple[float, float]]:
    """What requests of the database took while it ran: seconds since its begin, and a mean over one of them in ms."""
    lines = lab.guest.check(["sh", "-c", f"cat {LOG}_clat.*.log"]).splitlines()
    words = [line.split(",") for line in lines]
    return [(float(each[0]) / 1000, float(each[1]) / 1e6) for each in words]


def test_a_backup_is_lent_what_a_database_leaves_only_while_that_need_not_wait(target: Target) -> None:
    """By a target that no queue can meet, and one that every volume meets.

    The kernel of user-mode Linux counts the time of requests in steps of 10 ms: those of a volume without a queue take
    none. So not the whole of what the database leaves is withheld, but as much as makes requests wait. By its own clock
    the database waits some milliseconds in any case, as limits leave no queue at the volume; there the requests of the
    backup would take a quarter of a second.
    """
    lab = target.lab
    share = {"enabled": "true", "may_boost": '["nobody.service"]'}
    seen: list[float] = []
    spans: list[tuple[float, float]] = []
    configure(lab, **share)
    begin(lab, BACKUP, DIRECT)
    begin(lab, DATABASE, f"{SMALL} --write_lat_log={LOG} --log_avg_msec=1000")
    begun_s = lab.uptime_s()
    for target_ms in (10_000, 0.01, 10_000):
        configure(lab, **share, latency_ms=f'{{ "{DATABASE}.service" = {target_ms} }}')
        seen.append(rates(lab, LONG_S)[1])
        now_s = lab.uptime_s() - begun_s
        spans.append((now_s - MEASURED_S, now_s))
    for name in (DATABASE, BACKUP):
        end(lab, name)
    waited = waits_ms(lab)
    waited_ms = [fmean(ms for at, ms in waited if begun <= at <= ended) for begun, ended in spans]
    print("backup {:.1f}, {:.1f}, {:.1f} MB/s, waits {:.1f}, {:.1f}, {:.1f} ms".format(*seen, *waited_ms))
    share_mb_s = OF_BACKING * lab.scaled.backing_bytes_s / MB / 2
    before, withheld, after = seen
    assert 0.85 * share_mb_s < withheld < min(before, after)
    assert max(waited_ms) < QUEUED_MS
    assert min(before, after) > 0.8 * 2 * share_mb_s
    assert not are_limited(lab)


@pytest.mark.parametrize("killed", ["main", "all"])
def test_no_limit_outlives_the_agent_that_set_it(target: Target, killed: str) -> None:
    """Killed alone, its guard removes them; killed with its guard, the next agent does, which does not share itself.

    Beside a load that is flushed all writes are limited, and nothing is shared.
    """
    lab = target.lab
    for name in (DATABASE, BACKUP):
        begin(lab, name, DIRECT)
    for wanted, may in (("idle", "nobody.service"), ("boosting", "*")):
        share = {"may_boost": f'["{may}"]'}
        configure(lab, **share, enabled="true")
        wait_for_limits(lab, wanted)
        lab.guest.write_config(lab.cloud, {"share": {**share, "enabled": "false"}})
        lab.guest.check(["systemctl", "kill", "--signal=KILL", f"--kill-whom={killed}", "elastiod"], timeout_s=CALL_S)
        lab.wait_until(lambda: not are_limited(lab), LIFTED_S, "limits to be lifted")
        lab.wait_until(lambda: lab.succeeds("elastio", "status"), CALL_S, "the next agent")
    for name in (DATABASE, BACKUP):
        end(lab, name)
    lab.wait_until(lambda: phase(lab) == "idle", RELEASED_S, "the release")
    assert not are_limited(lab)
