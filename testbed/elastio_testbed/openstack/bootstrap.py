"""The resources of a new cloud: service users, endpoints, volume types with QoS, a flavor, projects.

All functions are idempotent: each resource is looked up before it is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import openstack
from openstack.connection import Connection

from elastio_testbed.errors import LabError
from elastio_testbed.openstack.configure import KEYSTONE_URL, REGION
from elastio_testbed.polling import until

# Two projects, so that tests and experiments do not see each other's volumes.
PROJECT, DEMO_PROJECT, USER = "tenant", "demo", "agent"
FLAVOR = "lab.guest"
QUOTA = {"volumes": 20, "gigabytes": 200}
_SERVICE_USERS = ("placement", "glance", "nova", "neutron", "cinder")
_ENDPOINTS = (
    ("placement", "placement", "http://127.0.0.1:8778"),
    ("image", "glance", "http://127.0.0.1:9292"),
    ("compute", "nova", "http://127.0.0.1:8774/v2.1"),
    ("network", "neutron", "http://127.0.0.1:9696"),
    ("volumev3", "cinderv3", "http://127.0.0.1:8776/v3/%(project_id)s"),
    ("block-storage", "cinder", "http://127.0.0.1:8776/v3/%(project_id)s"),
)
_HYPERVISOR_S = 120.0
_HTTP_OK = 300


@dataclass(frozen=True, slots=True)
class VolumeType:
    """A volume type with a back end of its own and a QoS that QEMU enforces."""

    name: str
    bytes_s: int
    iops: int


# The bandwidths of the laboratory's demo under emulation: half of 33 and of 128 MB/s.
TYPES = (VolumeType("slow", 16_500_000, 4000), VolumeType("fast", 64_000_000, 16000))


def connect(password: str, user: str = "admin", project: str = "admin") -> Connection:
    """A connection of one of the laboratory's users, without settings from the caller's environment."""
    return openstack.connect(
        load_yaml_config=False,
        load_envvars=False,
        auth_type="password",
        auth_url=KEYSTONE_URL,
        username=user,
        password=password,
        project_name=project,
        user_domain_name="Default",
        project_domain_name="Default",
        region_name=REGION,
        compute_default_microversion="2.79",
        block_storage_default_microversion="3.60",
    )


def create_identity(cloud: Connection, password: str) -> None:
    """Create users, roles, projects and the catalogue. Needs Keystone only; the other services depend on it."""
    identity = cloud.identity
    service_project = identity.find_project("service") or identity.create_project(name="service", domain_id="default")
    service_role = identity.find_role("service") or identity.create_role(name="service")
    admin, member = identity.find_role("admin"), identity.find_role("member")
    for name in _SERVICE_USERS:
        user = identity.find_user(name) or identity.create_user(name=name, password=password, domain_id="default")
        for role in (admin, service_role):
            identity.assign_project_role_to_user(service_project, user, role)
    known = {service.type for service in identity.services()}
    for kind, name, url in _ENDPOINTS:
        if kind not in known:
            service = identity.create_service(name=name, type=kind)
            identity.create_endpoint(service_id=service.id, interface="public", url=url, region_id=REGION)
    user = identity.find_user(USER) or identity.create_user(name=USER, password=password, domain_id="default")
    for name in (PROJECT, DEMO_PROJECT):
        project = identity.find_project(name) or identity.create_project(name=name, domain_id="default")
        identity.assign_project_role_to_user(project, user, member)


def create_cloud(cloud: Connection) -> None:
    """Create volume types, flavor and quota when all services answer. Raises LabError without a hypervisor."""
    # Listing Neutron's ports fails with 500 until another query has configured its ORM: query once after each start.
    list(cloud.network.networks())
    for kind in TYPES:
        _volume_type(cloud, kind)
    for name in (PROJECT, DEMO_PROJECT):
        set_quota(cloud, QUOTA, name)
    _await_hypervisor(cloud)
    if cloud.compute.find_flavor(FLAVOR) is None:
        cloud.compute.create_flavor(name=FLAVOR, ram=768, vcpus=2, disk=5, is_public=True)


def set_quota(cloud: Connection, quota: Mapping[str, int], name: str = PROJECT) -> None:
    """Set a project's Cinder quota."""
    project = cloud.identity.find_project(name)
    _ok(cloud.block_storage.put(f"/os-quota-sets/{project.id}", json={"quota_set": dict(quota)}))


def _volume_type(cloud: Connection, kind: VolumeType) -> None:
    storage = cloud.block_storage
    if any(known.name == kind.name for known in storage.types()):
        return
    made = storage.create_type(name=kind.name, extra_specs={"volume_backend_name": kind.name})
    limits = {"consumer": "front-end", "total_bytes_sec": str(kind.bytes_s), "total_iops_sec": str(kind.iops)}
    answer = _ok(storage.post("/qos-specs", json={"qos_specs": {"name": f"qos-{kind.name}", **limits}}))
    _ok(storage.get(f"/qos-specs/{answer['qos_specs']['id']}/associate?vol_type_id={made.id}"))


def _await_hypervisor(cloud: Connection) -> None:
    """Wait until nova-compute has registered itself and the scheduler has mapped it to its cell."""
    if not until(lambda: bool(list(cloud.compute.hypervisors())), _HYPERVISOR_S):
        raise LabError(f"nova-compute has not registered a hypervisor after {_HYPERVISOR_S:.0f} s; see its log")


def _ok(response: Any) -> dict[str, Any]:
    if response.status_code >= _HTTP_OK:
        raise LabError(f"{response.request.method} {response.url}: {response.status_code} {response.text[:200]}")
    found: dict[str, Any] = response.json() if response.content else {}
    return found
