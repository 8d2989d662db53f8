"""The laboratory's own paths, `/_lab/...`: JSON in, JSON out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from werkzeug.wrappers import Request, Response

from elastio_testbed.ec2.faults import Fault
from elastio_testbed.ec2.limits import Quota

if TYPE_CHECKING:
    from elastio_testbed.ec2.endpoint import Ec2Endpoint


class Control:
    """Answers `/_lab/<name>`; 404 for an unknown name, 405 for a method it lacks, 400 for bad input.

    GET volumes, log, faults, latency, quota, buckets; PUT faults, latency, quota, buckets, spot; POST
    instances, terminate. A PUT answers what holds from now on.
    """

    def __init__(self, endpoint: Ec2Endpoint) -> None:
        self._endpoint = endpoint
        self._table: dict[str, dict[str, Callable[[Any], object]]] = {
            "volumes": {"GET": lambda _: [row.as_dict() for row in endpoint.volumes()]},
            "log": {"GET": lambda _: [entry.as_dict() for entry in endpoint.log.entries()]},
            "faults": {"GET": lambda _: endpoint.faults.pending(), "PUT": self._put_faults},
            "latency": {"GET": lambda _: endpoint.latency.as_dict(), "PUT": self._put_latency},
            "quota": {"GET": lambda _: self._quota(), "PUT": self._put_quota},
            "buckets": {"GET": lambda _: self._buckets(), "PUT": self._put_buckets},
            "spot": {"PUT": self._put_spot},
            "instances": {"POST": self._post_instance},
            "terminate": {"POST": self._post_terminate},
        }

    def answer(self, request: Request) -> Response:
        """The answer to one request."""
        methods = self._table.get(request.path.removeprefix("/_lab/").strip("/"))
        if methods is None:
            return _json({"error": f"the paths are {', '.join(f'/_lab/{name}' for name in self._table)}"}, 404)
        method = methods.get(request.method)
        if method is None:
            return _json({"error": f"this path takes {', '.join(methods)}"}, 405)
        try:
            return _json(method(_body(request)), 200)
        except ValueError as error:
            return _json({"error": str(error)}, 400)

    def _put_faults(self, body: Any) -> object:
        if not isinstance(body, list):
            raise ValueError("faults are a list of objects")
        self._endpoint.faults.replace([Fault.from_json(each) for each in body])
        return self._endpoint.faults.pending()

    def _put_latency(self, body: Any) -> object:
        self._endpoint.latency.update(_object(body))
        return self._endpoint.latency.as_dict()

    def _quota(self) -> object:
        quota = self._endpoint.quota
        return {"max_volumes": quota.max_volumes, "max_gib": quota.max_gib}

    def _put_quota(self, body: Any) -> object:
        wanted = _object(body, "max_volumes", "max_gib")
        if not all(isinstance(value, int) for value in wanted.values()):
            raise ValueError("a quota takes whole numbers")
        quota = self._endpoint.quota
        volumes, gib = wanted.get("max_volumes", quota.max_volumes), wanted.get("max_gib", quota.max_gib)
        self._endpoint.quota = Quota(max_volumes=volumes, max_gib=gib)
        return self._quota()

    def _buckets(self) -> object:
        return {"enabled": self._endpoint.buckets.enabled}

    def _put_buckets(self, body: Any) -> object:
        enabled = _object(body, "enabled").get("enabled")
        if not isinstance(enabled, bool):
            raise ValueError("buckets take {'enabled': true or false}")
        self._endpoint.buckets.enabled = enabled
        return self._buckets()

    def _put_spot(self, body: Any) -> object:
        wanted = _object(body, "instance_id", "action", "in_s")
        action, in_s = wanted.get("action", "terminate"), wanted.get("in_s", 120.0)
        self._endpoint.interrupt_spot(str(wanted.get("instance_id")), action, in_s=float(in_s))
        return {"instance_id": wanted.get("instance_id"), "action": action}

    def _post_instance(self, body: Any) -> object:
        wanted = _object(body, "instance_type", "zone")
        instance_id = self._endpoint.add_instance(
            None, instance_type=wanted.get("instance_type", "m5.large"), zone=wanted.get("zone")
        )
        return {"instance_id": instance_id, "imds_url": self._endpoint.imds_url(instance_id)}

    def _post_terminate(self, body: Any) -> object:
        instance_id = str(_object(body, "instance_id").get("instance_id"))
        self._endpoint.terminate_instance(instance_id)
        return {"instance_id": instance_id}


def _body(request: Request) -> Any:
    text = request.get_data(as_text=True)
    try:
        return json.loads(text) if text else {}
    except json.JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from error


def _object(body: Any, *names: str) -> dict[str, Any]:
    if not isinstance(body, dict) or (names and not set(body) <= set(names)):
        raise ValueError(f"the body is an object{' with ' + ', '.join(names) if names else ''}, got {body!r}")
    return body


def _json(value: object, status: int) -> Response:
    return Response(json.dumps(value, default=str) + "\n", status, mimetype="application/json")
