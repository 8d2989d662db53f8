"""Errors of the provider itself, and how EC2's own refusals are told apart. Without the SDK."""

from __future__ import annotations

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import NotOursError, ProviderError, RefusedError, TransientError
from elastio_aws import codes, volumes


def is_device_name_error(error: ProviderError, name: str) -> bool:
    """Whether EC2 refused the device name, so that another one may work.

    EC2 has no code for it: "Attachment point ... is already in use", "... is not a valid EBS device name".
    """
    said = str(error)
    about = name in said or "device name" in said or "Attachment point" in said
    return error.code == codes.BAD_VALUE and about


def require_stored_tag(volume_id: VolumeId, tag: VolumeTag) -> None:
    """For an unknown volume: if it is gone, it needs no `clean`. Raises TransientError for another value, because a new
    volume that is not visible yet may become a cache."""
    if tag is not VolumeTag.CLEAN:
        text = f"{volume_id} is not known to EC2 (yet) and cannot be tagged {tag}; the call will be repeated."
        raise TransientError(text, code="volume.unknown")


def foreign_volume(volume_id: VolumeId) -> NotOursError:
    """For a volume without this instance's tag."""
    text = f"{volume_id} does not have this instance's tag {volumes.OWNER_TAG}; it was not changed."
    return NotOursError(text, code="volume.foreign")


def foreign_token(token: str) -> RefusedError:
    """For a token that a clone used before."""
    return RefusedError(
        f"The token {token} was used to buy a volume for another machine; if this machine was made from an image of "
        "that one, see docs/how-to/make-an-image.md.",
        code="token.foreign",
    )
