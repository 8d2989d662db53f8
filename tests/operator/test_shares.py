"""Services that share one adaptive device: who may cause a boost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.faults.fault_target import CALL_S, NOISE
from elastio_testbed.faults.lab import Lab
from elastio_testbed.image import build_guest_image
from elastio_testbed.machine import DATA
from elastio_testbed.scratch import scratch_folder
from tests.faults.conftest import SEED, Target

pytestmark = pytest.mark.guest

WRITES = f"while :; do dd if={NOISE} of={DATA}/$NAME bs=1M conv=notrunc status=none; sync {DATA}/$NAME; done"
BACKUP, DATABASE = "backup", "database"
# Several times as long as an agent takes to see a load and to ask for a volume.
LONG_S, BOOSTED_S, RELEASED_S = 20.0, 60.0, 180.0


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with scratch_folder("elastio-shares-") as name, Lab(build_guest_image(), Path(name), SEED) as lab:
        lab.prepare()
        yield Target(lab)


def configure(lab: Lab, **share: str) -> None:
    """Put this `[share]` in force."""
    lab.guest.write_config(lab.cloud, {"share": share})
    lab.guest.check(["systemctl", "reload", "elastiod"], timeout_s=CALL_S)


def begin(lab: Lab, name: str) -> None:
    """A service that writes as fast as the device takes it, until `end`."""
    lab.guest.check(["systemd-run", "--collect", f"--unit={name}", f"--setenv=NAME={name}", "sh", "-c", WRITES])


def end(lab: Lab, name: str) -> None:
    lab.guest.check(["systemctl", "stop", name], timeout_s=CALL_S)


def phase(lab: Lab) -> str:
    return str(lab.guest.status()["phase"])


def test_only_a_service_with_the_right_causes_a_boost(target: Target) -> None:
    lab = target.lab
    configure(lab, no_boost='["backup.service"]')
    begin(lab, BACKUP)
    lab.wait_until(lambda: lab.guest.status()["load"]["write_mb_s"] > 5, CALL_S, "the load")
    until_s = lab.uptime_s() + LONG_S
    utilization = []
    while lab.uptime_s() < until_s:
        status = lab.guest.status()
        assert status["phase"] == "idle", status["load"]
        utilization.append(status["load"]["utilization"])
    assert max(utilization) < 0.1, "nothing of it counts"
    groups = json.loads(lab.guest.check(["elastio", "shares", "--json"], timeout_s=CALL_S))["groups"]
    assert {g["cgroup"]: g["boosts"] for g in groups}["system.slice/backup.service"] is False
    begin(lab, DATABASE)
    lab.wait_until(lambda: phase(lab) == "boosting", BOOSTED_S, "the boost")
    end(lab, DATABASE)
    lab.wait_until(lambda: phase(lab) == "idle", RELEASED_S, "the release beside the backup")
    end(lab, BACKUP)
    target.lab.settle(60)
    assert lab.leaked() == ()
