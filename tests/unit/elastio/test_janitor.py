"""What a janitor outside the machines may delete: expired, free, and proven clean. All three."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from elastio.core.model import VolumeId, VolumeTag
from elastio.errors import AuthError
from elastio.janitor import FleetVolume, sweep, why_keep

WALL = 1000.0
LITTER = FleetVolume(VolumeId("vol-1"), "available", True, 2**30, "arn", "uuid", VolumeTag.CLEAN, WALL)


@dataclass
class Account:
    """`shown` is what a look at one volume finds, where it differs from the list."""

    listed: list[FleetVolume]
    shown: dict[str, FleetVolume | None] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    refuses: str = ""

    def volumes(self) -> Iterator[FleetVolume]:
        return iter(self.listed)

    def volume(self, volume_id: VolumeId) -> FleetVolume | None:
        return self.shown.get(volume_id, next(v for v in self.listed if v.id == volume_id))

    def delete(self, volume_id: VolumeId) -> None:
        if volume_id == self.refuses:
            raise AuthError("not allowed")
        self.deleted.append(volume_id)


def outcomes(account: Account, *, dry_run: bool = False) -> list[str]:
    return [v.outcome for v in sweep(account, WALL, dry_run=dry_run)]


@pytest.mark.parametrize(("dry_run", "outcome", "deleted"), [(False, "deleted", ["vol-1"]), (True, "would delete", [])])
def test_litter_is_deleted_unless_it_is_a_dry_run(dry_run: bool, outcome: str, deleted: list[str]) -> None:
    account = Account([LITTER])
    assert outcomes(account, dry_run=dry_run) == [outcome]
    assert account.deleted == deleted


@pytest.mark.parametrize(
    "changes",
    [
        {"tag": VolumeTag.UNKNOWN},
        {"tag": VolumeTag.DIRTY},
        {"is_free": False, "state": "in-use"},
        {"expires_wall": WALL + 1},
        {"expires_wall": None},
        {"owner": ""},
        {"backing_uuid": ""},
    ],
)
def test_everything_else_is_kept_with_a_reason(changes: dict[str, object]) -> None:
    volume = replace(LITTER, **changes)  # type: ignore[arg-type]
    account = Account([volume])
    assert why_keep(volume, WALL)
    assert outcomes(account) == ["kept"]
    assert account.deleted == []


@pytest.mark.parametrize("now", [replace(LITTER, is_free=False), replace(LITTER, tag=VolumeTag.DIRTY), None])
def test_what_changed_since_the_list_counts(now: FleetVolume | None) -> None:
    account = Account([LITTER], {"vol-1": now})
    assert outcomes(account) == ["kept"]
    assert account.deleted == []


def test_one_refusal_does_not_stop_the_others() -> None:
    account = Account([LITTER, replace(LITTER, id=VolumeId("vol-2"))], refuses="vol-1")
    assert outcomes(account) == ["failed", "deleted"]
    assert account.deleted == ["vol-2"]
