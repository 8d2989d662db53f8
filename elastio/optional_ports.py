"""What a provider may have besides `ports.VolumeProvider`. The agent asks with `isinstance`, and does without.

Errors as in `VolumeProvider`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from elastio.core.foreign import ForeignVolume
from elastio.core.model import Notice, Serial, Volume, VolumeId, VolumeTag


@runtime_checkable
class TellsNotices(Protocol):
    """Optional for a provider: report that the cloud is about to take this machine away."""

    def notice(self) -> Notice | None:
        """The notice in force, or None. Called every few seconds, so it is cheap. Errors as in `VolumeProvider`."""


@runtime_checkable
class TagsVolumes(Protocol):
    """Optional for a provider: keep the tag from which a janitor learns what a volume may hold."""

    def tag(self, volume_id: VolumeId, tag: VolumeTag) -> None:
        """Replace the tag. `clean` on a volume that is gone: no error. Errors as in `VolumeProvider`.

        When it returns, the cloud has stored the tag; a volume becomes a cache only after that.
        """


@runtime_checkable
class TakesOver(Protocol):
    """Optional for a provider: become the owner of a volume whose machine is gone."""

    def foreign(self, volume_id: VolumeId) -> ForeignVolume | None:
        """The volume and its owner, whoever that is; None: the cloud does not know it. Errors as in `VolumeProvider`.

        The owner is GONE only if the cloud itself says that this machine cannot start again: a credential that may not
        see it proves nothing.
        """

    def take_over(self, volume_id: VolumeId) -> Volume:
        """Replace the owner tag by this machine's, and the state by `dirty`, in one request. May be repeated.

        The caller has proven that the owner is gone. Returns the volume, which is this machine's own from now on.
        """


@runtime_checkable
class ListsForBacking(Protocol):
    """Optional for a provider: find the volumes of a backing device whose machine is gone. Reads only."""

    def list_for_backing(self) -> tuple[Volume, ...]:
        """Every volume whose tag names this provider's backing device, whoever its owner is, as seen from this machine.

        Its state is never FOREIGN. Errors as in `VolumeProvider`.
        """


@runtime_checkable
class TellsBandwidth(Protocol):
    """Optional for a provider: the bandwidth of a volume that somebody else bought, for `elastio setup` and `init`."""

    def bandwidth_of(self, serial: Serial) -> float | None:
        """MB/s that the cloud reserves for the volume of this disk; None: the cloud does not say. Reads only.

        Errors as in `VolumeProvider`.
        """
