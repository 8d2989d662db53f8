"""The bandwidth of a volume that was there before the agent, by the server's record and the volume's type."""

from __future__ import annotations

import pytest

from elastio.core.model import Serial
from elastio_openstack.backing import ATTACHED, of_type, volume_id_of
from elastio_openstack.speeds import Speed

ID = "c3a9d1a4-9b5e-4a6f-8d0e-9a2b3c4d5e6f"
SAME_START = "c3a9d1a4-9b5e-4a6f-8ddd-ffffffffffff"
KNOWN = (Speed("slow", 60.0), Speed("scaled", 2.0, per_gib=True))


def server(*ids: str) -> dict[str, object]:
    return {"id": "me", ATTACHED: [{"id": name, "delete_on_termination": False} for name in ids]}


@pytest.mark.parametrize("serial", [ID, ID[:20]])
def test_a_volume_is_found_by_its_serial_or_the_beginning_of_it(serial: str) -> None:
    assert volume_id_of(server("11111111-1111-1111-1111-111111111111", ID), Serial(serial)) == ID


def test_a_serial_that_two_volumes_have_or_none_is_not_certain() -> None:
    assert volume_id_of(server(ID, SAME_START), Serial(ID[:20])) is None
    assert volume_id_of(server(), Serial(ID[:20])) is None
    assert volume_id_of({"id": "me"}, Serial(ID[:20])) is None


@pytest.mark.parametrize(
    ("kind", "mb_s"), [("slow", 60.0), ("scaled", 400.0), ("unknown", None), (None, None)], ids=str
)
def test_the_type_decides_about_the_bandwidth(kind: str | None, mb_s: float | None) -> None:
    assert of_type({"volume_type": kind, "size": 200}, KNOWN) == mb_s
