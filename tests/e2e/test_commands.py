"""The commands in the guest: on a healthy machine, and with invalid input.

Invalid input results in one sentence and an exit code, and changes nothing.
"""

from __future__ import annotations

import json

import pytest

from elastio.control.exit_codes import Exit
from tests.e2e.conftest import Lab

pytestmark = pytest.mark.guest

CONFIG = "/etc/elastio/elastio.toml"


def test_doctor_finds_no_failure_on_a_healthy_machine(lab: Lab) -> None:
    code, output = lab.run("elastio", "doctor", "--json", timeout_s=120)
    findings = json.loads(output)
    failed = [f for f in findings if f["verdict"] == "fail"]
    assert (code, failed) == (0, [])
    # The checks include bcache with its cutoffs, the cloud and the daemon.
    assert {"bcache", "cutoffs", "kernel", "tools"} <= {f["name"] for f in findings}
    assert "ok" in {f["verdict"] for f in findings if f["name"] == "cgroups"}


def test_init_detects_cloud_device_and_instance(lab: Lab) -> None:
    code, output = lab.run(
        "elastio",
        "init",
        "--print",
        "--provider",
        "aws",
        "--bandwidth",
        "16.5",
        "--cache-bandwidth",
        "64",
        timeout_s=120,
    )
    assert code == 0, output
    assert f'backing_uuid = "{lab.guest.backing_uuid}"' in output


def backing_node(lab: Lab) -> str:
    return f"/dev/{lab.guest.disk_name()}"


def first_mib(lab: Lab, device: str) -> str:
    return lab.guest.check(["sh", "-c", f"head -c 1048576 {device} | sha256sum"])


def test_the_service_is_sandboxed(lab: Lab) -> None:
    # In tenths: 3.1 ("OK") is what a daemon that manages block devices can reach.
    code, output = lab.run("systemd-analyze", "security", "--no-pager", "--threshold=31", "elastiod.service")
    assert code == 0, output.splitlines()[-1]


def is_one_sentence(output: str) -> bool:
    return len(output.splitlines()) == 1 and output.startswith(("elastio: ", "elastiod: "))


def test_a_device_in_use_is_not_made_a_backing_device(lab: Lab) -> None:
    adaptive = "/dev/bcache0"
    for device in (adaptive, backing_node(lab)):
        before = first_mib(lab, backing_node(lab))
        code, output = lab.run("elastio", "device", "create", device, "--yes")
        assert code == Exit.FAILED
        assert is_one_sentence(output), output
        assert first_mib(lab, backing_node(lab)) == before


def test_a_device_that_holds_a_filesystem_is_not_made_a_backing_device(lab: Lab) -> None:
    lab.guest.check(["sh", "-c", "truncate -s 64M /var/tmp/fs.img && mkfs.ext4 -q -F /var/tmp/fs.img"])
    device = lab.guest.check(["losetup", "--find", "--show", "/var/tmp/fs.img"])
    before = first_mib(lab, device)
    code, output = lab.run("elastio", "device", "create", device, "--yes")
    assert code == Exit.FAILED
    assert is_one_sentence(output), output
    assert first_mib(lab, device) == before
    lab.guest.check(["losetup", "--detach", device])


def test_a_cache_larger_than_the_cap_is_refused_and_nothing_is_bought(lab: Lab) -> None:
    bought = len(lab.cloud.volumes())
    code, output = lab.run("elastio", "boost", "--size", "500")
    assert code == Exit.REFUSED
    assert is_one_sentence(output), output
    assert lab.guest.status()["phase"] == "idle"
    assert len(lab.cloud.volumes()) == bought


def test_a_second_agent_for_the_device_is_refused(lab: Lab) -> None:
    code, output = lab.run("elastiod")
    assert code == Exit.FAILED
    assert is_one_sentence(output), output
    assert lab.guest.check(["systemctl", "is-active", "elastiod"]) == "active"


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("s/^bandwidth_mb_s = .*/bandwidth_mb_s = -1/", "bandwidth_mb_s"),
        ("/^backing_uuid/d", "backing_uuid"),
        ("s/^backing_uuid/backing_uid/", "backing_uid"),
    ],
)
def test_an_invalid_configuration_prevents_the_start_and_its_key_is_named(lab: Lab, change: str, key: str) -> None:
    lab.guest.check(["sh", "-c", f"sed '{change}' {CONFIG} > /var/tmp/wrong.toml"])
    for command in (
        ("elastio", "config", "check", "/var/tmp/wrong.toml"),
        ("elastiod", "--config", "/var/tmp/wrong.toml"),
    ):
        code, output = lab.run(*command)
        assert code == Exit.CONFIG
        assert is_one_sentence(output), output
        assert key in output


def test_a_stopped_daemon_cannot_be_reached(lab: Lab) -> None:
    lab.guest.check(["systemctl", "stop", "elastiod"], timeout_s=90)
    code, output = lab.run("elastio", "status")
    assert code == Exit.UNREACHABLE
    assert is_one_sentence(output), output
    lab.guest.check(["systemctl", "start", "elastiod"], timeout_s=90)
    lab.wait_for_rest()


def test_without_credentials_nothing_is_bought_and_the_reason_is_shown(lab: Lab) -> None:
    bought = len(lab.cloud.volumes())
    lab.cloud.faults.revoke_credentials("AuthFailure")
    code, output = lab.run("elastio", "boost")
    assert code == 0, output
    status = lab.guest.wait_for(lambda s: s["phase"] == "idle" and s["last_error"], 120, "the boost to be refused")
    assert "AuthFailure" in status["last_error"]
    assert len(lab.cloud.volumes()) == bought
    lab.cloud.faults.clear()
