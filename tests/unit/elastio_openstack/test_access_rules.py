"""The access rules for an application credential, checked against recorded requests of the provider."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.control.exit_codes import Exit
from elastio_openstack.access_rules import to_json
from elastio_openstack.cli import openstack

ROOT = Path(__file__).parents[3]
RULES = json.loads(to_json())
SERVER = "90dc6d2b-7bbe-4414-b6f9-44f9b2441187"
Golden = Callable[[str, str], None]
RECORDED = sorted((ROOT / "tests/contract/recorded").glob("*.json"))
SERVICES = {"nova": "compute", "cinder": "volumev3"}
# Not requested from a cloud without QoS specs.
UNSEEN = {("volumev3", "GET", "/v3/*/qos-specs")}


def matches(rule: dict[str, str], service: str, method: str, path: str) -> bool:
    """As Keystone's middleware reads a rule: `*` is one part of a path. SERVER_ID stands for this server's id."""
    pattern = "/".join("[^/]+" if part in ("*", "SERVER_ID") else re.escape(part) for part in rule["path"].split("/"))
    return (rule["service"], rule["method"]) == (service, method) and re.fullmatch(pattern, path) is not None


def recorded() -> set[tuple[str, str, str]]:
    """Service, method and path of every recorded request except logins."""
    found = set()
    for path in RECORDED:
        for entry in json.loads(path.read_text()):
            if entry.get("service") in SERVICES:
                found.add((SERVICES[entry["service"]], entry["method"], entry["path"].split("?")[0]))
    return found


def test_every_recorded_request_is_allowed() -> None:
    refused = {request for request in recorded() if not any(matches(rule, *request) for rule in RULES)}
    assert RECORDED
    assert refused == set()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: f"{rule['method']} {rule['path']}")
def test_every_rule_is_needed(rule: dict[str, str]) -> None:
    name = rule["service"], rule["method"], rule["path"]
    assert any(matches(rule, *request) for request in recorded()) != (name in UNSEEN)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v2.1/servers"),
        ("DELETE", f"/v2.1/servers/{SERVER}"),
        ("POST", f"/v2.1/servers/{SERVER}/action"),
    ],
)
def test_the_server_itself_cannot_be_touched(method: str, path: str) -> None:
    assert not any(matches(rule, "compute", method, path) for rule in RULES)


def test_the_reference_has_what_the_command_prints() -> None:
    result = CliRunner().invoke(openstack, ["role", "--rules"])
    assert result.stdout == (ROOT / "docs/reference/openstack-access-rules.json").read_text()


def test_the_rules_are_for_one_server_and_the_service_of_the_catalog() -> None:
    options = ["role", "--rules", "--server", SERVER, "--cinder", "block-storage"]
    rules = json.loads(CliRunner().invoke(openstack, options).stdout)
    assert {rule["service"] for rule in rules} == {"compute", "block-storage"}
    assert all(f"/servers/{SERVER}" in rule["path"] for rule in rules if rule["service"] == "compute")


def test_role_and_credential_are_explained(golden: Golden) -> None:
    result = CliRunner().invoke(openstack, ["role", "--server", SERVER])
    assert result.exit_code == Exit.OK
    golden("openstack_role.txt", result.stdout)


@pytest.mark.parametrize("server", ["web1", "", "90dc6d2b/../x"])
def test_a_name_is_not_the_id_of_a_server(server: str) -> None:
    result = CliRunner().invoke(openstack, ["role", "--server", server])
    assert (result.exit_code, result.stdout) == (Exit.USAGE, "")
