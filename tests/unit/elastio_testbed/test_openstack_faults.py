"""Fault injection on OpenStack without an OpenStack: the table, the verdict on a run, the command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from elastio_testbed.cli import main
from elastio_testbed.faults.kinds import PHASES, STEPS
from elastio_testbed.openstack import services
from elastio_testbed.openstack.fault_target import errors_in, open_intents
from elastio_testbed.openstack.faults import KINDS, ServiceFaultResult, summary

SOUND = ServiceFaultResult("quota-reached", acknowledged_records=100, came=True, met=True, fault_s=20.0, rest_s=40.0)


def test_triggers_are_records_of_the_journal() -> None:
    assert {kind.trigger for kind in KINDS.values()} <= {*STEPS, *PHASES}


def test_both_apis_the_volume_service_the_credential_and_the_quota_have_faults() -> None:
    names = " ".join(KINDS)
    for daemon in (services.CINDER_API, services.NOVA_API, services.CINDER_VOLUME):
        assert f"{daemon.name}-stopped" in names
    assert {"credential-revoked", "quota-reached"} <= set(KINDS)


def test_fault_is_reported_only_where_doctor_and_cinder_show_it() -> None:
    attach, credential = KINDS["cinder-volume-stopped-at-attach"], KINDS["credential-revoked"]
    assert attach.is_reported("", ["attaching"])
    assert not attach.is_reported("", ["in-use"])
    assert not attach.is_reported("", [])
    assert credential.is_reported("...; make a new application credential and put it into clouds.yaml.", [])
    assert not credential.is_reported("", [])


@pytest.mark.parametrize(
    "changes",
    [
        {"lost_records": 1},
        {"left_volumes": ("3f2b",)},
        {"open_intents": ("DeleteVolume",)},
        {"felt": True},
        {"stuck": "GuestTimeout"},
        {"came": False},
        {"met": False},
        {"acknowledged_records": 0},
    ],
)
def test_run_is_sound_only_when_nothing_was_lost_or_left(changes: dict[str, Any]) -> None:
    assert summary([SOUND])["sound"]
    assert not summary([SOUND, replace(SOUND, **changes)])["sound"]
    assert not summary([])["sound"]


def record(kind: str, action: str, error: str = "") -> dict[str, object]:
    return {"kind": kind, "action": action, "error": error}


def test_intent_without_an_outcome_is_open_and_each_error_is_listed_once() -> None:
    journal = [
        record("intent", "CreateVolume"),
        record("outcome", "CreateVolume", "no answer"),
        record("intent", "CreateVolume"),
        record("intent", "DetachCacheSet"),
        record("outcome", "DetachCacheSet"),
    ]
    assert open_intents(journal) == ("CreateVolume",)
    assert open_intents([*journal, record("outcome", "CreateVolume")]) == ()
    journal = [record("outcome", "CreateVolume", text) for text in ("no answer", "", "no answer", "beyond a quota")]
    assert errors_in(journal) == ("no answer", "beyond a quota")


def test_command_lists_its_faults_and_runs_nothing() -> None:
    done = CliRunner().invoke(main, ["cloud", "openstack", "faults", "--list"])
    assert done.exit_code == 0
    assert [line.split(":")[0] for line in done.output.splitlines()] == list(KINDS)


def test_command_refuses_an_unknown_kind_and_names_the_known_ones() -> None:
    done = CliRunner().invoke(main, ["cloud", "openstack", "faults", "--kind", "flood"])
    assert (done.exit_code, len(done.output.splitlines())) == (1, 1)
    assert all(name in done.output for name in ("flood", *KINDS))
