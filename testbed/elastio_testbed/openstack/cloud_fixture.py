"""The laboratory's cloud as a fixture for tests of the provider: a tenant's view, and fault injection.

The same tests run against the real services and against recordings of them. Values that a test itself gets from the
cloud (billed volumes, the volume of another owner) are recorded as notes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from elastio import whole_file
from elastio.core.model import Serial, VolumeId, VolumeSpec
from elastio.units import GIB
from elastio_openstack.identity import Places
from elastio_openstack.provider import OpenstackProvider
from elastio_openstack.settings import parse
from elastio_openstack.volumes import serial_of
from elastio_testbed.errors import LabError
from elastio_testbed.openstack import bootstrap, services
from elastio_testbed.openstack.configure import REGION
from elastio_testbed.openstack.lab import Lab
from elastio_testbed.openstack.proxy import ApiProxy, ProxyFault

BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
# A recording matches identical requests only, so the time in a volume's metadata is constant.
WALL = 1_800_000_000.0
TYPES: Mapping[str, object] = {
    kind.name: {"bandwidth_mb_s": kind.bytes_s / 1e6, "iops": kind.iops, "price_per_gib_hour": price}
    for kind, price in zip(bootstrap.TYPES, (0.0001, 0.001), strict=True)
}
_PATHS = {
    "create": ("cinder", "POST", "/volumes"),
    "attach": ("nova", "POST", "/os-volume_attachments"),
    "detach": ("nova", "DELETE", "/os-volume_attachments/"),
    "delete": ("cinder", "DELETE", "/volumes/"),
    "describe": ("cinder", "GET", "/volumes/"),
    "list_owned": ("cinder", "GET", "/volumes/detail"),
}
_ANSWERS: Mapping[str, tuple[int, dict[str, Any]]] = {
    "throttled": (429, {"overLimit": {"code": 429, "message": "This request was rate-limited."}}),
    "auth": (403, {"forbidden": {"code": 403, "message": "Policy doesn't allow this to be performed."}}),
    "refused": (400, {"badRequest": {"code": 400, "message": "Invalid input received."}}),
    "lost": (0, {}),
}
_MOVING = ("creating", "downloading", "reserved", "attaching", "detaching", "deleting")
_SETTLE_S = 90.0
_HIDDEN = "hidden"  # replaces secrets when recordings are played


class Tenant:
    """Live: the project, its application credential and one running server of the laboratory's cloud."""

    def __init__(self, lab: Lab, server_id: str, project: str = bootstrap.PROJECT) -> None:
        self.lab, self.server_id, self._project = lab, server_id, project
        self.admin = bootstrap.connect(lab.password)
        self.cloud = bootstrap.connect(lab.password, bootstrap.USER, project)
        self.credential = self.new_credential()

    def new_credential(self, role: str = "member") -> Any:
        """A new application credential with this role only."""
        user = self.cloud.current_user_id
        name = f"elastio-{time.time():.3f}"
        return self.cloud.identity.create_application_credential(user, name=name, roles=[{"name": role}])

    def revoke_credential(self) -> None:
        """Delete the application credential."""
        self.cloud.identity.delete_application_credential(self.cloud.current_user_id, self.credential)

    def replace_credential(self) -> None:
        """Use a new application credential from now on."""
        self.credential = self.new_credential()

    def volumes(self) -> list[dict[str, Any]]:
        """All volumes of the project, as Cinder shows them."""
        found: list[dict[str, Any]] = self.cloud.block_storage.get("/volumes/detail").json()["volumes"]
        return found

    def settle(self, seconds: float = _SETTLE_S) -> None:
        """Wait until no volume is in a transition and Nova agrees with Cinder. Raises LabError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            rows = self.volumes()
            held = {row["id"] for row in rows if row["attachments"]}
            path = f"/servers/{self.server_id}/os-volume_attachments"
            # A deleted server has no volumes; Cinder learns of it a moment later.
            known = {row["volumeId"] for row in self.cloud.compute.get(path).json().get("volumeAttachments", ())}
            moving = [f"{row['id']} {row['status']}" for row in rows if row["status"] in _MOVING]
            if not moving and held == known:
                return
            if time.monotonic() > deadline:
                raise LabError(f"volumes are still in a transition after {seconds:.0f} s: {moving or held ^ known}")
            time.sleep(0.2)

    def await_status(self, volume_id: str, wanted: Sequence[str], seconds: float) -> str:
        """Wait until Cinder shows one of these statuses. Raises LabError."""
        deadline = time.monotonic() + seconds
        while True:
            shown = self.cloud.block_storage.get(f"/volumes/{volume_id}").json()
            status = shown["volume"]["status"] if "volume" in shown else "gone"
            if status in wanted:
                return str(status)
            if time.monotonic() > deadline:
                raise LabError(f"{volume_id} is {status} after {seconds:.0f} s, not {' or '.join(wanted)}")
            time.sleep(0.5)

    def clear(self) -> None:
        """Delete all volumes of the project and restore its quota."""
        bootstrap.set_quota(self.admin, bootstrap.QUOTA, self._project)
        self.settle()
        for row in self.volumes():
            for attachment in row["attachments"]:
                server = attachment["server_id"]
                self.cloud.compute.delete(f"/servers/{server}/os-volume_attachments/{row['id']}")
        self.settle()
        for row in self.volumes():
            if row["status"].startswith("error"):
                action = {"os-reset_status": {"status": "error", "attach_status": "detached"}}
                self.admin.block_storage.post(f"/volumes/{row['id']}/action", json=action)
            self.cloud.block_storage.delete(f"/volumes/{row['id']}")
        self.settle()


class OpenstackCloud:
    """The cloud of the contract suite. With `tenant` None the proxy plays its cassette, else it records."""

    spec = VolumeSpec(2 * GIB, 60.0)
    too_fast = VolumeSpec(10 * GIB, 1000.0)

    def __init__(self, proxy: ApiProxy, tenant: Tenant | None, folder: Path) -> None:
        self.proxy, self._tenant, self._folder = proxy, tenant, folder
        self._suspended: list[str] = []
        self._facts = self._noted(lambda t: {"server": t.server_id, "credential": t.credential.id})
        self.provider = self.open()

    def open(self, **settings: object) -> OpenstackProvider:
        """A provider that uses the proxy and the tenant's application credential."""
        return self._open(self._write("clouds.yaml", self._clouds_text()), settings)

    def open_reader(self) -> OpenstackProvider:
        """A provider with a credential of the role reader."""
        made = self._tenant.new_credential("reader") if self._tenant else None
        known = self._noted(lambda _: made.id if made else "")
        text = clouds_text(self.proxy.auth_url(), known, made.secret if made else _HIDDEN)
        return self._open(self._write("reader.yaml", text), {})

    def open_without_project(self) -> OpenstackProvider:
        """A provider that logs in with the user's password and without a project."""
        password = self._tenant.lab.password if self._tenant else _HIDDEN
        auth = {"username": bootstrap.USER, "password": password, "user_domain_name": "Default"}
        text = _clouds("password", {"auth_url": self.proxy.auth_url(), **auth})
        return self._open(self._write("user.yaml", text), {})

    def _open(self, clouds_file: Path, settings: Mapping[str, object]) -> OpenstackProvider:
        known: dict[str, object] = {
            "cloud": "lab",
            "clouds_file": str(clouds_file),
            "instance_id": self._facts["server"],
            "types": TYPES,
            "price_source": "the laboratory's price list",
        }
        # Nothing is read from the machine that runs the test, which may itself be a server of some cloud.
        nowhere = Places(*(self._folder / name for name in ("cloud-init", "drive", "dmi")))
        return OpenstackProvider(parse({**known, **settings}), BACKING, lambda: WALL, nowhere)

    def _clouds_text(self) -> str:
        secret = self._tenant.credential.secret if self._tenant else _HIDDEN
        return clouds_text(self.proxy.auth_url(), self._facts["credential"], secret)

    def _write(self, name: str, text: str) -> Path:
        """Replace the file, as an operator's editor does, unless it has this text already."""
        path = self._folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            whole_file.replace(path, text.encode(), mode=0o600)
        return path

    def settle(self) -> None:
        if self._tenant is not None:
            self._resume_all()
            bootstrap.set_quota(self._tenant.admin, bootstrap.QUOTA)
            self._tenant.settle()

    def foreign(self, token: str = "") -> VolumeId:
        return VolumeId(self._noted(lambda tenant: _create_foreign(tenant, token)))

    def serial(self, volume_id: VolumeId) -> Serial:
        return serial_of(volume_id)

    def inject(self, call: str, kind: str) -> None:
        if kind == "quota":
            self.limit(volumes=0)
            return
        status, body = _ANSWERS[kind]
        self.proxy.faults[:] = [ProxyFault(*_PATHS[call], status, body)]

    def limit(self, **quota: int) -> None:
        """Set the project's quota until the next `settle`."""
        if self._tenant is not None:
            bootstrap.set_quota(self._tenant.admin, quota)

    def delay_creation(self) -> None:
        """Suspend the volume service until `settle`."""
        self.freeze(services.CINDER_VOLUME.name)

    def freeze(self, service: str) -> None:
        """Suspend one service until `settle`, as on a machine that hangs."""
        if self._tenant is not None:
            self._tenant.lab.daemons.suspend(service)
            self._suspended.append(service)

    def kill(self, service: str) -> None:
        """Kill one service; `revive` starts it again."""
        if self._tenant is not None:
            self._tenant.lab.daemons.kill(service)

    def revive(self, service: str) -> None:
        if self._tenant is not None:
            self._tenant.lab.start(service)

    def reserve(self, volume_id: VolumeId, server_id: str) -> None:
        """Reserve the volume in Cinder for a server, without an attachment in Nova."""
        if self._tenant is not None:
            body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": server_id}}
            storage = self._tenant.cloud.block_storage
            answer = storage.post("/attachments", json=body, microversion="3.27")
            if answer.status_code != HTTPStatus.OK:
                raise LabError(f"Cinder refuses to reserve the volume: {answer.text}")

    def set_status(self, volume_id: VolumeId, status: str) -> None:
        """Set a volume's status, as an operator may do and as a failed back end does."""
        if self._tenant is not None:
            action = {"os-reset_status": {"status": status}}
            self._tenant.admin.block_storage.post(f"/volumes/{volume_id}/action", json=action)

    def revoke(self) -> None:
        """Delete the application credential; `renew` and `replace_credential` create another."""
        if self._tenant is not None:
            self._tenant.revoke_credential()

    def renew(self) -> OpenstackProvider:
        """A provider with a new application credential."""
        self.replace_credential()
        self.provider.close()
        self.provider = self.open()
        return self.provider

    def replace_credential(self) -> None:
        """Write a new application credential to the clouds.yaml that the provider has read."""
        if self._tenant is not None:
            self._tenant.replace_credential()
        self._facts["credential"] = self._noted(lambda t: t.credential.id)
        self._write("clouds.yaml", self._clouds_text())

    def await_status(self, volume_id: VolumeId, *wanted: str, seconds: float = 180.0) -> str:
        """Wait until Cinder shows one of these statuses; returns it. Raises LabError."""
        return str(self._noted(lambda t: t.await_status(volume_id, wanted, seconds)))

    def billed_volumes(self) -> set[VolumeId]:
        return set(self._noted(lambda t: sorted(row["id"] for row in t.volumes() if row["status"] != "deleting")))

    def close(self) -> None:
        self.provider.close()
        if self._tenant is not None:
            self._resume_all()
            self._tenant.clear()

    def _resume_all(self) -> None:
        while self._tenant is not None and self._suspended:
            self._tenant.lab.daemons.resume(self._suspended.pop())

    def _noted(self, ask: Any) -> Any:
        if self._tenant is None:
            return self.proxy.cassette.noted()
        answer = ask(self._tenant)
        self.proxy.cassette.note(answer)
        return answer


def clouds_text(auth_url: str, credential_id: str, secret: str) -> str:
    """A clouds.yaml with the single entry `lab`. It contains a secret: write it with mode 0600."""
    auth = {
        "auth_url": auth_url,
        "application_credential_id": credential_id,
        "application_credential_secret": secret,
    }
    return _clouds("v3applicationcredential", auth)


def _clouds(kind: str, auth: Mapping[str, str]) -> str:
    entry = {"auth_type": kind, "auth": dict(auth), "region_name": REGION, "interface": "public"}
    return str(yaml.safe_dump({"clouds": {"lab": entry}}))


def _create_foreign(tenant: Tenant, token: str) -> str:
    """Create a volume in the same project that belongs to another server's agent; returns its id."""
    labels = {"elastio:owner": "other", "elastio:cycle": token}
    body = {"volume": {"size": 1, "volume_type": "slow", "name": f"elastio-{token}", "metadata": labels}}
    volume_id: str = tenant.cloud.block_storage.post("/volumes", json=body).json()["volume"]["id"]
    tenant.settle()
    return volume_id
