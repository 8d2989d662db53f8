"""What only OpenStack does, and how its provider stays right through it: on the real services, or as recorded there."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.model import VolumeSpec, VolumeState
from elastio.errors import AuthError, QuotaError, RefusedError, TransientError
from elastio.units import GIB
from elastio_openstack import checks
from elastio_testbed.openstack.hands import TYPES

OTHER_SERVER = "22222222-2222-4222-8222-222222222222"


def _bought(cloud: Any, token: str = "token-1") -> Any:
    volume = cloud.provider.create(token, cloud.spec, {})
    cloud.settle()
    return volume


def _state(cloud: Any, volume_id: str) -> VolumeState | None:
    seen = cloud.provider.describe(volume_id)
    return None if seen is None else seen.state


def _released(cloud: Any, volume_id: str) -> None:
    """What the agent does at the end of every cycle."""
    cloud.provider.detach(volume_id)
    cloud.settle()
    cloud.provider.delete(volume_id)
    cloud.settle()
    assert cloud.paid() == set()


def test_attachment_that_nova_has_forgotten_is_given_back(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.reserve(volume.id, openstack_cloud.provider.who().server_id)
    assert _state(openstack_cloud, volume.id) is VolumeState.ATTACHING
    with pytest.raises(RefusedError, match="detach it first"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.provider.detach(volume.id)
    assert _state(openstack_cloud, volume.id) is VolumeState.AVAILABLE


def test_detach_that_nova_has_lost_is_begun_anew_after_its_deadline(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.provider.attach(volume.id)
    openstack_cloud.settle()
    openstack_cloud.mark(volume.id, "detaching")
    patient = openstack_cloud.provider
    assert patient.describe(volume.id).state is VolumeState.DETACHING
    patient.detach(volume.id)  # as if it were on its way
    assert patient.describe(volume.id).state is VolumeState.DETACHING
    hasty = openstack_cloud.open(detach_deadline_s=1e-9)
    assert [hasty.describe(volume.id).state for _ in range(2)] == [VolumeState.DETACHING, VolumeState.ATTACHED]
    with pytest.raises(TransientError, match="Nova is asked again"):
        hasty.detach(volume.id)
    assert hasty.describe(volume.id).state is VolumeState.ATTACHED
    hasty.close()
    _released(openstack_cloud, volume.id)


def test_volume_kept_for_another_server_is_left_there(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.reserve(volume.id, OTHER_SERVER)
    assert _state(openstack_cloud, volume.id) is VolumeState.ELSEWHERE
    with pytest.raises(RefusedError, match="another server"):
        openstack_cloud.provider.attach(volume.id)
    openstack_cloud.provider.detach(volume.id)
    with pytest.raises(RefusedError, match="elsewhere"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.mark(volume.id, "available")


def test_failed_deletion_is_reported_with_a_way_out(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.mark(volume.id, "error_deleting")
    assert _state(openstack_cloud, volume.id) is VolumeState.ERROR
    with pytest.raises(RefusedError, match="openstack volume set --state error"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.mark(volume.id, "error")
    openstack_cloud.provider.delete(volume.id)
    openstack_cloud.settle()
    assert openstack_cloud.paid() == set()


def test_volume_already_bought_is_found_at_the_quota(openstack_cloud: Any) -> None:
    first = _bought(openstack_cloud)
    openstack_cloud.limit(gigabytes=2, volumes=1)
    assert openstack_cloud.provider.create("token-1", openstack_cloud.spec, {}).id == first.id
    with pytest.raises(QuotaError, match="ask the cloud's operator"):
        openstack_cloud.provider.create("token-2", openstack_cloud.spec, {})
    assert openstack_cloud.paid() == {first.id}


def test_revoked_credential_is_an_auth_error_and_a_new_one_finds_the_volume(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.revoke()
    openstack_cloud.provider.close()  # a token that was given out is good for some minutes more
    with pytest.raises(AuthError, match="make a new application credential"):
        openstack_cloud.provider.describe(volume.id)
    assert [v.id for v in openstack_cloud.renew().list_owned()] == [volume.id]


def test_credential_that_is_replaced_in_clouds_yaml_is_taken_up_by_the_running_provider(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.revoke()
    openstack_cloud.provider.close()
    with pytest.raises(AuthError, match=r"put it into clouds\.yaml"):
        openstack_cloud.provider.describe(volume.id)
    openstack_cloud.replace_credential()
    assert [v.id for v in openstack_cloud.provider.list_owned()] == [volume.id]


def test_stopped_api_is_transient_and_nothing_is_bought_twice(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.kill("cinder-api")
    with pytest.raises(TransientError):
        openstack_cloud.provider.create("token-1", openstack_cloud.spec, {})
    with pytest.raises(TransientError):
        openstack_cloud.provider.describe(volume.id)
    openstack_cloud.revive("cinder-api")
    assert openstack_cloud.provider.create("token-1", openstack_cloud.spec, {}).id == volume.id
    assert openstack_cloud.paid() == {volume.id}


def test_compute_node_that_hangs_leaves_the_volume_attaching_until_it_goes_on(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.freeze("nova-compute")
    with pytest.raises(TransientError):
        openstack_cloud.provider.attach(volume.id)  # Nova's API waits for the node longer than the agent does
    openstack_cloud.settle()
    openstack_cloud.provider.attach(volume.id)
    openstack_cloud.settle()
    assert _state(openstack_cloud, volume.id) is VolumeState.ATTACHED
    _released(openstack_cloud, volume.id)


def test_volume_service_that_dies_during_the_attach_leaves_nothing_behind(openstack_cloud: Any) -> None:
    volume = _bought(openstack_cloud)
    openstack_cloud.kill("cinder-volume")
    openstack_cloud.provider.attach(volume.id)
    assert _state(openstack_cloud, volume.id) is VolumeState.ATTACHING
    openstack_cloud.revive("cinder-volume")
    openstack_cloud.await_status(volume.id, "in-use", "available", "error", "error_attaching")
    _released(openstack_cloud, volume.id)


def test_checks_pass_with_room_and_name_what_is_missing(openstack_cloud: Any) -> None:
    wanted = VolumeSpec(4 * GIB, 60.0)
    assert [ok for _, ok, _ in checks.run(openstack_cloud.provider, wanted)] == [True] * 6
    openstack_cloud.limit(volumes=0)
    failed = {name: text for name, ok, text in checks.run(openstack_cloud.provider, wanted) if not ok}
    assert list(failed) == ["OpenStack quota"]
    assert "0 of 0 volumes are used" in failed["OpenStack quota"]


def test_checks_find_a_type_without_a_speed(openstack_cloud: Any) -> None:
    plain = openstack_cloud.open(types={})
    failed = {name: text for name, ok, text in checks.run(plain, openstack_cloud.spec) if not ok}
    assert list(failed) == ["OpenStack volume types"]
    assert "declare one as [provider.openstack.types.NAME]" in failed["OpenStack volume types"]
    plain.close()


def test_checks_find_a_type_that_cinder_does_not_show(openstack_cloud: Any) -> None:
    for settings, said in (
        ({"types": {**TYPES, "fsat": {"bandwidth_mb_s": 64}}}, "[provider.openstack.types.fsat]"),
        ({"volume_type": "fsat"}, "correct provider.openstack.volume_type"),
    ):
        other = openstack_cloud.open(**settings)
        failed = {name: text for name, ok, text in checks.run(other, openstack_cloud.spec) if not ok}
        assert list(failed) == ["OpenStack volume types"]
        assert "Cinder shows no volume type fsat, only __DEFAULT__, fast, slow;" in failed["OpenStack volume types"]
        assert said in failed["OpenStack volume types"]
        other.close()


def test_checks_find_a_credential_that_may_only_read(openstack_cloud: Any) -> None:
    reader = openstack_cloud.open_reader()
    failed = {name: text for name, ok, text in checks.run(reader, openstack_cloud.spec) if not ok}
    assert list(failed) == ["OpenStack credential"]
    assert "make one with the role member" in failed["OpenStack credential"]
    reader.close()


def test_checks_find_a_credential_without_a_project(openstack_cloud: Any) -> None:
    user = openstack_cloud.open_without_project()
    failed = {name: text for name, ok, text in checks.run(user, openstack_cloud.spec) if not ok}
    assert list(failed) == ["OpenStack credential"]
    assert "name this server's project in clouds.yaml" in failed["OpenStack credential"]
    user.close()


def test_checks_find_a_server_of_another_project(openstack_cloud: Any) -> None:
    lost = openstack_cloud.open(instance_id=OTHER_SERVER)
    failed = {name: text for name, ok, text in checks.run(lost, openstack_cloud.spec) if not ok}
    assert list(failed) == ["OpenStack server"]
    assert "of this server's project" in failed["OpenStack server"]
    lost.close()


def test_checks_end_at_a_revoked_credential(openstack_cloud: Any) -> None:
    openstack_cloud.revoke()
    results = checks.run(openstack_cloud.provider, openstack_cloud.spec)
    assert [(name, ok) for name, ok, _ in results] == [("OpenStack identity", True), ("OpenStack credential", False)]
    openstack_cloud.renew()
