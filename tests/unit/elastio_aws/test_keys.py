"""A KMS key that may not be used shows as a volume that comes to nothing: said once, and only where it is so."""

from __future__ import annotations

import pytest

from elastio.core.model import Serial, Volume, VolumeId, VolumeState
from elastio.errors import RefusedError
from elastio_aws.keys import UNSEEN_S, Encrypted

ID = VolumeId("vol-1")
SHOWN = {"VolumeId": ID, "Encrypted": True, "KmsKeyId": "alias/ours"}


class Seconds:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def seen(state: VolumeState) -> Volume:
    return Volume(ID, Serial("vol1"), state, 1, 1.0, "token", "uuid", 0.0)


def judged(encrypted: Encrypted, volume: Volume | None) -> bool:
    """Whether it is said that the volume came to nothing."""
    try:
        encrypted.judge(ID, volume)
    except RefusedError:
        return True
    return False


def test_volume_that_was_seen_creating_and_is_gone_is_said_once() -> None:
    encrypted = Encrypted(Seconds())
    encrypted.born(SHOWN)
    looks = [seen(VolumeState.CREATING), None, None]
    assert [judged(encrypted, look) for look in looks] == [False, True, False]


def test_volume_that_was_never_seen_may_be_late() -> None:
    seconds = Seconds()
    encrypted = Encrypted(seconds)
    encrypted.born(SHOWN)
    assert not judged(encrypted, None)
    seconds.now = UNSEEN_S
    assert judged(encrypted, None)


def test_volume_that_failed_is_said() -> None:
    encrypted = Encrypted(Seconds())
    encrypted.born(SHOWN)
    assert judged(encrypted, seen(VolumeState.ERROR))


@pytest.mark.parametrize("shown", [{**SHOWN, "Encrypted": False}, {"VolumeId": ID}])
def test_volume_without_encryption_is_no_matter_of_keys(shown: dict[str, object]) -> None:
    encrypted = Encrypted(Seconds())
    encrypted.born(shown)
    assert not judged(encrypted, seen(VolumeState.ERROR))


def test_volume_that_was_ready_once_is_no_matter_of_keys() -> None:
    encrypted = Encrypted(Seconds())
    encrypted.born(SHOWN)
    looks = [seen(VolumeState.CREATING), seen(VolumeState.AVAILABLE), None]
    assert [judged(encrypted, look) for look in looks] == [False, False, False]
