"""What the agent requires of every provider: `elastio.ports.VolumeProvider` as tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.foreign import OF_OTHERS
from elastio.core.model import VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import AuthError, NotOursError, ProviderError, QuotaError, RefusedError, TransientError
from elastio.ports import ListsForBacking, TagsVolumes, TellsNotices
from elastio.units import GIB

from .steps import attached, bought, settled, state_of

BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
UNKNOWN = VolumeId("vol-0123456789abcdef0")


def _call(cloud: Any, call: str, volume_id: VolumeId) -> None:
    if call == "create":
        cloud.provider.create("token-call", cloud.spec, {})
    elif call == "list_owned":
        cloud.provider.list_owned()
    else:
        getattr(cloud.provider, call)(volume_id)


# --- who, what, how much --------------------------------------------------------------------------


def test_identity_is_complete_and_stays(cloud: Any) -> None:
    me = cloud.provider.identify()
    assert all((me.cloud, me.instance_id, me.zone, me.region, me.instance_type))
    assert cloud.provider.identify() == me


def test_quote_covers_the_spec_and_is_stable(cloud: Any) -> None:
    asked = replace(cloud.spec, size_bytes=10 * GIB + 1)
    quote = cloud.provider.quote(asked)
    assert quote.spec.size_bytes == 11 * GIB
    assert quote.spec.bandwidth_mb_s >= asked.bandwidth_mb_s
    assert quote.spec.iops
    assert cloud.provider.quote(quote.spec).spec == quote.spec


def test_quote_has_a_price_and_its_source(cloud: Any) -> None:
    quote = cloud.provider.quote(cloud.spec)
    assert quote.price_per_hour > 0
    assert quote.minimum_s >= 0
    assert quote.currency
    assert quote.price_source


def test_quote_refuses_an_impossible_spec(cloud: Any) -> None:
    for spec in (cloud.too_fast, VolumeSpec(0, 200.0), VolumeSpec(10**6 * GIB, 200.0)):
        with pytest.raises(RefusedError):
            cloud.provider.quote(spec)


# --- create ---------------------------------------------------------------------------------------


def test_new_volume_has_its_token_and_properties(cloud: Any) -> None:
    volume = cloud.provider.create("token-1", cloud.spec, {})
    assert volume.state in (VolumeState.CREATING, VolumeState.AVAILABLE)
    assert (volume.token, volume.backing_uuid) == ("token-1", BACKING)
    assert volume.size_bytes == cloud.spec.size_bytes
    assert volume.bandwidth_mb_s >= cloud.spec.bandwidth_mb_s
    assert volume.serial == cloud.serial(volume.id)
    assert volume.created_wall > 0


def test_new_volume_becomes_available_and_keeps_its_properties(cloud: Any) -> None:
    volume = bought(cloud)
    assert cloud.provider.describe(volume.id) == replace(volume, state=VolumeState.AVAILABLE)


def test_one_token_buys_one_volume(cloud: Any) -> None:
    first = cloud.provider.create("token-1", cloud.spec, {})
    assert cloud.provider.create("token-1", cloud.spec, {}).id == first.id
    cloud.settle()
    assert cloud.provider.create("token-1", cloud.spec, {}).id == first.id
    assert cloud.billed_volumes() == {first.id}


def test_known_token_returns_its_volume_whatever_the_spec(cloud: Any) -> None:
    """If an operator changes the settings between a purchase and its retry, the paid volume is used."""
    first = bought(cloud)
    again = cloud.provider.create("token-1", replace(cloud.spec, size_bytes=2 * cloud.spec.size_bytes), {})
    assert (again.id, again.size_bytes) == (first.id, first.size_bytes)
    assert cloud.billed_volumes() == {first.id}


def test_lost_response_to_create_leaves_one_volume_that_is_found_again(cloud: Any) -> None:
    cloud.inject("create", "lost")
    with pytest.raises(TransientError):
        cloud.provider.create("token-1", cloud.spec, {})
    cloud.settle()
    (found,) = cloud.provider.list_owned()
    assert (found.token, found.backing_uuid) == ("token-1", BACKING)
    assert cloud.provider.create("token-1", cloud.spec, {}).id == found.id
    assert cloud.billed_volumes() == {found.id}


# --- attach, detach, delete -----------------------------------------------------------------------


def test_volume_lives_from_purchase_to_deletion(cloud: Any) -> None:
    volume = bought(cloud)
    cloud.provider.attach(volume.id)
    assert state_of(cloud, volume.id) in (VolumeState.ATTACHING, VolumeState.ATTACHED)
    cloud.settle()
    assert state_of(cloud, volume.id) == VolumeState.ATTACHED
    cloud.provider.detach(volume.id)
    assert state_of(cloud, volume.id) in (VolumeState.DETACHING, VolumeState.AVAILABLE)
    cloud.settle()
    assert state_of(cloud, volume.id) == VolumeState.AVAILABLE
    cloud.provider.delete(volume.id)
    assert state_of(cloud, volume.id) in (VolumeState.DELETING, VolumeState.GONE)
    cloud.settle()
    assert state_of(cloud, volume.id) == VolumeState.GONE
    assert cloud.billed_volumes() == set()


def test_attach_of_an_attached_volume_succeeds(cloud: Any) -> None:
    volume = bought(cloud)
    cloud.provider.attach(volume.id)
    settled(cloud, "attach", volume.id)
    cloud.provider.attach(volume.id)
    assert state_of(cloud, volume.id) == VolumeState.ATTACHED


def test_detach_of_a_detached_volume_succeeds(cloud: Any) -> None:
    volume = attached(cloud)
    cloud.provider.detach(volume.id)
    settled(cloud, "detach", volume.id)
    cloud.provider.detach(volume.id)
    assert state_of(cloud, volume.id) == VolumeState.AVAILABLE


def test_delete_of_a_deleted_volume_succeeds(cloud: Any) -> None:
    volume = bought(cloud)
    cloud.provider.delete(volume.id)
    settled(cloud, "delete", volume.id)
    cloud.provider.delete(volume.id)
    cloud.provider.delete(UNKNOWN)
    assert cloud.billed_volumes() == set()


def test_volume_can_be_attached_again(cloud: Any) -> None:
    volume = attached(cloud)
    settled(cloud, "detach", volume.id)
    settled(cloud, "attach", volume.id)
    assert state_of(cloud, volume.id) == VolumeState.ATTACHED


def test_attach_before_the_volume_is_ready_does_no_harm(cloud: Any) -> None:
    cloud.delay_creation()
    volume = cloud.provider.create("token-1", cloud.spec, {})
    with pytest.raises(TransientError):
        cloud.provider.attach(volume.id)
    cloud.settle()
    assert state_of(cloud, volume.id) == VolumeState.AVAILABLE


def test_attached_volume_is_not_deleted(cloud: Any) -> None:
    volume = attached(cloud)
    with pytest.raises(RefusedError):
        cloud.provider.delete(volume.id)
    assert state_of(cloud, volume.id) == VolumeState.ATTACHED


@pytest.mark.parametrize(
    ("call", "after"),
    [("attach", VolumeState.ATTACHED), ("detach", VolumeState.AVAILABLE), ("delete", VolumeState.GONE)],
)
def test_lost_response_is_transient_and_a_retry_is_safe(cloud: Any, call: str, after: VolumeState) -> None:
    volume = attached(cloud) if call == "detach" else bought(cloud)
    cloud.inject(call, "lost")
    with pytest.raises(TransientError):
        _call(cloud, call, volume.id)
    _call(cloud, call, volume.id)
    cloud.settle()
    _call(cloud, call, volume.id)
    assert state_of(cloud, volume.id) == after


def test_unknown_volume_cannot_be_attached_yet(cloud: Any) -> None:
    with pytest.raises(TransientError):
        cloud.provider.attach(UNKNOWN)


def test_detach_of_an_unknown_volume_succeeds(cloud: Any) -> None:
    volume = attached(cloud)
    settled(cloud, "detach", UNKNOWN)
    assert state_of(cloud, volume.id) == VolumeState.ATTACHED


# --- what is ours ---------------------------------------------------------------------------------


def test_unknown_volume_is_described_as_none(cloud: Any) -> None:
    assert cloud.provider.describe(UNKNOWN) is None


def test_list_shows_ours_in_every_state_and_nothing_else(cloud: Any) -> None:
    foreign = cloud.foreign()
    used = attached(cloud, "token-1")
    free = bought(cloud, "token-2")
    owned = {volume.id: volume for volume in cloud.provider.list_owned()}
    assert set(owned) == {used.id, free.id}
    assert owned[used.id].state == VolumeState.ATTACHED
    assert owned[free.id].token == "token-2"
    assert foreign in cloud.billed_volumes()


@pytest.mark.parametrize("call", ["attach", "detach", "delete"])
def test_foreign_volume_is_left_alone(cloud: Any, call: str) -> None:
    foreign = cloud.foreign()
    assert state_of(cloud, foreign) in OF_OTHERS
    with pytest.raises(NotOursError):
        _call(cloud, call, foreign)
    cloud.settle()
    assert state_of(cloud, foreign) in OF_OTHERS
    assert foreign in cloud.billed_volumes()


def test_foreign_volume_is_not_tagged(tagging_cloud: Any) -> None:
    provider, foreign = tagging_cloud.provider, tagging_cloud.foreign()
    born = provider.describe(foreign)
    with pytest.raises(NotOursError):
        provider.tag(foreign, VolumeTag.DIRTY)
    assert provider.describe(foreign) == born


def test_token_of_another_machine_does_not_return_its_volume(cloud: Any) -> None:
    """Machines made from one image may generate the same token in the same millisecond."""
    foreign = cloud.foreign("token-1")
    try:
        bought = {cloud.provider.create("token-1", cloud.spec, {}).id}
    except RefusedError:
        bought = set()
    assert foreign not in bought
    cloud.settle()
    assert {volume.id for volume in cloud.provider.list_owned()} == bought
    assert cloud.billed_volumes() == {foreign} | bought


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["create", "attach", "detach", "delete", "describe", "list_owned"])
@pytest.mark.parametrize(("kind", "error"), [("throttled", TransientError), ("auth", AuthError)])
def test_failed_call_has_its_class_and_the_next_one_works(
    cloud: Any, call: str, kind: str, error: type[ProviderError]
) -> None:
    volume = attached(cloud) if call == "detach" else bought(cloud)
    paid = cloud.billed_volumes()
    cloud.inject(call, kind)
    with pytest.raises(error):
        _call(cloud, call, volume.id)
    cloud.settle()
    assert cloud.billed_volumes() == paid
    _call(cloud, call, volume.id)


@pytest.mark.parametrize(("kind", "error"), [("quota", QuotaError), ("refused", RefusedError)])
def test_create_that_is_not_granted_buys_nothing(cloud: Any, kind: str, error: type[ProviderError]) -> None:
    cloud.inject("create", kind)
    with pytest.raises(error):
        cloud.provider.create("token-1", cloud.spec, {})
    cloud.settle()
    assert cloud.billed_volumes() == set()


# --- optional protocols ------------------------------------------------------------------------


def test_a_volume_is_born_clean_and_shows_a_later_mark(tagging_cloud: Any) -> None:
    provider = tagging_cloud.provider
    volume = bought(tagging_cloud)
    assert volume.tag is VolumeTag.CLEAN
    for tag in (VolumeTag.DIRTY, VolumeTag.CLEAN):
        provider.tag(volume.id, tag)
        tagging_cloud.settle()
        assert [(v.tag, v.token) for v in provider.list_owned()] == [(tag, volume.token)]
        assert provider.describe(volume.id).tag is tag


def test_clean_tag_on_an_unknown_volume_succeeds(tagging_cloud: Any) -> None:
    tagging_cloud.provider.tag(UNKNOWN, VolumeTag.CLEAN)
    assert tagging_cloud.provider.list_owned() == ()


def test_dirty_tag_that_is_not_stored_is_an_error(tagging_cloud: Any) -> None:
    """The volume becomes a cache as soon as the tag was acknowledged."""
    with pytest.raises(TransientError):
        tagging_cloud.provider.tag(UNKNOWN, VolumeTag.DIRTY)


def test_a_machine_that_stays_has_no_notice(noticing_cloud: Any) -> None:
    assert isinstance(noticing_cloud.provider, TellsNotices)
    assert noticing_cloud.provider.notice() is None


def test_volumes_of_the_backing_device_are_listed_whoever_owns_them(listing_cloud: Any) -> None:
    provider, own, other = listing_cloud.provider, bought(listing_cloud), listing_cloud.of_dead_machine()
    provider.tag(own.id, VolumeTag.DIRTY)
    listing_cloud.settle()
    found = {v.id: (v.state, v.tag) for v in provider.list_for_backing()}
    assert found == {own.id: (VolumeState.AVAILABLE, VolumeTag.DIRTY), other: (VolumeState.AVAILABLE, VolumeTag.CLEAN)}
    assert {v.backing_uuid for v in provider.list_for_backing()} == {own.backing_uuid}
    assert {v.id for v in provider.list_owned()} == {own.id}


def test_optional_protocols_are_recognised(cloud: Any, optional: set[type]) -> None:
    """The agent checks for the protocol: a method with another name would never be called."""
    assert {
        kind for kind in (TagsVolumes, TellsNotices, ListsForBacking) if isinstance(cloud.provider, kind)
    } == optional
