"""The laboratory's cloud for tests of the provider: what a tenant sees, and hands to make things go wrong.

The same tests run against the real services and against what was recorded from them; what the test itself learns
from the cloud (what is paid for, a stranger's volume) is then in the recording, too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from elastio.core.model import Serial, VolumeId, VolumeSpec
from elastio.units import GIB
from elastio_openstack.identity import Places
from elastio_openstack.provider import OpenstackProvider
from elastio_openstack.settings import parse
from elastio_openstack.volumes import serial_of
from elastio_testbed.openstack import content, services
from elastio_testbed.openstack.configure import REGION
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.openstack.front import Fault, Front
from elastio_testbed.openstack.lab import Lab

BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
# Recordings repeat a request to the letter, so the hour in a volume's metadata stands still.
WALL = 1_800_000_000.0
TYPES: Mapping[str, object] = {
    kind.name: {"bandwidth_mb_s": kind.bytes_s / 1e6, "iops": kind.iops, "price_per_gib_hour": price}
    for kind, price in zip(content.TYPES, (0.0001, 0.001), strict=True)
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
_HIDDEN = "hidden"  # in the place of a secret, where recordings are played


class Tenant:
    """Live: the project, its application credential and one running server of the laboratory's cloud."""

    def __init__(self, lab: Lab, server_id: str, project: str = content.PROJECT) -> None:
        self.lab, self.server_id, self._project = lab, server_id, project
        self.admin = content.connect(lab.password)
        self.cloud = content.connect(lab.password, content.USER, project)
        self.credential = self.new_credential()

    def new_credential(self, role: str = "member") -> Any:
        """An application credential with this role and nothing more."""
        user = self.cloud.current_user_id
        name = f"elastio-{time.time():.3f}"
        return self.cloud.identity.create_application_credential(user, name=name, roles=[{"name": role}])

    def volumes(self) -> list[dict[str, Any]]:
        """Every volume of the project, as Cinder shows them."""
        found: list[dict[str, Any]] = self.cloud.block_storage.get("/volumes/detail").json()["volumes"]
        return found

    def settle(self, seconds: float = _SETTLE_S) -> None:
        """Wait until no volume is between two states and Nova agrees with Cinder. Raises LabError after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            rows = self.volumes()
            held = {row["id"] for row in rows if row["attachments"]}
            path = f"/servers/{self.server_id}/os-volume_attachments"
            # A server that is gone holds nothing, and Cinder learns that a moment later.
            known = {row["volumeId"] for row in self.cloud.compute.get(path).json().get("volumeAttachments", ())}
            moving = [f"{row['id']} {row['status']}" for row in rows if row["status"] in _MOVING]
            if not moving and held == known:
                return
            if time.monotonic() > deadline:
                raise LabError(f"the cloud does not settle: {moving or held ^ known}")
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
        """Delete every volume of the project and give the quota back."""
        content.set_quota(self.admin, content.QUOTA, self._project)
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
    """One cloud under the contract: `tenant` None plays the front's cassette, else it is recorded."""

    spec = VolumeSpec(2 * GIB, 60.0)
    too_fast = VolumeSpec(10 * GIB, 1000.0)

    def __init__(self, front: Front, tenant: Tenant | None, folder: Path) -> None:
        self.front, self._tenant, self._folder = front, tenant, folder
        self._frozen: list[str] = []
        self._facts = self._noted(lambda t: {"server": t.server_id, "credential": t.credential.id})
        self.provider = self.open()

    def open(self, **settings: object) -> OpenstackProvider:
        """A provider that asks through the front with the tenant's application credential."""
        return self._open(self._write("clouds.yaml", self._clouds_text()), settings)

    def open_reader(self) -> OpenstackProvider:
        """One whose credential may only read."""
        made = self._tenant.new_credential("reader") if self._tenant else None
        known = self._noted(lambda _: made.id if made else "")
        text = clouds_text(self.front.auth_url(), known, made.secret if made else _HIDDEN)
        return self._open(self._write("reader.yaml", text), {})

    def open_without_project(self) -> OpenstackProvider:
        """One that logs in as the user and names no project."""
        password = self._tenant.lab.password if self._tenant else _HIDDEN
        auth = {"username": content.USER, "password": password, "user_domain_name": "Default"}
        text = _clouds("password", {"auth_url": self.front.auth_url(), **auth})
        return self._open(self._write("user.yaml", text), {})

    def _open(self, clouds_file: Path, settings: Mapping[str, object]) -> OpenstackProvider:
        known: dict[str, object] = {
            "cloud": "lab",
            "clouds_file": str(clouds_file),
            "instance_id": self._facts["server"],
            "types": TYPES,
            "price_source": "the laboratory's price list",
        }
        # Nothing is read of the machine that the test runs on, which may be a server of some cloud itself.
        nowhere = Places(*(self._folder / name for name in ("cloud-init", "drive", "dmi")))
        return OpenstackProvider(parse({**known, **settings}), BACKING, lambda: WALL, nowhere)

    def _clouds_text(self) -> str:
        secret = self._tenant.credential.secret if self._tenant else _HIDDEN
        return clouds_text(self.front.auth_url(), self._facts["credential"], secret)

    def _write(self, name: str, text: str) -> Path:
        """A new file each time, as an operator's editor makes it; left alone where it says so already."""
        path = self._folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            fresh = path.with_suffix(".new")
            fresh.touch(mode=0o600)
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(path)
        return path

    def settle(self) -> None:
        if self._tenant is not None:
            self._thaw()
            content.set_quota(self._tenant.admin, content.QUOTA)
            self._tenant.settle()

    def foreign(self, token: str = "") -> VolumeId:
        return VolumeId(self._noted(lambda tenant: _stranger(tenant, token)))

    def serial(self, volume_id: VolumeId) -> Serial:
        return serial_of(volume_id)

    def spoil(self, call: str, kind: str) -> None:
        if kind == "quota":
            self.limit(volumes=0)
            return
        status, body = _ANSWERS[kind]
        self.front.faults[:] = [Fault(*_PATHS[call], status, body)]

    def limit(self, **quota: int) -> None:
        """The project's real quota, until the next `settle`."""
        if self._tenant is not None:
            content.set_quota(self._tenant.admin, quota)

    def dawdle(self) -> None:
        """The volume service stands still until `settle`."""
        self.freeze(services.CINDER_VOLUME.name)

    def freeze(self, service: str) -> None:
        """One service stands still until `settle`, as on a machine that hangs."""
        if self._tenant is not None:
            for member in self._tenant.lab.daemons.family(service):
                member.suspend()
            self._frozen.append(service)

    def kill(self, service: str) -> None:
        """One service ends at once; `revive` starts it again."""
        if self._tenant is not None:
            self._tenant.lab.daemons.kill(service)

    def revive(self, service: str) -> None:
        if self._tenant is not None:
            self._tenant.lab.start(service)

    def reserve(self, volume_id: VolumeId, server_id: str) -> None:
        """Cinder keeps the volume for a server that Nova was never asked to attach it to."""
        if self._tenant is not None:
            body = {"attachment": {"volume_uuid": volume_id, "instance_uuid": server_id}}
            storage = self._tenant.cloud.block_storage
            answer = storage.post("/attachments", json=body, microversion="3.27")
            if answer.status_code != HTTPStatus.OK:
                raise LabError(f"Cinder does not reserve the volume: {answer.text}")

    def mark(self, volume_id: VolumeId, status: str) -> None:
        """What an operator may do to a volume's status, and a failure of a back end does."""
        if self._tenant is not None:
            action = {"os-reset_status": {"status": status}}
            self._tenant.admin.block_storage.post(f"/volumes/{volume_id}/action", json=action)

    def revoke(self) -> None:
        """The application credential is deleted; `renew` and `replace_credential` make another."""
        if self._tenant is not None:
            credential = self._tenant.credential
            self._tenant.cloud.identity.delete_application_credential(self._tenant.cloud.current_user_id, credential)

    def renew(self) -> OpenstackProvider:
        """A provider with a new application credential."""
        self.replace_credential()
        self.provider.close()
        self.provider = self.open()
        return self.provider

    def replace_credential(self) -> None:
        """A new application credential in the clouds.yaml that the provider has read."""
        if self._tenant is not None:
            self._tenant.credential = self._tenant.new_credential()
        self._facts["credential"] = self._noted(lambda t: t.credential.id)
        self._write("clouds.yaml", self._clouds_text())

    def await_status(self, volume_id: VolumeId, *wanted: str, seconds: float = 180.0) -> str:
        """Wait until Cinder shows one of these; what it shows then. Raises LabError."""
        return str(self._noted(lambda t: t.await_status(volume_id, wanted, seconds)))

    def paid(self) -> set[VolumeId]:
        return set(self._noted(lambda t: sorted(row["id"] for row in t.volumes() if row["status"] != "deleting")))

    def close(self) -> None:
        self.provider.close()
        if self._tenant is not None:
            self._thaw()
            self._tenant.clear()

    def _thaw(self) -> None:
        while self._tenant is not None and self._frozen:
            for member in self._tenant.lab.daemons.family(self._frozen.pop()):
                with contextlib.suppress(ProcessLookupError):
                    member.resume()

    def _noted(self, ask: Any) -> Any:
        if self._tenant is None:
            return self.front.cassette.noted()
        answer = ask(self._tenant)
        self.front.cassette.note(answer)
        return answer


def clouds_text(auth_url: str, credential_id: str, secret: str) -> str:
    """A clouds.yaml with the one entry `lab`; whoever writes it keeps it from others."""
    auth = {
        "auth_url": auth_url,
        "application_credential_id": credential_id,
        "application_credential_secret": secret,
    }
    return _clouds("v3applicationcredential", auth)


def _clouds(kind: str, auth: Mapping[str, str]) -> str:
    entry = {"auth_type": kind, "auth": dict(auth), "region_name": REGION, "interface": "public"}
    return str(yaml.safe_dump({"clouds": {"lab": entry}}))


def _stranger(tenant: Tenant, token: str) -> str:
    """A volume in the same project that belongs to another server's agent."""
    labels = {"elastio:owner": "other", "elastio:cycle": token}
    body = {"volume": {"size": 1, "volume_type": "slow", "name": f"elastio-{token}", "metadata": labels}}
    volume_id: str = tenant.cloud.block_storage.post("/volumes", json=body).json()["volume"]["id"]
    tenant.settle()
    return volume_id
