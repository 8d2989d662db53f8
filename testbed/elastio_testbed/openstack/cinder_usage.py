"""The volumes that an experiment bought from Cinder, with their lifetimes, from the services' records.

Their times are whole seconds.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from elastio.units import GIB
from elastio_testbed.ec2 import Purchase, Scale
from elastio_testbed.errors import LabError
from elastio_testbed.image.tools import run
from elastio_testbed.openstack import bootstrap
from elastio_testbed.openstack.cloud_fixture import Tenant
from elastio_testbed.openstack.lab import Lab

_MYSQL_S = 60.0
_MIB_S = 2**20
# The first microversion in which Nova shows when an action ended.
_ACTIONS_VERSION = "2.58"
_NULL = "NULL"

Span = tuple[float, float]


class CinderUsage:
    """The cache volumes of one server since a given time: a `Billing`."""

    scale = Scale(gib_bytes=GIB, mib_s_bytes=_MIB_S)

    def __init__(self, lab: Lab, tenant: Tenant, since: float) -> None:
        self._lab, self._tenant, self._since = lab, tenant, since

    def volumes(self) -> list[Purchase]:
        """All cache volumes, with deleted ones, which only the database has. Raises LabError or ImageError."""
        names = "v.id, v.size, t.name, v.created_at, v.launched_at, v.deleted_at"
        question = (
            f"SELECT {names} FROM volumes v JOIN volume_types t ON v.volume_type_id = t.id "
            f"WHERE v.display_name LIKE 'elastio-%' AND v.created_at >= FROM_UNIXTIME({int(self._since)}) "
            "ORDER BY v.created_at"
        )
        argv = ["chroot", str(self._lab.root), "mysql", "--batch", "--skip-column-names", "cinder"]
        text = run(argv, timeout_s=_MYSQL_S, stdin=f"SET time_zone = '+00:00'; {question};")
        attachments = attach_spans(self._actions())
        return [usage_of(line.split("\t"), attachments) for line in text.splitlines()]

    def live_volumes(self) -> list[str]:
        """The ids of cache volumes that are not deleted."""
        return [row["id"] for row in self._tenant.volumes() if row["name"].startswith("elastio-")]

    def settle(self, timeout_s: float) -> None:
        """Wait for the end of deletions. Raises LabError after `timeout_s`."""
        self._tenant.settle(timeout_s)

    def _actions(self) -> list[Mapping[str, Any]]:
        path = f"/servers/{self._tenant.server_id}/os-instance-actions"
        answer = self._tenant.cloud.compute.get(path, microversion=_ACTIONS_VERSION)
        if answer.status_code != HTTPStatus.OK:
            raise LabError(f"Nova does not list its actions: {answer.status_code} {answer.text}")
        found: list[Mapping[str, Any]] = answer.json()["instanceActions"]
        return found


def attach_spans(actions: Iterable[Mapping[str, Any]]) -> list[Span]:
    """Start and end of each successful attach, in their order. Nova does not name the volume.

    A failed action has the message "Error".
    """
    done = [a for a in actions if a["action"] == "attach_volume" and not a["message"]]
    return sorted((unix_time(a["start_time"]), unix_time(a["updated_at"])) for a in done)


def usage_of(columns: Sequence[str], attachments: Sequence[Span]) -> Purchase:
    """The volume of one database row, without the attachment where Nova has no record of one.

    Its attach is the first one after it was available: volumes do not overlap.
    """
    volume_id, size, kind, created, available, deleted = columns
    speed = next(k.bytes_s for k in bootstrap.TYPES if k.name == kind)
    ended = None if deleted == _NULL else unix_time(deleted)
    history = [(unix_time(created), "creating")]
    if available != _NULL:
        history.append((unix_time(available), "available"))
        history += _attached(attachments, unix_time(available), ended)
    if ended is not None:
        history.append((ended, "deleted"))
    return Purchase(volume_id, volume_id[:20], int(size), speed / _MIB_S, history[0][0], ended, tuple(history))


def _attached(attachments: Sequence[Span], available: float, ended: float | None) -> list[tuple[float, str]]:
    for begin, end in attachments:
        if begin >= available and (ended is None or end <= ended):
            return [(begin, "in-use/attaching"), (end, "in-use/attached")]
    return []


def unix_time(text: str) -> float:
    """Seconds of the Unix epoch for a UTC time in the format of the services and their database."""
    return datetime.datetime.fromisoformat(text).replace(tzinfo=datetime.UTC).timestamp()
