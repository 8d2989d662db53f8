"""A KMS key that may not be used shows as a volume that fails or disappears: reported once, and only then."""

from __future__ import annotations

import pytest

from elastio.core.model import Serial, Volume, VolumeId, VolumeState
from elastio.errors import RefusedError
from elastio_aws.encryption import VISIBILITY_S, PendingEncrypted
from elastio_sim.clock import SimClock

ID = VolumeId("vol-1")
ENCRYPTED = {"VolumeId": ID, "Encrypted": True, "KmsKeyId": "alias/ours"}
CREATING, AVAILABLE, ERROR = VolumeState.CREATING, VolumeState.AVAILABLE, VolumeState.ERROR


def is_reported(encrypted: PendingEncrypted, state: VolumeState | None) -> bool:
    seen = None if state is None else Volume(ID, Serial("vol1"), state, 1, 1.0, "token", "uuid", 0.0)
    try:
        encrypted.check(ID, seen)
    except RefusedError:
        return True
    return False


@pytest.mark.parametrize(
    ("created", "polls", "reported"),
    [
        pytest.param(ENCRYPTED, [CREATING, None, None], [False, True, False], id="disappeared, reported once"),
        pytest.param(ENCRYPTED, [ERROR], [True], id="failed"),
        pytest.param(ENCRYPTED, [CREATING, AVAILABLE, None], [False, False, False], id="was ready"),
        pytest.param({**ENCRYPTED, "Encrypted": False}, [ERROR], [False], id="not encrypted"),
        pytest.param({"VolumeId": ID}, [ERROR], [False], id="encryption not shown"),
    ],
)
def test_only_an_encrypted_volume_that_was_never_ready_is_reported(
    created: dict[str, object], polls: list[VolumeState | None], reported: list[bool]
) -> None:
    encrypted = PendingEncrypted(SimClock().now)
    encrypted.created(created)
    assert [is_reported(encrypted, state) for state in polls] == reported


def test_volume_that_was_never_seen_may_be_late() -> None:
    clock = SimClock()
    encrypted = PendingEncrypted(clock.now)
    encrypted.created(ENCRYPTED)
    assert not is_reported(encrypted, None)
    clock.advance(VISIBILITY_S)
    assert is_reported(encrypted, None)
