"""Behaviour that only OpenStack has, and how its provider handles it: on real services, or as recorded there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from elastio.core.model import Volume, VolumeId, VolumeSpec, VolumeState
from elastio.errors import AuthError, ElastioError, QuotaError, RefusedError, TransientError
from elastio.units import GIB
from elastio_openstack import checks
from elastio_openstack.provider import OpenstackProvider
from elastio_testbed.openstack.cloud_fixture import TYPES
from tests.fixtures.errors import refused

from .steps import bought, settled, state_of

Open = Callable[[Any], OpenstackProvider]
OTHER_SERVER = "22222222-2222-4222-8222-222222222222"


@pytest.fixture
def volume(openstack_cloud: Any) -> Volume:
    return bought(openstack_cloud)


def _released(cloud: Any, volume_id: VolumeId) -> None:
    """What the agent does at the end of every cycle."""
    settled(cloud, "detach", volume_id)
    settled(cloud, "delete", volume_id)
    assert cloud.billed_volumes() == set()


def test_attachment_that_nova_does_not_know_is_deleted(openstack_cloud: Any, volume: Volume) -> None:
    openstack_cloud.reserve(volume.id, openstack_cloud.provider.who().server_id)
    assert state_of(openstack_cloud, volume.id) is VolumeState.ATTACHING
    with refused(RefusedError, "volume.in-use"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.provider.detach(volume.id)
    assert state_of(openstack_cloud, volume.id) is VolumeState.AVAILABLE


def test_detach_that_nova_gave_up_is_requested_again_after_the_deadline(openstack_cloud: Any, volume: Volume) -> None:
    settled(openstack_cloud, "attach", volume.id)
    openstack_cloud.set_status(volume.id, "detaching")
    patient = openstack_cloud.provider
    assert patient.describe(volume.id).state is VolumeState.DETACHING
    patient.detach(volume.id)  # succeeds, as for a detach in progress
    assert patient.describe(volume.id).state is VolumeState.DETACHING
    hasty = openstack_cloud.open(detach_deadline_s=1e-9)
    assert [hasty.describe(volume.id).state for _ in range(2)] == [VolumeState.DETACHING, VolumeState.ATTACHED]
    with refused(TransientError, "volume.detach-lost"):
        hasty.detach(volume.id)
    assert hasty.describe(volume.id).state is VolumeState.ATTACHED
    hasty.close()
    _released(openstack_cloud, volume.id)


def test_volume_reserved_for_another_server_stays_there(openstack_cloud: Any, volume: Volume) -> None:
    openstack_cloud.reserve(volume.id, OTHER_SERVER)
    assert state_of(openstack_cloud, volume.id) is VolumeState.ELSEWHERE
    with refused(RefusedError, "volume.elsewhere"):
        openstack_cloud.provider.attach(volume.id)
    openstack_cloud.provider.detach(volume.id)
    with refused(RefusedError, "volume.in-use"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.set_status(volume.id, "available")


def test_failed_deletion_is_refused_until_an_operator_resets_it(openstack_cloud: Any, volume: Volume) -> None:
    openstack_cloud.set_status(volume.id, "error_deleting")
    assert state_of(openstack_cloud, volume.id) is VolumeState.ERROR
    with refused(RefusedError, "volume.delete-failed"):
        openstack_cloud.provider.delete(volume.id)
    openstack_cloud.set_status(volume.id, "error")
    settled(openstack_cloud, "delete", volume.id)
    assert openstack_cloud.billed_volumes() == set()


def test_volume_already_bought_is_found_at_the_quota(openstack_cloud: Any) -> None:
    first = bought(openstack_cloud)
    openstack_cloud.limit(gigabytes=2, volumes=1)
    assert openstack_cloud.provider.create("token-1", openstack_cloud.spec, {}).id == first.id
    with refused(QuotaError, "413"):
        openstack_cloud.provider.create("token-2", openstack_cloud.spec, {})
    assert openstack_cloud.billed_volumes() == {first.id}


def test_credential_that_is_replaced_in_clouds_yaml_is_used_by_the_running_provider(
    openstack_cloud: Any, volume: Volume
) -> None:
    openstack_cloud.revoke()
    openstack_cloud.provider.close()
    with refused(AuthError, "login.404"):
        openstack_cloud.provider.describe(volume.id)
    openstack_cloud.replace_credential()
    assert [v.id for v in openstack_cloud.provider.list_owned()] == [volume.id]


def test_stopped_api_is_transient_and_nothing_is_bought_twice(openstack_cloud: Any, volume: Volume) -> None:
    openstack_cloud.kill("cinder-api")
    with pytest.raises(TransientError):
        openstack_cloud.provider.create("token-1", openstack_cloud.spec, {})
    with pytest.raises(TransientError):
        openstack_cloud.provider.describe(volume.id)
    openstack_cloud.revive("cinder-api")
    assert openstack_cloud.provider.create("token-1", openstack_cloud.spec, {}).id == volume.id
    assert openstack_cloud.billed_volumes() == {volume.id}


def test_compute_node_that_hangs_leaves_the_volume_attaching_until_it_resumes(
    openstack_cloud: Any, volume: Volume
) -> None:
    openstack_cloud.freeze("nova-compute")
    with pytest.raises(TransientError):
        openstack_cloud.provider.attach(volume.id)  # Nova's API waits for the node longer than the agent waits
    openstack_cloud.settle()
    settled(openstack_cloud, "attach", volume.id)
    assert state_of(openstack_cloud, volume.id) is VolumeState.ATTACHED
    _released(openstack_cloud, volume.id)


def test_volume_service_that_dies_during_the_attach_leaves_nothing_behind(openstack_cloud: Any, volume: Volume) -> None:
    openstack_cloud.kill("cinder-volume")
    openstack_cloud.provider.attach(volume.id)
    assert state_of(openstack_cloud, volume.id) is VolumeState.ATTACHING
    openstack_cloud.revive("cinder-volume")
    openstack_cloud.await_status(volume.id, "in-use", "available", "error", "error_attaching")
    _released(openstack_cloud, volume.id)


def _failures(provider: OpenstackProvider, wanted: VolumeSpec) -> dict[str, str]:
    """The code of every check that fails, by its name."""
    found = checks.results(provider, wanted)
    return {name: result.code for name, result in found if isinstance(result, ElastioError)}


def test_checks_pass_within_the_quota_and_fail_beyond_it(openstack_cloud: Any) -> None:
    wanted = VolumeSpec(4 * GIB, 60.0)
    assert [ok for _, ok, _ in checks.run(openstack_cloud.provider, wanted)] == [True] * 6
    openstack_cloud.limit(volumes=0)
    assert _failures(openstack_cloud.provider, wanted) == {"OpenStack quota": "quota.volumes"}


def test_checks_find_a_type_that_cinder_does_not_show(openstack_cloud: Any) -> None:
    for settings, key in (
        ({"types": {**TYPES, "fsat": {"bandwidth_mb_s": 64}}}, "types.fsat"),
        ({"volume_type": "fsat"}, "volume_type"),
    ):
        other = openstack_cloud.open(**settings)
        assert _failures(other, openstack_cloud.spec) == {"OpenStack volume types": f"provider.openstack.{key}"}
        other.close()


@pytest.mark.parametrize(
    ("opened", "name", "code"),
    [
        (lambda cloud: cloud.open(types={}), "volume types", "type.none-known"),
        (lambda cloud: cloud.open_reader(), "credential", "credential.read-only"),
        (lambda cloud: cloud.open_without_project(), "credential", "credential.no-project"),
        (lambda cloud: cloud.open(instance_id=OTHER_SERVER), "server", "credential.other-project"),
    ],
    ids=["type without a speed", "read-only credential", "no project", "server of another project"],
)
def test_checks_find_what_is_wrong(openstack_cloud: Any, opened: Open, name: str, code: str) -> None:
    provider = opened(openstack_cloud)
    assert _failures(provider, openstack_cloud.spec) == {f"OpenStack {name}": code}
    provider.close()


def test_checks_end_at_a_revoked_credential(openstack_cloud: Any) -> None:
    openstack_cloud.revoke()
    results = checks.run(openstack_cloud.provider, openstack_cloud.spec)
    assert [(name, ok) for name, ok, _ in results] == [("OpenStack identity", True), ("OpenStack credential", False)]
    openstack_cloud.renew()
