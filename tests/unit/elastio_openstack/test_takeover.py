"""Whether a server is gone for good, by what Nova and Cinder answer."""

from __future__ import annotations

from typing import Any

import pytest

from elastio.core.foreign import OwnerState
from elastio.core.model import VolumeId, VolumeState, VolumeTag
from elastio.errors import AuthError, ElastioError, RefusedError
from elastio_openstack import takeover
from elastio_openstack.volumes import BACKING_KEY, OWNER_KEY, STATE_KEY

ME = {"id": "here", "tenant_id": "project"}
VOLUME = {
    "id": "0c0c7c7a-1111-4222-8333-444444444444",
    "status": "available",
    "size": 10,
    "metadata": {OWNER_KEY: "gone", STATE_KEY: "dirty"},
    takeover.PROJECT_OF_VOLUME: "project",
}


class Answers:
    """A cloud that answers from a table of (method, path); an error is raised."""

    def __init__(self, **servers: Any) -> None:
        self.servers, self.sent = servers, []  # type: ignore[var-annotated]

    def call(self, service: str, method: str, path: str, body: Any = None) -> Any:
        self.sent.append((method, path, body))
        if path.startswith("/servers/"):
            found = self.servers[path.rpartition("/")[2]]
            if isinstance(found, ElastioError):
                raise found
            return {"server": {"id": "gone", "status": found}}
        return {"volume": VOLUME}


NOT_FOUND = RefusedError("no such server", code="404")


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (NOT_FOUND, OwnerState.GONE),
        ("DELETED", OwnerState.GONE),
        ("SOFT_DELETED", OwnerState.THERE),
        ("SHUTOFF", OwnerState.THERE),
        ("ACTIVE", OwnerState.THERE),
    ],
)
def test_only_a_deleted_server_is_gone(status: Any, state: OwnerState) -> None:
    seen = takeover.foreign(Answers(gone=status), VOLUME, ME)  # type: ignore[arg-type]
    assert (seen.owner, seen.owner_state, seen.volume.state) == ("gone", state, VolumeState.AVAILABLE)


@pytest.mark.parametrize(
    "changes",
    [{takeover.PROJECT_OF_VOLUME: "another"}, {takeover.PROJECT_OF_VOLUME: None}, {"metadata": {}}],
    ids=["another project", "no project", "no owner"],
)
def test_server_of_another_project_and_no_owner_prove_nothing(changes: dict[str, Any]) -> None:
    seen = takeover.foreign(Answers(gone=NOT_FOUND), {**VOLUME, **changes}, ME)  # type: ignore[arg-type]
    assert seen.owner_state is OwnerState.UNKNOWN


def test_credential_that_may_not_see_the_server_is_refused() -> None:
    with pytest.raises(AuthError):
        takeover.foreign(Answers(gone=AuthError("no", code="403")), VOLUME, ME)  # type: ignore[arg-type]


def test_own_volume_needs_no_question() -> None:
    cloud = Answers()
    seen = takeover.foreign(cloud, {**VOLUME, "metadata": {OWNER_KEY: "here"}}, ME)  # type: ignore[arg-type]
    assert (seen.owner_state, cloud.sent) == (OwnerState.SELF, [])


class Rows:
    """A cloud that ignores the filter by metadata, as some do, and returns every volume."""

    def call(self, service: str, method: str, path: str, body: Any = None) -> Any:
        if path.startswith("/attachments"):
            return {"attachments": [{"instance": "gone"}]}
        ours = {**VOLUME, "metadata": {**VOLUME["metadata"], BACKING_KEY: "uuid"}}  # type: ignore[dict-item]
        other = {**VOLUME, "id": "other", "metadata": {BACKING_KEY: "another"}}
        return {"volumes": [ours, {**ours, "id": "used", "status": "in-use"}, other]}


def test_volumes_of_the_backing_device_are_listed_whoever_owns_them() -> None:
    found = takeover.list_for_backing(Rows(), "uuid", "here")  # type: ignore[arg-type]
    assert [(v.id, v.state, v.tag) for v in found] == [
        (VOLUME["id"], VolumeState.AVAILABLE, VolumeTag.DIRTY),
        ("used", VolumeState.ELSEWHERE, VolumeTag.DIRTY),
    ]


def test_owner_and_state_change_in_one_request() -> None:
    cloud = Answers()
    takeover.take_over(cloud, VolumeId(str(VOLUME["id"])), "here")  # type: ignore[arg-type]
    method, path, body = cloud.sent[0]
    assert (method, path) == ("POST", f"/volumes/{VOLUME['id']}/metadata")
    assert body == {"metadata": {OWNER_KEY: "here", STATE_KEY: VolumeTag.DIRTY.value}}
