"""What the provider does not do, and how EC2's own refusals are told apart. Without the SDK."""

from __future__ import annotations

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import NotOursError, ProviderError, RefusedError, TransientError
from elastio_aws import codes, volumes


def is_about_the_name(error: ProviderError, name: str) -> bool:
    """Whether another device name may be taken.

    EC2 has no code of its own: "Attachment point ... is already in use", "... is not a valid EBS device name".
    """
    said = str(error)
    about = name in said or "device name" in said or "Attachment point" in said
    return codes.code_of(error) == codes.BAD_VALUE and about


def require_kept(volume_id: VolumeId, tag: VolumeTag) -> None:
    """A volume that is gone needs no tag; but one may be too young to be seen, and become a cache: TransientError."""
    if tag is not VolumeTag.CLEAN:
        raise TransientError(f"{volume_id} is not known to EC2 (yet), so it is not tagged {tag}; it is asked again.")


def not_ours(volume_id: VolumeId) -> NotOursError:
    """For what does not carry this instance's tag."""
    return NotOursError(f"{volume_id} does not carry this instance's tag {volumes.OWNER_TAG}; it was left alone.")


def others_token(token: str) -> RefusedError:
    """For a token that a clone has used."""
    return RefusedError(
        f"The token {token} has bought a volume for another machine, which keeps it; was this machine made from "
        "an image of that one? See docs/how-to/make-an-image.md."
    )
