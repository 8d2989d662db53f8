"""The SSM document has the form that Data Lifecycle Manager asks for, and its script keeps a snapshot consistent.

The form is that of the EBS User Guide (application-consistent snapshots, custom SSM document) and of the Systems
Manager User Guide (data elements of documents, schema 2.2). No service of AWS has judged the document.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import botocore.session
import jsonschema
import pytest
import yaml
from botocore.validate import ParamValidator

from tests.sim_agent import SimAgent

FOLDER = Path(__file__).parents[3] / "integrations/aws-dlm"
DOCUMENT: dict[str, Any] = yaml.safe_load((FOLDER / "ssm-document.yaml").read_text())
POLICY: dict[str, Any] = json.loads((FOLDER / "policy-details.json").read_text())
NAME = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "object",
    "required": ["schemaVersion", "parameters", "mainSteps"],
    "additionalProperties": False,
    "properties": {
        "schemaVersion": {"const": "2.2"},
        "description": TEXT,
        "parameters": {
            "type": "object",
            "required": ["executionId", "command"],
            "propertyNames": NAME,
            "additionalProperties": {
                "type": "object",
                "required": ["type", "default", "description"],
                "additionalProperties": False,
                "properties": {
                    "type": {"const": "String"},
                    "default": TEXT,
                    "description": TEXT,
                    "allowedPattern": {"type": "string", "format": "regex"},
                    "allowedValues": {"type": "array", "items": TEXT},
                },
                "oneOf": [{"required": ["allowedPattern"]}, {"required": ["allowedValues"]}],
            },
        },
        "mainSteps": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["action", "name", "inputs"],
                "additionalProperties": False,
                "properties": {
                    "action": {"const": "aws:runShellScript"},
                    "name": NAME,
                    "precondition": {"const": {"StringEquals": ["platformType", "Linux"]}},
                    "inputs": {
                        "type": "object",
                        "required": ["runCommand"],
                        "additionalProperties": False,
                        "properties": {
                            "timeoutSeconds": {"type": "string", "pattern": "^[0-9]+$"},
                            "runCommand": {"type": "array", "items": TEXT},
                        },
                    },
                },
            },
        },
    },
}
# Stand-ins for systemd: a timer is a file, as long as it is active.
TIMER = {
    "systemd-run": "touch timer",
    "systemctl": "case $1 in is-active) test -e timer ;; stop) rm -f timer ;; esac",
    "fsfreeze": "exit 0",
}


def script(command: str, **values: str) -> str:
    """What the SSM agent runs: each parameter's value in its place, if the document allows it."""
    found = {**{name: given["default"] for name, given in DOCUMENT["parameters"].items()}, **values, "command": command}
    for name, value in found.items():
        given = DOCUMENT["parameters"][name]
        assert (
            re.search(given["allowedPattern"], value) if "allowedPattern" in given else value in given["allowedValues"]
        )
    text = "\n".join(DOCUMENT["mainSteps"][0]["inputs"]["runCommand"])
    return re.sub(r"\{\{ (\w+) \}\}", lambda match: found[match[1]], text)


class Instance:
    def __init__(self, agent: SimAgent) -> None:
        self.agent = agent
        (agent.folder / "timer").unlink(missing_ok=True)
        for name, body in TIMER.items():
            agent.stand_in(name, body)

    def run(self, command: str, elastio: str | None = None, **values: str) -> int:
        named = {} if elastio is None else {"ELASTIO": elastio}
        return self.agent.run("sh", "-c", script(command, **values), **named).returncode

    def changes(self) -> list[str]:
        """What was done to the filesystem and to the timer."""
        return [" ".join(call.split()[:2]) for call in self.agent.calls() if "is-active" not in call]


@pytest.fixture
def instance(agent: SimAgent) -> Instance:
    return Instance(agent)


def test_the_document_has_the_form_of_a_command_document() -> None:
    jsonschema.validate(DOCUMENT, SCHEMA, format_checker=jsonschema.FormatChecker())


def test_data_lifecycle_manager_can_call_it() -> None:
    command, execution = (DOCUMENT["parameters"][name] for name in ("command", "executionId"))
    assert {"pre-script", "post-script"} <= set(command["allowedValues"])
    for value in ("None", "0a1B2c3d-0000-4000-8000-0123456789ab"):
        assert re.search(execution["allowedPattern"], value)
    # Only these two are given.
    assert all("default" in given for given in DOCUMENT["parameters"].values())


def test_every_parameter_of_the_script_is_declared() -> None:
    text = "\n".join(DOCUMENT["mainSteps"][0]["inputs"]["runCommand"])
    assert set(re.findall(r"\{\{ *(\w+) *\}\}", text)) == set(DOCUMENT["parameters"]) - {"executionId"}


