"""What the journal writes it can read again."""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastio.codec import Kept, decode, encode, encode_kept, kept_fields
from elastio.core.actions import CreateVolume
from elastio.core.cycle import Backoff, Cycle, Trigger
from elastio.core.model import Purchase, VolumeSpec

PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    float: st.floats(allow_nan=False, allow_infinity=False),
    int: st.integers(0, 2**50),
    bool: st.booleans(),
    str: st.text(max_size=20),
    type(None): st.none(),
}


def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type, with every field of a dataclass filled, not only those without a default."""
    kind = getattr(kind, "__supertype__", kind)  # NewType
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return st.builds(kind, **{name: any_of(hint) for name, hint in typing.get_type_hints(kind).items()})
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Mapping:
        return st.dictionaries(any_of(arguments[0]), any_of(arguments[1]), max_size=3)
    if origin is not None:
        return st.one_of(*map(any_of, arguments))
    return PLAIN[kind] if kind in PLAIN else st.sampled_from(kind)


def through_json(value: object) -> Any:
    return json.loads(json.dumps(encode(value)))


@settings(deadline=None)
@given(any_of(Cycle))
def test_a_cycle_survives_json(cycle: Cycle) -> None:
    assert decode(Cycle, through_json(cycle)) == cycle


@settings(deadline=None)
@given(any_of(Purchase) | any_of(CreateVolume))
def test_what_an_action_carries_survives_too(value: Purchase | CreateVolume) -> None:
    assert decode(type(value), through_json(value)) == value


def test_a_field_of_a_later_release_is_ignored() -> None:
    assert decode(Backoff, {"tries": 2, "retry_at": 1.5, "error": "", "colour": "red"}) == Backoff(2, 1.5)


def test_a_field_of_an_earlier_release_takes_its_default() -> None:
    assert decode(Backoff, {"retry_at": 3}) == Backoff(0, 3.0, "")


SPEC = {"size_bytes": 1, "bandwidth_mb_s": 1}
WHOLE = {"token": "t", "trigger": "load", "spec": SPEC, "started_at": 0, "started_wall": 0, "backoffs": {}}


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (VolumeSpec, {"bandwidth_mb_s": 1.0}),  # a field without default is missing
        (VolumeSpec, {"size_bytes": "10", "bandwidth_mb_s": 1.0}),
        (VolumeSpec, {"size_bytes": True, "bandwidth_mb_s": 1.0}),
        (VolumeSpec, {"size_bytes": 10, "bandwidth_mb_s": False}),
        (VolumeSpec, {"size_bytes": 1.5, "bandwidth_mb_s": 1.0}),
        (VolumeSpec, [10, 1.0]),
        (VolumeSpec, None),
        (Backoff, {"tries": None}),
        (Trigger, "whim"),
        (Cycle, {**WHOLE, "spec": "small"}),
        (Cycle, {**WHOLE, "backoffs": []}),
        (Cycle, {**WHOLE, "backoffs": "CreateVolume"}),
        (Cycle, {**WHOLE, "backoffs": {"CreateVolume": 3}}),
        (Cycle, {**WHOLE, "backoffs": {"CreateVolume": []}}),
    ],
)
def test_what_does_not_fit_is_refused(kind: type, data: object) -> None:
    assert decode(Cycle, WHOLE).backoffs == {}
    with pytest.raises((TypeError, ValueError)):
        decode(kind, data)


@dataclasses.dataclass(frozen=True)
class Inner:
    seen: Kept[int] = 0
    passing: int = 0


@dataclasses.dataclass(frozen=True)
class Outer:
    spec: Kept[VolumeSpec]
    inner: Kept[Inner] = dataclasses.field(default_factory=Inner)
    passing: int = 0


def test_what_is_kept_is_encoded_at_every_depth_and_nothing_else() -> None:
    value = Outer(VolumeSpec(10, 1.0), Inner(2, 3), 4)
    assert kept_fields(Outer) == ("spec", "inner")
    assert encode_kept(value) == {"spec": encode(value.spec), "inner": {"seen": 2}}
    assert decode(Outer, encode_kept(value)) == Outer(value.spec, Inner(2))
