"""The access rules for an application credential, checked against recorded requests of the provider."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RULES = json.loads((ROOT / "docs/reference/openstack-access-rules.json").read_text())
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
        ("DELETE", "/v2.1/servers/90dc6d2b-7bbe-4414-b6f9-44f9b2441187"),
        ("POST", "/v2.1/servers/90dc6d2b-7bbe-4414-b6f9-44f9b2441187/action"),
    ],
)
def test_the_server_itself_cannot_be_touched(method: str, path: str) -> None:
    assert not any(matches(rule, "compute", method, path) for rule in RULES)
