"""The calls that the provider makes, as access rules for an application credential. Pure, and the only place for them.

Keystone's middleware compares service, method and path of a request; `*` is one part of a path.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

SERVER = "SERVER_ID"  # stands for the id of the server
NOVA, CINDER = "compute", "volumev3"
# What most catalogs call the block storage service, and what newer ones do.
CINDER_NAMES = (CINDER, "block-storage")


@dataclass(frozen=True, slots=True)
class AccessRule:
    """`purpose` is for people."""

    service: str
    method: str
    path: str
    purpose: str


RULES = (
    AccessRule(NOVA, "GET", f"/v2.1/servers/{SERVER}", "flavor and zone of the server, ids of its volumes"),
    AccessRule(NOVA, "POST", f"/v2.1/servers/{SERVER}/os-volume_attachments", "attach a cache volume"),
    AccessRule(NOVA, "DELETE", f"/v2.1/servers/{SERVER}/os-volume_attachments/*", "detach it"),
    AccessRule(CINDER, "GET", "/v3/*/limits", "room in the quota"),
    AccessRule(CINDER, "GET", "/v3/*/types", "volume types"),
    AccessRule(CINDER, "GET", "/v3/*/qos-specs", "their bandwidth; most clouds refuse it"),
    AccessRule(CINDER, "GET", "/v3/*/volumes/detail", "volumes of this agent, and of its backing device"),
    AccessRule(CINDER, "GET", "/v3/*/volumes/*", "state of one volume"),
    AccessRule(CINDER, "POST", "/v3/*/volumes", "buy a cache volume"),
    AccessRule(CINDER, "POST", "/v3/*/volumes/*/metadata", "tag it dirty or clean"),
    AccessRule(CINDER, "POST", "/v3/*/volumes/*/action", "reset a detach that Nova gave up"),
    AccessRule(CINDER, "DELETE", "/v3/*/volumes/*", "delete it"),
    AccessRule(CINDER, "GET", "/v3/*/attachments", "records of incomplete attachments"),
    AccessRule(CINDER, "DELETE", "/v3/*/attachments/*", "delete one that Nova does not know"),
)


def to_json(server_id: str = SERVER, cinder: str = CINDER) -> str:
    """The rules as `openstack application credential create --access-rules` reads them, one a line."""
    rows = (
        json.dumps(
            {
                "service": cinder if rule.service == CINDER else rule.service,
                "method": rule.method,
                "path": rule.path.replace(SERVER, server_id),
            }
        )
        for rule in RULES
    )
    return "[\n  " + ",\n  ".join(rows) + "\n]\n"
