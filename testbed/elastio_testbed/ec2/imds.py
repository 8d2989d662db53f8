"""The instance metadata service, version 2, one tree per instance."""

from __future__ import annotations

import json
import secrets
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from moto.ec2.models.instances import Instance
from werkzeug.wrappers import Request, Response

from elastio_testbed.ec2.world import World

ROLE = "elastio-testbed"
_CREDENTIALS_HOLD_S = 6 * 3600
# A session token lives for 1 s to 6 h (EC2 user guide, "Use IMDSv2").
_TTL_HEADER = "X-aws-ec2-metadata-token-ttl-seconds"
_TOKEN_HEADER = "X-aws-ec2-metadata-token"
_MAX_TTL_S = 21_600


class Imds:
    """Answers `/imds/<instance-id>/latest/...`: PUT for a token, GET with a token for the rest, 401 without one."""

    def __init__(self, world: World, account_id: str) -> None:
        self._world = world
        self._account_id = account_id
        self._lock = threading.Lock()
        self._sessions: dict[str, tuple[str, float]] = {}  # by token: instance id and end

    def answer(self, request: Request) -> Response:
        """The response to one request; 404 for an unknown instance or path."""
        _, _, instance_id, *rest = request.path.split("/", 3)
        path = "/".join(rest).strip("/")
        with self._world.lock:
            instance = self._world.instance(instance_id)
            if instance is None:
                return Response("", 404)
            if path == "latest/api/token":
                return self._token(request, instance_id)
            if request.method != "GET":
                return Response("", 405)
            if not self._may(request, instance_id):
                return Response("", 401)
            text = self._tree(instance).get(path)
        return Response("", 404) if text is None else Response(text, 200, mimetype="text/plain")

    def _token(self, request: Request, instance_id: str) -> Response:
        ttl = request.headers.get(_TTL_HEADER, "")
        if request.method != "PUT" or not ttl.isascii() or not ttl.isdigit() or not 1 <= int(ttl) <= _MAX_TTL_S:
            return Response("", 400 if request.method == "PUT" else 405)
        token = secrets.token_urlsafe(40)
        now = time.monotonic()
        with self._lock:
            self._sessions = {key: each for key, each in self._sessions.items() if each[1] > now}
            self._sessions[token] = (instance_id, now + int(ttl))
        return Response(token, 200, {_TTL_HEADER: ttl}, mimetype="text/plain")

    def _may(self, request: Request, instance_id: str) -> bool:
        with self._lock:
            known, ends_at = self._sessions.get(request.headers.get(_TOKEN_HEADER, ""), ("", 0.0))
        return known == instance_id and ends_at > time.monotonic()

    def _tree(self, instance: Instance) -> dict[str, str]:
        zone = instance.availability_zone or ""
        document = {
            "accountId": self._account_id,
            "architecture": instance.architecture,
            "availabilityZone": zone,
            "imageId": instance.image_id,
            "instanceId": instance.id,
            "instanceType": instance.instance_type,
            "region": self._world.region,
            "version": "2017-09-30",
        }
        tree = {
            "latest/meta-data/instance-id": instance.id,
            "latest/meta-data/instance-type": instance.instance_type,
            "latest/meta-data/placement/region": self._world.region,
            "latest/meta-data/placement/availability-zone": zone,
            "latest/meta-data/iam/security-credentials": ROLE,
            f"latest/meta-data/iam/security-credentials/{ROLE}": json.dumps(_credentials(instance.id)),
            "latest/meta-data/events/maintenance/scheduled": json.dumps(self._world.maintenance.get(instance.id, [])),
            "latest/dynamic/instance-identity/document": json.dumps(document),
        }
        notice = self._world.spot_notices.get(instance.id)
        if notice is not None:
            tree["latest/meta-data/spot/instance-action"] = json.dumps(notice)
        return tree


def spot_notice(action: str, in_s: float) -> dict[str, str]:
    """A spot instance action as IMDS shows it: terminate, stop or hibernate, and its time."""
    return {"action": action, "time": _iso(in_s)}


def scheduled_event(code: str, in_s: float) -> dict[str, str]:
    """An event as IMDS lists it (EC2 user guide, "Scheduled events for your instances")."""
    return {
        "Code": code,
        "Description": "The instance is running on degraded hardware",
        "EventId": "instance-event-0d59937288b749b32",
        "NotBefore": format_datetime(datetime.now(UTC) + timedelta(seconds=in_s), usegmt=True).partition(", ")[2],
        "State": "active",
    }


def _credentials(instance_id: str) -> dict[str, str]:
    return {
        "Code": "Success",
        "LastUpdated": _iso(0),
        "Type": "AWS-HMAC",
        # Twenty capital letters and digits, as in temporary keys; the endpoint does not check signatures.
        "AccessKeyId": "ASIA" + instance_id.removeprefix("i-")[-16:].upper().rjust(16, "0"),
        "SecretAccessKey": "of-the-laboratory",
        "Token": instance_id,
        "Expiration": _iso(_CREDENTIALS_HOLD_S),
    }


def _iso(in_s: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=in_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
