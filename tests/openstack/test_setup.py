"""`elastio init` and `doctor` in a guest that Nova runs."""

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
    guest = runner.subject().guest
    text = guest.check(list(INIT), timeout_s=CALL_S)
    found = schema.parse(tomllib.loads(text))
    assert (found.provider.name, found.device.backing_uuid) == ("openstack", guest.backing_uuid)
    assert f"Instance: {guest.instance_id} (lab.guest) in nova, openstack." in text


def test_doctor_finds_nothing_wrong_with_the_cloud(runner: Runner) -> None:
    done = runner.subject().guest.vm.agent.run(["elastio", "doctor", "--json"], timeout_s=CALL_S)
    verdicts = {row["name"]: row["verdict"] for row in json.loads(done.text)}
    assert {name: verdicts.get(f"OpenStack {name}") for name in CHECKS} == dict.fromkeys(CHECKS, "ok")


def test_doctor_names_a_server_that_the_firmware_contradicts(runner: Runner) -> None:
    subject = runner.subject()
    other = "22222222-2222-4222-8222-222222222222"
    with subject.configured({"provider.openstack": {"instance_id": f'"{other}"'}}):
        failed = subject.failed_checks()
    assert (
        f"names the server {other}, but the firmware of this one says {subject.guest.instance_id}"
        in (failed["OpenStack identity"])
    )
