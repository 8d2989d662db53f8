"""Cinder volumes behind the agent's port (entry point `openstack` of the group `elastio.providers`).

Level-triggered: each method requests what its name says. If the cloud refuses because the state is already as
requested, a GET confirms it and the method returns; any other refusal becomes an error of `elastio.errors`. Nothing
here waits for a state, sleeps or retries: the caller polls and backs off. Nova attaches and detaches (since
CVE-2023-2088 Cinder refuses a tenant's own changes to a server's attachment); Cinder creates, shows and deletes.
Importing this module does not import the SDK.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias
from urllib.parse import quote as quoted

from elastio.core.foreign import ForeignVolume, state_of_others
from elastio.core.model import Identity, Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import ConfigError, NotOursError, ProviderError, QuotaError, RefusedError, TransientError
from elastio_openstack import backing, identity, queries, speeds, takeover, volumes
from elastio_openstack.catalog import CINDER, Catalog
from elastio_openstack.purchases import LastPurchase
from elastio_openstack.queries import NOT_FOUND
from elastio_openstack.responses import object_in, parsing
from elastio_openstack.settings import Settings, parse
from elastio_openstack.stuck import DetachTimer

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

NOVA = "compute"
MAX_TOKEN = 200  # of the 255 characters of a volume's name
_LEAVING = (VolumeState.DETACHING, VolumeState.AVAILABLE, VolumeState.DELETING, VolumeState.GONE)
_IN_USE = (VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.DETACHING, VolumeState.ELSEWHERE)
OnRefused: TypeAlias = Callable[[VolumeId, ProviderError], None]
_log = logging.getLogger(__name__)


class OpenstackProvider:
    """The `elastio.ports.VolumeProvider` of one Nova server and one backing device."""

    def __init__(
        self,
        settings: Settings,
        backing_uuid: str,
        wall: Callable[[], float] = time.time,
        places: identity.Places | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """`wall`, `places` and `seconds` differ from the defaults only in tests."""
        self.settings = settings
        self._backing_uuid = backing_uuid
        self._wall, self._places = wall, places
        self._purchase = LastPurchase(seconds)
        self.sent_before = self._purchase.sent_before
        self._detach_timer = DetachTimer(settings.detach_deadline_s)
        self._lock = threading.Lock()
        self._cloud: Cloud | None = None
        self._who: identity.ServerIdentity | None = None
        self._identity: Identity | None = None
        self.catalog = Catalog(settings, self.cloud)
        # Volumes seen with this server's metadata, and those that this process bought: saves calls.
        self._ours: set[VolumeId] = set()
        self._bought: set[VolumeId] = set()

    # --- the port ----------------------------------------------------------------------------------------

    def identify(self) -> Identity:
        """From the machine itself and Nova's record of the server; requested once, then cached."""
        if self._identity is None:
            me = self.who()
            server = self.server()
            with parsing("a server"):
                flavor = (server.get("flavor") or {}).get("original_name") or ""
            self._identity = Identity(
                cloud="openstack",
                instance_id=me.server_id,
                zone=me.zone or str(server.get("OS-EXT-AZ:availability_zone") or ""),
                region=self.cloud().region(),
                instance_type=self.settings.instance_type or str(flavor),
                bandwidth_limit_mb_s=self.settings.bandwidth_limit_mb_s,
            )
        return self._identity

    def quote(self, spec: VolumeSpec) -> Quote:
        """Whole GiB of the slowest type with the bandwidth, within the project's total quota."""
        limit = self.settings.bandwidth_limit_mb_s
        if limit is not None and spec.bandwidth_mb_s > limit:
            raise RefusedError(
                f"{spec.bandwidth_mb_s:.0f} MB/s is more than this server provides; the limit is {limit:g} MB/s.",
                code="instance.bandwidth",
            )
        speed, size_gib = speeds.choose(spec, self.catalog.types())
        most = self.catalog.limits().get("maxTotalVolumeGigabytes", -1)
        if 0 <= most < size_gib:
            text = f"{size_gib} GiB is more than the project's quota of {most} GiB."
            raise QuotaError(text, code="quota.gigabytes")
        return speeds.quote(speed, size_gib, self.settings)

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """A volume named after `token`. Cinder has no client token, so a volume of that name is looked up first.

        A purchase without an answer is not repeated at once (`purchases`). Two creates with one token at the same time
        may buy two volumes. Both have the token, `list_owned` returns both, and later creates return the older one.
        """
        if not (0 < len(token) <= MAX_TOKEN and token.isascii()):
            text = f"A token has 1 to {MAX_TOKEN} ASCII characters; {token!r} does not."
            raise RefusedError(text, code="token.invalid")
        bought = self._find_by_token(token)
        if bought is None:
            self._purchase.require_over(token)
            with self._purchase.sending(token):
                response = self.cloud().call(CINDER, "POST", "/volumes", self.create_request(token, spec, tags))
                bought = self._volume(object_in(response, "volume"))
            self._bought.add(bought.id)
        return bought

    def attach(self, volume_id: VolumeId) -> None:
        """Request it from Nova. The device name in its response means nothing: the disk is found by its serial.

        For a volume that was just bought this is the only call. One that was taken over may have been taken over by
        another server since, which has a copy of the same backing device: only the last owner tells whose it is.
        """
        if volume_id not in self._bought & self._ours and self._require_own(volume_id) is None:
            raise _unknown(volume_id)
        body = {"volumeAttachment": {"volumeId": volume_id}}
        self._request(volume_id, self._on_refused_attach, NOVA, "POST", self._attachments_path(), body)

    def detach(self, volume_id: VolumeId) -> None:
        """Request it from Nova, never by force. Deletes Cinder's record of an attachment that Nova does not know."""
        if self._require_own(volume_id) is None:
            return
        path = f"{self._attachments_path()}/{quoted(volume_id)}"
        self._request(volume_id, self._on_refused_detach, NOVA, "DELETE", path)

    def delete(self, volume_id: VolumeId) -> None:
        """DELETE, after a check that the volume has this agent's metadata. Never by force."""
        shown = self._require_own(volume_id)
        if shown is None or shown.get("status") == "deleting":
            return
        self._request(volume_id, self._on_refused_delete, CINDER, "DELETE", f"/volumes/{quoted(volume_id)}")

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume now, or None; FOREIGN or UNLABELED if its metadata do not name this server."""
        shown = queries.show_volume(self.cloud(), volume_id)
        return None if shown is None else self._volume(shown)

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume with this server's metadata, whatever its backing device."""
        return tuple(
            self._volume(shown)
            for shown in queries.list_volumes(self.cloud(), {volumes.OWNER_KEY: self.who().server_id})
        )

    # --- optional protocols, checks ------------------------------------------------------------------------

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """Set one key of the volume's metadata; the others are kept."""
        if volume_id not in self._ours and self._require_own(volume_id) is None:
            return _require_stored_tag(volume_id, tag)
        body = {"metadata": {volumes.STATE_KEY: tag.value}}
        try:
            self.cloud().call(CINDER, "POST", f"/volumes/{quoted(volume_id)}/metadata", body)
        except ProviderError as error:
            if error.code != NOT_FOUND:
                raise
            _require_stored_tag(volume_id, tag)

    def foreign(self, volume_id: VolumeId) -> ForeignVolume | None:
        """The volume, and what Nova says of the server that its metadata name."""
        shown = queries.show_volume(self.cloud(), volume_id)
        return None if shown is None else takeover.foreign(self.cloud(), shown, self.server())

    def list_for_backing(self) -> tuple[Volume, ...]:
        """Every volume of this project with the metadata of the backing device, whoever the owner is."""
        return takeover.list_for_backing(self.cloud(), self._backing_uuid, self.who().server_id)

    def take_over(self, volume_id: VolumeId) -> Volume:
        """Both keys of the metadata in one request; the others are kept."""
        return self._volume(takeover.take_over(self.cloud(), volume_id, self.who().server_id))

    def close(self) -> None:
        """Close the connections and drop the token, if there are any."""
        with self._lock:
            if self._cloud is not None:
                self._cloud.close()

    def bandwidth_of(self, serial: Serial) -> float | None:
        """That of the volume's type, from the settings or QoS specs; None if neither has it."""
        return backing.bandwidth(self.cloud(), self.server(), serial, self.catalog)

    def warm_up(self) -> None:
        """Import the SDK and log in now. Raises errors of `elastio.errors`."""
        self.cloud().login()

    def who(self) -> identity.ServerIdentity:
        """This server; requested once, then cached."""
        with self._lock:
            if self._who is None:
                self._who = identity.who(self.settings, self._places)
            return self._who

    def cloud(self) -> Cloud:
        """The client, with the SDK imported on first use."""
        with self._lock:
            if self._cloud is None:
                from elastio_openstack.client import Cloud  # noqa: PLC0415  # saves an idle agent 38 MB

                self._cloud = Cloud(self.settings)
            return self._cloud

    def server(self) -> dict[str, Any]:
        """Nova's record of this server. Raises RefusedError if this project has no such server."""
        me = self.who().server_id
        try:
            return object_in(self.cloud().call(NOVA, "GET", f"/servers/{quoted(me)}"), "server")
        except ProviderError as error:
            if error.code != NOT_FOUND:
                raise
            raise RefusedError(
                f"The credential's project has no server {me}; use an application credential of this server's project.",
                code="credential.other-project",
            ) from error

    def create_request(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> dict[str, Any]:
        """The body of the volume's POST."""
        speed, size_gib = speeds.choose(spec, self.catalog.types())
        request: dict[str, Any] = {
            "name": volumes.name_of(token),
            "size": size_gib,
            "volume_type": speed.name,
            "metadata": {
                **self.settings.extra_metadata,
                **tags,
                volumes.OWNER_KEY: self.who().server_id,
                volumes.CYCLE_KEY: token,
                volumes.BACKING_KEY: self._backing_uuid,
                volumes.BANDWIDTH_KEY: f"{speed.at(size_gib):g}",
                volumes.EXPIRES_KEY: volumes.expires(self._wall(), self.settings.lifetime_s),
                volumes.STATE_KEY: VolumeTag.CLEAN.value,
            },
        }
        if self.settings.availability_zone:
            request["availability_zone"] = self.settings.availability_zone
        return {"volume": request}

    # --- internal ------------------------------------------------------------------------------------------

    def _request(self, volume_id: VolumeId, on_refused: OnRefused, *call: Any) -> None:
        """A changing call. If it is refused, `on_refused` checks the volume: it returns if that is done already."""
        try:
            self.cloud().call(*call)
        except ProviderError as error:
            if error.code not in ("400", NOT_FOUND, "409"):
                raise
            on_refused(volume_id, error)

    def _find_by_token(self, token: str) -> Volume | None:
        """The oldest volume of this token that is not being deleted."""
        ours = {volumes.OWNER_KEY: self.who().server_id, volumes.CYCLE_KEY: token}
        alive = [
            row
            for row in queries.list_volumes(self.cloud(), ours, name=volumes.name_of(token))
            if row.get("status") != "deleting"
        ]
        alive.sort(key=lambda row: (str(row.get("created_at")), str(row.get("id"))))
        return self._volume(alive[0]) if alive else None

    def _require_own(self, volume_id: VolumeId) -> dict[str, Any] | None:
        """The volume as it is now. Raises NotOursError if it does not have this server's metadata."""
        shown = queries.show_volume(self.cloud(), volume_id)
        if shown is not None and not self._is_own(shown):
            raise NotOursError(
                f"{volume_id} does not have this server's metadata {volumes.OWNER_KEY}; it was not changed.",
                code="volume.foreign",
            )
        return shown

    def _is_own(self, shown: dict[str, Any]) -> bool:
        with parsing("a volume"):
            volume_id, labels = VolumeId(str(shown["id"])), shown.get("metadata") or {}
            is_own: bool = labels.get(volumes.OWNER_KEY) == self.who().server_id
        (self._ours.add if is_own else self._ours.discard)(volume_id)
        return is_own

    def _volume(self, shown: dict[str, Any]) -> Volume:
        incomplete = volumes.is_taken(shown) and not shown.get("attachments")
        is_own = self._is_own(shown)
        records = queries.attachment_records(self.cloud(), str(shown["id"])) if incomplete and is_own else []
        with parsing("a volume"):
            seen = volumes.volume_of(shown, self.who().server_id, records)
        if not is_own:
            owner = (shown.get("metadata") or {}).get(volumes.OWNER_KEY)
            return replace(seen, state=state_of_others(seen.state, owner))
        # The state that it has for Nova, so that the agent requests the detach again.
        return replace(seen, state=VolumeState.ATTACHED) if self._detach_timer.is_stuck(seen) else seen

    def _attachments_path(self) -> str:
        return f"/servers/{quoted(self.who().server_id)}/os-volume_attachments"

    def _on_refused_attach(self, volume_id: VolumeId, error: ProviderError) -> None:
        seen = self.describe(volume_id)
        if seen is None:
            raise _unknown(volume_id) from error
        if seen.state in (VolumeState.ATTACHING, VolumeState.ATTACHED):
            return
        if seen.state is VolumeState.ELSEWHERE:
            text = f"{volume_id} is attached to another server; detach it there first."
            raise RefusedError(text, code="volume.elsewhere") from error
        if seen.state in (VolumeState.CREATING, VolumeState.DETACHING):
            text = f"{volume_id} is {seen.state} and cannot be attached yet; the call will be repeated."
            raise TransientError(text, code="volume.not-ready") from error
        raise error

    def _on_refused_detach(self, volume_id: VolumeId, error: ProviderError) -> None:
        shown = queries.show_volume(self.cloud(), volume_id)
        if shown is None:
            return
        seen = self._volume(shown)
        if seen.state is VolumeState.ATTACHED and shown["status"] == "detaching":
            self._roll_back_detach(volume_id, error)
        if seen.state in _LEAVING or seen.state in (VolumeState.CREATING, VolumeState.ELSEWHERE):
            return
        if seen.state is VolumeState.ERROR and error.code == NOT_FOUND:
            return
        if seen.state is VolumeState.ATTACHING and error.code == NOT_FOUND:
            self._delete_attachment_records(volume_id, error)
            return
        if seen.state is VolumeState.ATTACHING:
            text = f"{volume_id} is still {shown['status']} and cannot be detached yet; the call will be repeated."
            raise TransientError(text, code="volume.not-ready") from error
        raise error

    def _roll_back_detach(self, volume_id: VolumeId, error: ProviderError) -> NoReturn:
        """Reset Cinder's status after a detach that Nova gave up: see `stuck`."""
        _log.warning("%s: detaching for too long; the status is reset", volume_id)
        self.cloud().call(CINDER, "POST", f"/volumes/{quoted(volume_id)}/action", {"os-roll_detaching": {}})
        self._detach_timer.forget(volume_id)
        text = f"{volume_id} was stuck in detaching; the detach will be requested again."
        raise TransientError(text, code="volume.detach-lost") from error

    def _delete_attachment_records(self, volume_id: VolumeId, error: ProviderError) -> None:
        """Delete Cinder's records of an attachment that Nova does not know, which a tenant may do."""
        own = [
            r for r in queries.attachment_records(self.cloud(), volume_id) if r.get("instance") == self.who().server_id
        ]
        if not own:
            raise RefusedError(
                f"{volume_id} is reserved for an unknown server; ask the cloud's operator to run "
                f"`openstack volume set --state available {volume_id}`.",
                code="volume.reserved",
            ) from error
        for record in own:
            record_id = str(record.get("id"))
            _log.warning("%s: attachment %s is unknown to Nova and will be deleted", volume_id, record_id)
            self.cloud().call(CINDER, "DELETE", f"/attachments/{quoted(record_id)}")

    def _on_refused_delete(self, volume_id: VolumeId, error: ProviderError) -> None:
        shown = queries.show_volume(self.cloud(), volume_id)
        if shown is None:
            return
        seen = self._volume(shown)
        if seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        if seen.state in _IN_USE:
            text = f"{volume_id} is {seen.state} and cannot be deleted; detach it first."
            raise RefusedError(text, code="volume.in-use") from error
        if shown.get("status") == volumes.FAILED_DELETE:
            raise RefusedError(
                f"{volume_id} is in error_deleting: Cinder could not delete it; ask the cloud's operator to run "
                f"`openstack volume set --state error {volume_id}`, then it will be deleted.",
                code="volume.delete-failed",
            ) from error
        raise error


def _require_stored_tag(volume_id: VolumeId, tag: VolumeTag) -> None:
    """For an unknown volume: if it is gone, it needs no `clean`. Raises TransientError for another value, because a new
    volume that is not visible yet may become a cache."""
    if tag is not VolumeTag.CLEAN:
        text = f"{volume_id} is not known to Cinder and cannot be tagged {tag}; the call will be repeated."
        raise TransientError(text, code="volume.unknown")


def _unknown(volume_id: VolumeId) -> TransientError:
    text = f"{volume_id} is not known to Cinder (yet); the call will be repeated."
    return TransientError(text, code="volume.unknown")


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> OpenstackProvider:
    """The provider for `[provider.openstack]`; makes no call yet. Raises ConfigError."""
    if find_spec("openstack") is None:
        text = "The provider openstack needs the OpenStack SDK; in a checkout, run pip install '.[openstack]'."
        raise ConfigError(text, code="sdk.missing")
    return OpenstackProvider(parse(settings), backing_uuid)
