"""Steps that the tests of several clouds share."""

from __future__ import annotations

from typing import Any

from elastio.core.model import Volume, VolumeId, VolumeState


def bought(cloud: Any, token: str = "token-1") -> Volume:
    """A volume that is ready to be attached."""
    volume: Volume = cloud.provider.create(token, cloud.spec, {})
    cloud.settle()
    return volume


def attached(cloud: Any, token: str = "token-1") -> Volume:
    volume = bought(cloud, token)
    settled(cloud, "attach", volume.id)
    return volume


def settled(cloud: Any, call: str, volume_id: VolumeId) -> None:
    """Attach, detach or delete, and wait for its end."""
    getattr(cloud.provider, call)(volume_id)
    cloud.settle()


def state_of(cloud: Any, volume_id: VolumeId) -> VolumeState:
    """The state; GONE also if the cloud no longer knows the volume."""
    seen: Volume | None = cloud.provider.describe(volume_id)
    return seen.state if seen is not None else VolumeState.GONE
