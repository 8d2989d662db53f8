"""What the agent relies on, of every provider: `elastio.ports.VolumeProvider` as tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from elastio.core.model import Volume, VolumeId, VolumeSpec, VolumeState, VolumeTag
from elastio.errors import AuthError, NotOursError, ProviderError, QuotaError, RefusedError, TransientError
from elastio.ports import TagsVolumes, TellsNotices
from elastio.units import GIB

BACKING = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
UNKNOWN = VolumeId("vol-0123456789abcdef0")


def _bought(cloud: Any, token: str = "token-1") -> Volume:
    """A volume that is ready to be attached."""
    volume: Volume = cloud.provider.create(token, cloud.spec, {})
    cloud.settle()
    return volume


def _attached(cloud: Any, token: str = "token-1") -> Volume:
    volume = _bought(cloud, token)
    cloud.provider.attach(volume.id)
    cloud.settle()
    return volume


def _state(cloud: Any, volume_id: VolumeId) -> VolumeState:
    """GONE also where the cloud does not know the volume any more."""
    seen: Volume | None = cloud.provider.describe(volume_id)
    return seen.state if seen is not None else VolumeState.GONE


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


def test_quote_covers_what_was_asked_and_does_not_grow(cloud: Any) -> None:
    asked = replace(cloud.spec, size_bytes=10 * GIB + 1)
    quote = cloud.provider.quote(asked)
    assert quote.spec.size_bytes == 11 * GIB
    assert quote.spec.bandwidth_mb_s >= asked.bandwidth_mb_s
    assert quote.spec.iops
    assert cloud.provider.quote(quote.spec).spec == quote.spec


def test_quote_has_a_price_and_says_where_from(cloud: Any) -> None:
    quote = cloud.provider.quote(cloud.spec)
    assert quote.price_per_hour > 0
    assert quote.minimum_s >= 0
    assert quote.currency
    assert quote.price_source


def test_quote_refuses_what_cannot_be_bought(cloud: Any) -> None:
    for spec in (cloud.too_fast, VolumeSpec(0, 200.0), VolumeSpec(10**6 * GIB, 200.0)):
        with pytest.raises(RefusedError):
            cloud.provider.quote(spec)


# --- create ---------------------------------------------------------------------------------------


def test_new_volume_says_what_it_is_for(cloud: Any) -> None:
    volume = cloud.provider.create("token-1", cloud.spec, {})
    assert volume.state in (VolumeState.CREATING, VolumeState.AVAILABLE)
    assert (volume.token, volume.backing_uuid) == ("token-1", BACKING)
    assert volume.size_bytes == cloud.spec.size_bytes
    assert volume.bandwidth_mb_s >= cloud.spec.bandwidth_mb_s
    assert volume.serial == cloud.serial(volume.id)
    assert volume.created_wall > 0


def test_new_volume_becomes_available_and_keeps_its_facts(cloud: Any) -> None:
    volume = _bought(cloud)
    assert cloud.provider.describe(volume.id) == replace(volume, state=VolumeState.AVAILABLE)


def test_one_token_buys_one_volume(cloud: Any) -> None:
    first = cloud.provider.create("token-1", cloud.spec, {})
    assert cloud.provider.create("token-1", cloud.spec, {}).id == first.id
    cloud.settle()
    assert cloud.provider.create("token-1", cloud.spec, {}).id == first.id
    assert cloud.paid() == {first.id}


def test_known_token_leads_to_its_volume_whatever_is_asked_for_now(cloud: Any) -> None:
    """An operator changed the settings between a purchase and its repetition: what is paid for is used."""
    first = _bought(cloud)
    again = cloud.provider.create("token-1", replace(cloud.spec, size_bytes=2 * cloud.spec.size_bytes), {})
    assert (again.id, again.size_bytes) == (first.id, first.size_bytes)
    assert cloud.paid() == {first.id}


def test_two_tokens_buy_two_volumes(cloud: Any) -> None:
    first, second = (cloud.provider.create(token, cloud.spec, {}).id for token in ("token-1", "token-2"))
    assert cloud.paid() == {first, second}
    assert first != second


def test_lost_answer_of_create_leaves_one_volume_that_is_found_again(cloud: Any) -> None:
    cloud.spoil("create", "lost")
    with pytest.raises(TransientError):
        cloud.provider.create("token-1", cloud.spec, {})
    cloud.settle()
    (found,) = cloud.provider.list_owned()
    assert (found.token, found.backing_uuid) == ("token-1", BACKING)
    assert cloud.provider.create("token-1", cloud.spec, {}).id == found.id
    assert cloud.paid() == {found.id}


# --- attach, detach, delete -----------------------------------------------------------------------


def test_volume_lives_from_purchase_to_deletion(cloud: Any) -> None:
    volume = _bought(cloud)
    cloud.provider.attach(volume.id)
    assert _state(cloud, volume.id) in (VolumeState.ATTACHING, VolumeState.ATTACHED)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.ATTACHED
    cloud.provider.detach(volume.id)
    assert _state(cloud, volume.id) in (VolumeState.DETACHING, VolumeState.AVAILABLE)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.AVAILABLE
    cloud.provider.delete(volume.id)
    assert _state(cloud, volume.id) in (VolumeState.DELETING, VolumeState.GONE)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.GONE
    assert cloud.paid() == set()


def test_attach_is_no_error_when_already_so(cloud: Any) -> None:
    volume = _bought(cloud)
    cloud.provider.attach(volume.id)
    cloud.provider.attach(volume.id)
    cloud.settle()
    cloud.provider.attach(volume.id)
    assert _state(cloud, volume.id) == VolumeState.ATTACHED


def test_detach_is_no_error_when_already_so(cloud: Any) -> None:
    volume = _attached(cloud)
    cloud.provider.detach(volume.id)
    cloud.provider.detach(volume.id)
    cloud.settle()
    cloud.provider.detach(volume.id)
    assert _state(cloud, volume.id) == VolumeState.AVAILABLE


def test_delete_is_no_error_when_already_so(cloud: Any) -> None:
    volume = _bought(cloud)
    cloud.provider.delete(volume.id)
    cloud.provider.delete(volume.id)
    cloud.settle()
    cloud.provider.delete(volume.id)
    cloud.provider.delete(UNKNOWN)
    assert cloud.paid() == set()


def test_volume_can_be_attached_again(cloud: Any) -> None:
    volume = _attached(cloud)
    cloud.provider.detach(volume.id)
    cloud.settle()
    cloud.provider.attach(volume.id)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.ATTACHED


def test_attach_before_the_volume_is_ready_does_no_harm(cloud: Any) -> None:
    cloud.dawdle()
    volume = cloud.provider.create("token-1", cloud.spec, {})
    with pytest.raises(TransientError):
        cloud.provider.attach(volume.id)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.AVAILABLE


def test_attached_volume_is_not_deleted(cloud: Any) -> None:
    volume = _attached(cloud)
    with pytest.raises(RefusedError, match="detach it first"):
        cloud.provider.delete(volume.id)
    assert _state(cloud, volume.id) == VolumeState.ATTACHED


@pytest.mark.parametrize(
    ("call", "after"),
    [("attach", VolumeState.ATTACHED), ("detach", VolumeState.AVAILABLE), ("delete", VolumeState.GONE)],
)
def test_lost_answer_is_transient_and_asking_again_is_safe(cloud: Any, call: str, after: VolumeState) -> None:
    volume = _attached(cloud) if call == "detach" else _bought(cloud)
    cloud.spoil(call, "lost")
    with pytest.raises(TransientError):
        _call(cloud, call, volume.id)
    _call(cloud, call, volume.id)
    cloud.settle()
    _call(cloud, call, volume.id)
    assert _state(cloud, volume.id) == after


def test_unknown_volume_cannot_be_attached_yet(cloud: Any) -> None:
    with pytest.raises(TransientError):
        cloud.provider.attach(UNKNOWN)


def test_detach_of_an_unknown_volume_is_no_error(cloud: Any) -> None:
    volume = _attached(cloud)
    cloud.provider.detach(UNKNOWN)
    cloud.settle()
    assert _state(cloud, volume.id) == VolumeState.ATTACHED


# --- what is ours ---------------------------------------------------------------------------------


def test_unknown_volume_is_none(cloud: Any) -> None:
    assert cloud.provider.describe(UNKNOWN) is None


def test_list_shows_ours_in_every_state_and_nothing_else(cloud: Any) -> None:
    foreign = cloud.foreign()
    attached = _attached(cloud, "token-1")
    free = _bought(cloud, "token-2")
    owned = {volume.id: volume for volume in cloud.provider.list_owned()}
    assert set(owned) == {attached.id, free.id}
    assert owned[attached.id].state == VolumeState.ATTACHED
    assert owned[free.id].token == "token-2"
    assert foreign in cloud.paid()


@pytest.mark.parametrize("call", ["attach", "detach", "delete"])
def test_foreign_volume_is_left_alone(cloud: Any, call: str) -> None:
    foreign = cloud.foreign()
    assert _state(cloud, foreign) is VolumeState.FOREIGN
    with pytest.raises(NotOursError):
        _call(cloud, call, foreign)
    cloud.settle()
    assert _state(cloud, foreign) is VolumeState.FOREIGN
    assert foreign in cloud.paid()


def test_foreign_volume_is_not_marked(tagging_cloud: Any) -> None:
    provider, foreign = tagging_cloud.provider, tagging_cloud.foreign()
    born = provider.describe(foreign)
    with pytest.raises(NotOursError):
        provider.tag(foreign, VolumeTag.DIRTY)
    assert provider.describe(foreign) == born


def test_token_of_another_machine_hands_nothing_over(cloud: Any) -> None:
    """Machines of one image may choose one token in the same millisecond."""
    foreign = cloud.foreign("token-1")
    try:
        bought = {cloud.provider.create("token-1", cloud.spec, {}).id}
    except RefusedError:
        bought = set()
    assert foreign not in bought
    cloud.settle()
    assert {volume.id for volume in cloud.provider.list_owned()} == bought
    assert cloud.paid() == {foreign} | bought


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["create", "attach", "detach", "delete", "describe", "list_owned"])
@pytest.mark.parametrize(("kind", "error"), [("throttled", TransientError), ("auth", AuthError)])
def test_failure_has_its_class_and_passes(cloud: Any, call: str, kind: str, error: type[ProviderError]) -> None:
    volume = _attached(cloud) if call == "detach" else _bought(cloud)
    paid = cloud.paid()
    cloud.spoil(call, kind)
    with pytest.raises(error):
        _call(cloud, call, volume.id)
    cloud.settle()
    assert cloud.paid() == paid
    _call(cloud, call, volume.id)


@pytest.mark.parametrize(("kind", "error"), [("quota", QuotaError), ("refused", RefusedError)])
def test_create_that_is_not_granted_buys_nothing(cloud: Any, kind: str, error: type[ProviderError]) -> None:
    cloud.spoil("create", kind)
    with pytest.raises(error):
        cloud.provider.create("token-1", cloud.spec, {})
    cloud.settle()
    assert cloud.paid() == set()


# --- what a provider may do besides ------------------------------------------------------------------------


def test_a_volume_is_born_clean_and_shows_a_later_mark(tagging_cloud: Any) -> None:
    provider = tagging_cloud.provider
    volume = _bought(tagging_cloud)
    assert volume.tag is VolumeTag.CLEAN
    for tag in (VolumeTag.DIRTY, VolumeTag.CLEAN):
        provider.tag(volume.id, tag)
        tagging_cloud.settle()
        assert [(v.tag, v.token) for v in provider.list_owned()] == [(tag, volume.token)]
        seen = provider.describe(volume.id)
        assert seen is not None
        assert seen.tag is tag


def test_a_mark_on_what_does_not_exist_is_no_error(tagging_cloud: Any) -> None:
    tagging_cloud.provider.tag(UNKNOWN, VolumeTag.CLEAN)
    assert tagging_cloud.provider.list_owned() == ()


def test_a_dirty_mark_that_is_not_kept_is_an_error(tagging_cloud: Any) -> None:
    """A cache is attached as soon as the tag was acknowledged."""
    with pytest.raises(TransientError):
        tagging_cloud.provider.tag(UNKNOWN, VolumeTag.DIRTY)


def test_a_machine_that_stays_has_no_notice(noticing_cloud: Any) -> None:
    assert isinstance(noticing_cloud.provider, TellsNotices)
    assert noticing_cloud.provider.notice() is None


def test_what_a_provider_does_besides_is_seen_by_the_agent(provider_and_besides: Any) -> None:
    """The agent asks by protocol: a method by another name would never be called."""
    provider, besides = provider_and_besides
    assert {kind for kind in (TagsVolumes, TellsNotices) if isinstance(provider, kind)} == besides