@pytest.mark.parametrize("value", ["/data'; reboot; '", "/da ta", "data", "", "/data,", "/data,none", "/a,;reboot"])
def test_no_mount_point_becomes_a_command(value: str) -> None:
    assert not re.search(DOCUMENT["parameters"]["mountPoint"]["allowedPattern"], value)


def test_the_policy_is_one_that_the_api_accepts() -> None:
    model = botocore.session.get_session().get_service_model("dlm")
    shape = model.operation_model("CreateLifecyclePolicy").input_shape
    asked = {"ExecutionRoleArn": "arn:aws:iam::123456789012:role/dlm", "Description": "elastio", "State": "ENABLED"}
    assert not ParamValidator().validate({**asked, "PolicyDetails": POLICY}, shape).has_errors()
    (schedule,) = POLICY["Schedules"]
    (called,) = schedule["CreateRule"]["Scripts"]
    assert (called["Stages"], called["ExecuteOperationOnScriptFailure"]) == (["PRE", "POST"], False)
    assert int(DOCUMENT["parameters"]["flushSeconds"]["default"]) < called["ExecutionTimeout"] <= 120


def test_a_snapshot_is_taken_of_a_volume_without_cache_on_a_frozen_filesystem(instance: Instance) -> None:
    assert instance.agent.run("elastio", "boost", "--wait").returncode == 0
    assert instance.run("pre-script") == 0
    status = instance.agent.status()
    assert (status.phase, status.hold is not None and status.hold.safe) == ("idle", True)
    # The timer that thaws is there before the filesystem is frozen.
    assert instance.changes() == ["systemd-run --quiet", "fsfreeze --freeze"]
    assert instance.run("post-script") == 0
    assert instance.changes() == ["systemctl stop", "fsfreeze --unfreeze"]
    assert instance.agent.status().hold is None


def test_a_filesystem_need_not_be_frozen(instance: Instance) -> None:
    assert instance.run("pre-script", mountPoint="none") == 0
    assert instance.run("post-script", mountPoint="none") == 0
    assert instance.changes() == []


def test_all_devices_are_quiesced_unless_one_is_named(instance: Instance) -> None:
    instance.agent.stand_in("records")
    records = str(instance.agent.folder / "bin/records")
    assert instance.run("pre-script", records, mountPoint="none") == 0
    assert instance.run("post-script", records, mountPoint="none", device="data") == 0
    assert instance.agent.calls() == [
        "records quiesce --all --timeout 100 --hold 300",
        "records unquiesce --device=data",
    ]


def test_every_mount_point_is_frozen_or_none(instance: Instance) -> None:
    assert instance.run("pre-script", mountPoint="/data,/srv/db") == 0
    assert instance.changes() == ["systemd-run --quiet", "fsfreeze --freeze", "fsfreeze --freeze"]
    assert instance.run("post-script", mountPoint="/data,/srv/db") == 0
    assert instance.changes() == ["systemctl stop", "fsfreeze --unfreeze", "fsfreeze --unfreeze"]
    instance.agent.stand_in("fsfreeze", '[ "$*" != "--freeze /srv/db" ]')
    assert instance.run("pre-script", mountPoint="/data,/srv/db") == 201
    assert instance.changes()[-2:] == ["fsfreeze --unfreeze", "systemctl stop"]
    assert instance.agent.status().hold is None


def test_a_hold_that_ended_before_spoils_the_snapshot_and_thaws(instance: Instance) -> None:
    assert instance.run("pre-script") == 0
    instance.agent.run("elastio", "unquiesce")
    assert instance.run("post-script") == 203
    assert instance.changes()[-1] == "fsfreeze --unfreeze"


def test_a_filesystem_that_was_thawed_before_spoils_the_snapshot(instance: Instance) -> None:
    assert instance.run("pre-script") == 0
    (instance.agent.folder / "timer").unlink()
    assert instance.run("post-script") == 203
    assert instance.agent.status().hold is None


def test_a_second_pre_script_does_not_freeze_again(instance: Instance) -> None:
    assert instance.run("pre-script") == 0
    instance.changes()
    assert instance.run("pre-script") == 204
    assert instance.changes() == []


def test_a_filesystem_that_cannot_be_frozen_leaves_no_hold_and_no_timer(instance: Instance) -> None:
    instance.agent.stand_in("fsfreeze", "exit 1")
    assert instance.run("pre-script") == 201
    assert instance.agent.status().hold is None
    assert not (instance.agent.folder / "timer").exists()


def test_an_agent_that_does_not_answer_is_told_apart(instance: Instance) -> None:
    instance.agent.stand_in("silent", "exit 4")
    silent = str(instance.agent.folder / "bin/silent")
    assert [instance.run(name, elastio=silent) for name in ("pre-script", "dry-run")] == [206, 206]
    assert "fsfreeze --freeze" not in instance.changes()


def test_a_dry_run_changes_nothing(instance: Instance) -> None:
    assert instance.run("dry-run") == 0
    assert (instance.changes(), instance.agent.status().hold) == ([], None)
