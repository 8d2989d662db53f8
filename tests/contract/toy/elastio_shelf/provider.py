"""Shelf volumes behind the agent's port (entry point `shelf` of the group `elastio.providers`)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elastio.core.foreign import OF_OTHERS, state_of_others
from elastio.core.model import Identity, Quote, Serial, Volume, VolumeId, VolumeSpec, VolumeState
from elastio.errors import (
    AuthError,
    ConfigError,
    NotOursError,
    ProviderError,
    QuotaError,
    RefusedError,
    TransientError,
)
from elastio.units import GIB
from elastio_shelf.shelf import Shelf, ShelfError

OWNER, CYCLE, BACKING = "elastio:owner", "elastio:cycle", "elastio:backing"
BANDWIDTH_MB_S, IOPS, MAX_GIB = 250.0, 8000, 16384

_STATES = {
    "making": VolumeState.CREATING,
    "free": VolumeState.AVAILABLE,
    "bringing": VolumeState.ATTACHING,
    "used": VolumeState.ATTACHED,
    "fetching": VolumeState.DETACHING,
    "scrapping": VolumeState.DELETING,
}
_ERRORS: Mapping[str, tuple[type[ProviderError], str]] = {
    "busy": (TransientError, "the shelf is busy; the call will be repeated"),
    "silent": (TransientError, "the shelf did not respond; the call will be repeated"),
    "full": (QuotaError, "the shelf is full; scrap a volume or get a larger shelf"),
    "forbidden": (AuthError, "this machine is not allowed to; ask the shelf's owner"),
    "wrong": (RefusedError, "the request is invalid; check [provider.shelf]"),
    "unknown": (RefusedError, "there is no such volume"),
}


class ShelfProvider:
    """The `elastio.ports.VolumeProvider` of one machine with a shelf."""

    def __init__(self, folder: Path, machine: str, backing_uuid: str) -> None:
        self._shelf, self._me, self._backing_uuid = Shelf(folder), machine, backing_uuid

    def identify(self) -> Identity:
        return Identity(cloud="shelf", instance_id=self._me, zone="room", region="house", instance_type="box")

    def quote(self, spec: VolumeSpec) -> Quote:
        if not (0 < spec.size_bytes <= MAX_GIB * GIB and 0 < spec.bandwidth_mb_s <= BANDWIDTH_MB_S):
            raise RefusedError(f"A shelf volume has up to {MAX_GIB} GiB and {BANDWIDTH_MB_S:.0f} MB/s.")
        gib = math.ceil(spec.size_bytes / GIB)
        provisioned = VolumeSpec(gib * GIB, BANDWIDTH_MB_S, IOPS)
        return Quote(provisioned, "EUR", 0.01 * gib, 0.0, "the shelf's price list of 2026-11-01")

    def create(self, token: str, spec: VolumeSpec, tags: Mapping[str, str]) -> Volume:
        gib = self.quote(spec).spec.size_bytes // GIB
        labels = {**tags, OWNER: self._me, CYCLE: token, BACKING: self._backing_uuid}
        try:
            volume = self._volume(self._shelf.make(token, gib, labels, time.time()))
        except ShelfError as error:
            raise _translated("create", error) from error
        if volume.state in OF_OTHERS:
            raise RefusedError(f"The token {token} was used to buy a volume for another machine.", code="token.foreign")
        return volume

    def attach(self, volume_id: VolumeId) -> None:
        state = self._state("attach", volume_id)
        if state in (VolumeState.ATTACHING, VolumeState.ATTACHED):
            self._change("attach", volume_id)
        elif state is VolumeState.AVAILABLE:
            self._change("attach", volume_id, state="bringing", user=self._me)
        else:
            text = f"{volume_id} is {state} and cannot be attached yet; the call will be repeated."
            raise TransientError(text, code="volume.not-ready")

    def detach(self, volume_id: VolumeId) -> None:
        if self.describe(volume_id) is None:
            return
        state = self._state("detach", volume_id)
        in_use = state in (VolumeState.ATTACHING, VolumeState.ATTACHED)
        self._change("detach", volume_id, **({"state": "fetching"} if in_use else {}))

    def delete(self, volume_id: VolumeId) -> None:
        if self.describe(volume_id) is None:
            return
        if self._state("delete", volume_id) in (VolumeState.ATTACHING, VolumeState.ATTACHED, VolumeState.DETACHING):
            text = f"{volume_id} is in use and cannot be deleted; detach it first."
            raise RefusedError(text, code="volume.in-use")
        self._change("delete", volume_id, state="scrapping")

    def describe(self, volume_id: VolumeId) -> Volume | None:
        try:
            return self._volume(self._shelf.row(volume_id))
        except ShelfError as error:
            if error.code == "unknown":
                return None
            raise _translated("describe", error) from error

    def list_owned(self) -> tuple[Volume, ...]:
        try:
            rows = self._shelf.listing()
        except ShelfError as error:
            raise _translated("list_owned", error) from error
        return tuple(self._volume(row) for row in rows if row["labels"].get(OWNER) == self._me)

    def _state(self, call: str, volume_id: VolumeId) -> VolumeState:
        seen = self.describe(volume_id)
        if seen is None:
            text = f"{call}: there is no volume {volume_id} (yet); the call will be repeated."
            raise TransientError(text, code="volume.unknown")
        if seen.state in OF_OTHERS:
            text = f"{volume_id} does not have this machine's label {OWNER}; it was not changed."
            raise NotOursError(text, code="volume.foreign")
        if seen.state is VolumeState.ELSEWHERE:
            text = f"{volume_id} is used by another machine; detach it there first."
            raise RefusedError(text, code="volume.elsewhere")
        return seen.state

    def _change(self, call: str, volume_id: VolumeId, **changes: str) -> None:
        try:
            self._shelf.change(call, volume_id, **changes)
        except ShelfError as error:
            raise _translated(call, error) from error

    def _volume(self, row: Mapping[str, Any]) -> Volume:
        state = _STATES.get(row["state"], VolumeState.ERROR)
        if row["user"] not in ("", self._me):
            state = VolumeState.ELSEWHERE
        owner = row["labels"].get(OWNER)
        if owner != self._me:
            state = state_of_others(state, owner)
        return Volume(
            id=VolumeId(row["name"]),
            serial=serial_of(row["name"]),
            state=state,
            size_bytes=row["gib"] * GIB,
            bandwidth_mb_s=BANDWIDTH_MB_S,
            token=row["labels"].get(CYCLE, ""),
            backing_uuid=row["labels"].get(BACKING, ""),
            created_wall=row["made"],
        )


def serial_of(name: str) -> Serial:
    """The serial of the guest's disk."""
    return Serial(name[:20])


def open_provider(settings: Mapping[str, object], backing_uuid: str) -> ShelfProvider:
    """The provider for `[provider.shelf]`; makes no call yet. Raises ConfigError, with the key as its code."""
    unknown = sorted(set(settings) - {"folder", "machine"})
    if unknown:
        key = f"provider.shelf.{unknown[0]}"
        raise ConfigError(f"{key} is not a setting; known settings: folder, machine.", code=key)
    folder, machine = settings.get("folder"), settings.get("machine")
    if not (isinstance(folder, str) and folder and isinstance(machine, str) and machine):
        text = "provider.shelf.folder and provider.shelf.machine must be set, both to a string."
        raise ConfigError(text, code="provider.shelf.folder")
    return ShelfProvider(Path(folder), machine, backing_uuid)


def _translated(call: str, error: ShelfError) -> ProviderError:
    kind, advice = _ERRORS.get(error.code, (RefusedError, "look up the code in the shelf's manual"))
    return kind(f"{call} failed with {error.code}: {advice}.", code=error.code)
