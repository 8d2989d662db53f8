"""`elastio init` and `doctor` in a guest of Nova."""

from __future__ import annotations

import json
import tomllib

import pytest

from elastio.config import schema
from elastio_testbed.openstack.faults import Runner

pytestmark = pytest.mark.guest

INIT = ("elastio", "init", "--print", "--bandwidth", "16.5", "--cache-bandwidth", "64")
CHECKS = ("identity", "credential", "server", "volumes", "volume types", "quota")
CALL_S = 180.0


def test_init_recognises_cloud_server_and_backing_device(runner: Runner) -> None:
    guest = runner.target().guest
    text = guest.check(list(INIT), timeout_s=CALL_S)
    found = schema.parse(tomllib.loads(text))
    assert (found.provider.name, found.device.backing_uuid) == ("openstack", guest.backing_uuid)
    assert all(word in text for word in (guest.instance_id, "lab.guest", "nova"))


def test_doctor_reports_no_problem_with_the_cloud(runner: Runner) -> None:
    done = runner.target().guest.vm.agent.run(["elastio", "doctor", "--json"], timeout_s=CALL_S)
    verdicts = {row["name"]: row["verdict"] for row in json.loads(done.text)}
    assert {name: verdicts.get(f"OpenStack {name}") for name in CHECKS} == dict.fromkeys(CHECKS, "ok")


def test_doctor_names_a_server_that_the_firmware_contradicts(runner: Runner) -> None:
    target = runner.target()
    other = "22222222-2222-4222-8222-222222222222"
    with target.configured({"provider.openstack": {"instance_id": f'"{other}"'}}):
        failed = target.failed_checks()
    assert all(server in failed["OpenStack identity"] for server in (other, target.guest.instance_id))
