"""Cinder volumes as the agent's port wants them (entry point `openstack` of the group `elastio.providers`).

Level-triggered: each method asks for what its name says; an answer that means "already so" is success after a
look, anything else becomes an error of `elastio.errors`. Nothing here waits for a state, sleeps or repeats: the
caller looks again and paces itself. Nova attaches and detaches (Cinder refuses a tenant's own changes to a server's
attachment, since CVE-2023-2088); Cinder creates, shows and deletes. Importing this module imports no SDK.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote as quoted
from urllib.parse import urlencode

from elastio.core.model import Identity, Quote, Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import ConfigError, NotOursError, ProviderError, RefusedError, TransientError
from elastio_openstack import identity, speeds, volumes
from elastio_openstack.answers import read_as, rows, table
from elastio_openstack.catalog import CINDER, Catalog
from elastio_openstack.settings import Settings, parse
from elastio_openstack.stuck import Detaches

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

NOVA = "compute"
MAX_TOKEN = 200  # of the 255 characters of a volume's name
PAGE_SIZE = 100
MAX_PAGES = 100
_ON_ITS_WAY = (VolumeState.DETACHING, VolumeState.AVAILABLE, VolumeState.DELETING, VolumeState.GONE)
_HELD = (VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.DETACHING, VolumeState.ELSEWHERE)
_log = logging.getLogger(__name__)


class OpenstackProvider:
    """The `elastio.ports.VolumeProvider` of one Nova server and one backing device."""

    def __init__(
        self,
        settings: Settings,
        backing_uuid: str,
        wall: Callable[[], float] = time.time,
        places: identity.Places | None = None,
    ) -> None:
        """`wall` and `places` are other than the defaults only for tests."""
        self.settings = settings
        self._backing_uuid = backing_uuid
        self._wall, self._places = wall, places
        self._detaches = Detaches(settings.detach_deadline_s)
        self._lock = threading.Lock()
        self._cloud: Cloud | None = None
        self._who: identity.Who | None = None
        self._identity: Identity | None = None
        self.catalog = Catalog(settings, self.cloud)
        # Seen with this server's metadata, which nobody changes: what is asked on the way to a boost relies on it.
        self._ours: set[VolumeId] = set()

    # --- the port ----------------------------------------------------------------------------------------

    def identify(self) -> Identity:
        """From the machine itself and Nova's record of the server; asked once, then remembered."""
        if self._identity is None:
            me = self.who()
            server = self.server()
            with read_as("a server"):
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
        """Whole GiB of the slowest type that carries the bandwidth, within the project's whole quota."""
        limit = self.settings.bandwidth_limit_mb_s
        if limit is not None and spec.bandwidth_mb_s > limit:
            raise RefusedError(
                f"{spec.bandwidth_mb_s:.0f} MB/s is more than this server carries; it is {limit:g} MB/s."
            )
        speed, size_gib = speeds.choose(spec, self.catalog.types())
        most = self.catalog.limits().get("maxTotalVolumeGigabytes", -1)
        if 0 <= most < size_gib:
            raise RefusedError(f"{size_gib} GiB is more than this project may ever have; its quota is {most} GiB.")
        return speeds.quote(speed, size_gib, self.settings)

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        """A volume named after `token`. Cinder has no client token, so what the name shows is looked at first.

        Two creates of one token at the same time may buy two volumes; both carry the token, the older one is
        returned from then on, and `list_owned` shows both.
        """
        if not (0 < len(token) <= MAX_TOKEN and token.isascii()):
            raise RefusedError(f"A token is 1 to {MAX_TOKEN} ASCII characters long, not {token!r}.")
        bought = self._bought(token)
        if bought is not None:
            return bought
        answer = self.cloud().call(CINDER, "POST", "/volumes", self.create_request(token, spec, tags))
        return self._volume(table(answer, "volume"))

    def attach(self, volume_id: VolumeId) -> None:
        """Ask Nova; the device name it would answer with means nothing, the disk is found by its serial.

        Whose the volume is was seen before, as a rule: then this asks for nothing more.
        """
        if volume_id not in self._ours and self._own(volume_id) is None:
            raise TransientError(f"{volume_id} is not known to Cinder (yet); it is looked at again.")
        try:
            body = {"volumeAttachment": {"volumeId": volume_id}}
            self.cloud().call(NOVA, "POST", self._attachments_path(), body)
        except ProviderError as error:
            if status_of(error) not in (400, 404, 409):
                raise
            self._judge_attach(volume_id, error)

    def detach(self, volume_id: VolumeId) -> None:
        """Ask Nova, never by force. An attachment that Cinder keeps and Nova has forgotten is given back."""
        if self._own(volume_id) is None:
            return
        try:
            self.cloud().call(NOVA, "DELETE", f"{self._attachments_path()}/{quoted(volume_id)}")
        except ProviderError as error:
            if status_of(error) not in (400, 404, 409):
                raise
            self._judge_detach(volume_id, error)

    def delete(self, volume_id: VolumeId) -> None:
        """DELETE after a look that the volume carries this agent's metadata. Nothing is ever forced."""
        shown = self._own(volume_id)
        if shown is None or shown.get("status") == "deleting":
            return
        try:
            self.cloud().call(CINDER, "DELETE", f"/volumes/{quoted(volume_id)}")
        except ProviderError as error:
            if status_of(error) not in (400, 404, 409):
                raise
            self._judge_delete(volume_id, error)

    def describe(self, volume_id: VolumeId) -> Volume | None:
        """The volume now, or None; FOREIGN where its metadata do not name this server."""
        shown = self._shown(volume_id)
        return None if shown is None else self._volume(shown)

    def list_owned(self) -> tuple[Volume, ...]:
        """Every volume with this server's metadata, of whatever backing device."""
        return tuple(self._volume(shown) for shown in self.pages({volumes.OWNER_KEY: self.who().server_id}))

    # --- beside the port -----------------------------------------------------------------------------------

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """Sets one key of the volume's metadata and leaves the others."""
        if volume_id not in self._ours and self._own(volume_id) is None:
            return _require_kept(volume_id, tag)
        body = {"metadata": {volumes.STATE_KEY: tag.value}}
        try:
            self.cloud().call(CINDER, "POST", f"/volumes/{quoted(volume_id)}/metadata", body)
        except ProviderError as error:
            if status_of(error) != 404:
                raise
            _require_kept(volume_id, tag)

    def close(self) -> None:
        """Drop connections and token; harmless when there are none."""
        with self._lock:
            if self._cloud is not None:
                self._cloud.close()

    def warm_up(self) -> None:
        """Import the SDK and log in now. Raises errors of `elastio.errors`."""
        self.cloud().login()

    def who(self) -> identity.Who:
        """This server, asked once and remembered."""
        with self._lock:
            if self._who is None:
                self._who = identity.who(self.settings, self._places)
            return self._who

    def cloud(self) -> Cloud:
        """The calls, with the SDK imported on first use."""
        with self._lock:
            if self._cloud is None:
                from elastio_openstack.client import Cloud  # noqa: PLC0415  # 38 MB that an idle agent can do without

                self._cloud = Cloud(self.settings)
            return self._cloud

    def server(self) -> dict[str, Any]:
        """Nova's record of this server. RefusedError when this project has no such server."""
        me = self.who().server_id
        try:
            return table(self.cloud().call(NOVA, "GET", f"/servers/{quoted(me)}"), "server")
        except ProviderError as error:
            if status_of(error) != 404:
                raise
            raise RefusedError(
                f"The credential's project has no server {me}; use an application credential of this server's project."
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

    def pages(self, metadata: Mapping[str, str], **filters: str) -> Iterator[dict[str, Any]]:
        """Every volume with these metadata, page by page. Beyond MAX_PAGES: TransientError."""
        # Cinder parses the filter as a Python literal
        query = {"metadata": repr(dict(metadata)), "limit": str(PAGE_SIZE), **filters}
        for _ in range(MAX_PAGES):
            shown = rows(self.cloud().call(CINDER, "GET", f"/volumes/detail?{urlencode(query)}"), "volumes")
            # A cloud whose operator took the filter away shows everything
            with read_as("volumes"):
                found = [row for row in shown if metadata.items() <= (row.get("metadata") or {}).items()]
            yield from found
            if len(shown) < PAGE_SIZE:
                return
            query["marker"] = str(shown[-1].get("id"))
        raise TransientError(f"The list of volumes went on beyond {MAX_PAGES} pages; it is asked again.")

    # --- inside --------------------------------------------------------------------------------------------

    def _bought(self, token: str) -> Volume | None:
        """The oldest living volume of this token."""
        ours = {volumes.OWNER_KEY: self.who().server_id, volumes.CYCLE_KEY: token}
        alive = [row for row in self.pages(ours, name=volumes.name_of(token)) if row.get("status") != "deleting"]
        alive.sort(key=lambda row: (str(row.get("created_at")), str(row.get("id"))))
        return self._volume(alive[0]) if alive else None

    def _shown(self, volume_id: VolumeId) -> dict[str, Any] | None:
        try:
            found = table(self.cloud().call(CINDER, "GET", f"/volumes/{quoted(volume_id)}"), "volume")
        except ProviderError as error:
            if status_of(error) == 404:
                return None
            raise
        if found.get("id") != volume_id:
            raise TransientError(f"Cinder was asked for {volume_id} and showed another volume; it is asked again.")
        return found

    def _own(self, volume_id: VolumeId) -> dict[str, Any] | None:
        """The volume by a look of now. Raises NotOursError for one that does not carry this server's metadata."""
        shown = self._shown(volume_id)
        if shown is not None and not self._is_own(shown):
            raise NotOursError(
                f"{volume_id} does not carry this server's metadata {volumes.OWNER_KEY}; it was left alone."
            )
        return shown

    def _is_own(self, shown: dict[str, Any]) -> bool:
        with read_as("a volume"):
            volume_id, labels = VolumeId(str(shown["id"])), shown.get("metadata") or {}
            is_own: bool = labels.get(volumes.OWNER_KEY) == self.who().server_id
        (self._ours.add if is_own else self._ours.discard)(volume_id)
        return is_own

    def _volume(self, shown: dict[str, Any]) -> Volume:
        incomplete = volumes.is_taken(shown) and not shown.get("attachments")
        is_own = self._is_own(shown)
        records = self._records(str(shown["id"])) if incomplete and is_own else []
        with read_as("a volume"):
            seen = volumes.volume_of(shown, self.who().server_id, records)
        if not is_own:
            return replace(seen, state=VolumeState.FOREIGN)
        # Shown as what it is to Nova, so that the agent asks for the detach again.
        return replace(seen, state=VolumeState.ATTACHED) if self._detaches.is_stuck(seen) else seen

    def _records(self, volume_id: str) -> list[dict[str, Any]]:
        """Cinder's attachment records of a volume, begun ones included."""
        answer = self.cloud().call(CINDER, "GET", f"/attachments?{urlencode({'volume_id': volume_id})}")
        return rows(answer, "attachments")

    def _attachments_path(self) -> str:
        return f"/servers/{quoted(self.who().server_id)}/os-volume_attachments"

    def _judge_attach(self, volume_id: VolumeId, error: ProviderError) -> None:
        seen = self.describe(volume_id)
        if seen is None:
            raise TransientError(f"{volume_id} is not known to Cinder (yet); it is looked at again.") from error
        if seen.state in (VolumeState.ATTACHING, VolumeState.ATTACHED):
            return
        if seen.state is VolumeState.ELSEWHERE:
            raise RefusedError(f"{volume_id} is attached to another server; detach it there first.") from error
        if seen.state in (VolumeState.CREATING, VolumeState.DETACHING):
            raise TransientError(
                f"{volume_id} is {seen.state} and cannot be attached yet; it is looked at again."
            ) from error
        raise error

    def _judge_detach(self, volume_id: VolumeId, error: ProviderError) -> None:
        shown = self._shown(volume_id)
        if shown is None:
            return
        seen = self._volume(shown)
        if seen.state is VolumeState.ATTACHED and shown["status"] == "detaching":
            self._take_back(volume_id, error)
        if seen.state in _ON_ITS_WAY or seen.state in (VolumeState.CREATING, VolumeState.ELSEWHERE):
            return
        if seen.state is VolumeState.ERROR and status_of(error) == 404:
            return
        if seen.state is VolumeState.ATTACHING and status_of(error) == 404:
            self._give_back(volume_id, error)
            return
        if seen.state is VolumeState.ATTACHING:
            raise TransientError(f"{volume_id} is still {shown['status']}, so Nova does not detach it yet.") from error
        raise error

    def _take_back(self, volume_id: VolumeId, error: ProviderError) -> NoReturn:
        """Cinder's tag of a detach that Nova has lost: see `stuck`."""
        _log.warning("%s: has been detaching for too long, which is taken back", volume_id)
        self.cloud().call(CINDER, "POST", f"/volumes/{quoted(volume_id)}/action", {"os-roll_detaching": {}})
        self._detaches.forget(volume_id)
        raise TransientError(f"{volume_id} stood still in detaching; Nova is asked again.") from error

    def _give_back(self, volume_id: VolumeId, error: ProviderError) -> None:
        """Nova knows nothing of the attachment: delete Cinder's records, which then is a tenant's right."""
        mine = [r for r in self._records(volume_id) if r.get("instance") == self.who().server_id]
        if not mine:
            raise RefusedError(
                f"{volume_id} is kept for a server that nobody names; ask the cloud's operator for "
                f"`openstack volume set --state available {volume_id}`."
            ) from error
        for record in mine:
            record_id = str(record.get("id"))
            _log.warning("%s: attachment %s is unknown to Nova and given back", volume_id, record_id)
            self.cloud().call(CINDER, "DELETE", f"/attachments/{quoted(record_id)}")

    def _judge_delete(self, volume_id: VolumeId, error: ProviderError) -> None:
        shown = self._shown(volume_id)
        if shown is None:
            return
        seen = self._volume(shown)
        if seen.state in (VolumeState.DELETING, VolumeState.GONE):
            return
        if seen.state in _HELD:
            raise RefusedError(f"{volume_id} is {seen.state} and cannot be deleted; detach it first.") from error
        if shown.get("status") == volumes.FAILED_DELETE:
            raise RefusedError(
                f"{volume_id} is in error_deleting: Cinder could not delete it; ask the cloud's operator for "
                f"`openstack volume set --state error {volume_id}`, then it is deleted."
            ) from error
        raise error


def _require_kept(volume_id: VolumeId, tag: VolumeTag) -> None:
    """A volume that is gone needs no tag; but what is not seen may still become a cache."""
    if tag is not VolumeTag.CLEAN:
        raise TransientError(f"{volume_id} is not known to Cinder, so it is not tagged {tag}; it is asked again.")


def status_of(error: ProviderError) -> int:
    """The HTTP status that a translated error came from, or 0."""
    return int(getattr(error.__cause__, "status", 0) or 0)


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> OpenstackProvider:
    """The provider for `[provider.openstack]`; asks nothing yet. Raises ConfigError with one sentence."""
    if find_spec("openstack") is None:
        raise ConfigError("The provider openstack needs the OpenStack SDK; install elastio[openstack].")
    return OpenstackProvider(parse(settings), backing_uuid)
