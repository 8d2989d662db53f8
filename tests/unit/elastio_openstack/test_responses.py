"""A malformed response is a transient error, not an unexpected exception that ends the worker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastio.errors import TransientError
from elastio_openstack.responses import list_in
from elastio_testbed.openstack.cassette import Cassette
from elastio_testbed.openstack.cloud_fixture import OpenstackCloud
from elastio_testbed.openstack.proxy import ApiProxy

RECORDED = Path(__file__).parents[2] / "contract/recorded"
DESCRIBE = "test_new_volume_becomes_available_and_keeps_its_properties[openstack_cloud]"
QUOTE = "test_quote_has_a_price_and_its_source[openstack_cloud]"

Ask = Callable[[Any], object]


def _described(provider: Any) -> object:
    return provider.describe(provider.create("token-1", OpenstackCloud.spec, {}).id)


def _quoted(provider: Any) -> object:
    return provider.quote(OpenstackCloud.spec)


def _volume_id(entries: list[dict[str, Any]]) -> str:
    return str(next(e["body"]["volume"]["id"] for e in entries if "volume" in (e.get("body") or {})))


@pytest.mark.runs_programs
@pytest.mark.parametrize(
    ("name", "path", "body", "ask"),
    [
        (DESCRIBE, "/volumes/{id}", {}, _described),
        (DESCRIBE, "/volumes/{id}", {"volume": []}, _described),
        (DESCRIBE, "/volumes/{id}", {"volume": {"id": "{id}", "metadata": [5], "status": "available"}}, _described),
        (DESCRIBE, "/volumes/{id}", {"volume": {"id": "{id}", "metadata": {}, "size": "large"}}, _described),
        (DESCRIBE, "/volumes/{id}", {"volume": {"id": "{id}", "metadata": {}, "size": [1]}}, _described),
        (DESCRIBE, "/volumes/{id}", {"volume": {"id": "another", "metadata": {}, "size": 1}}, _described),
        (DESCRIBE, "/volumes", {}, _described),
        (DESCRIBE, "/volumes", {"volume": {}}, _described),
        (DESCRIBE, "/types", {"volume_types": [{}]}, _described),
        (QUOTE, "/types", {}, _quoted),
        (QUOTE, "/types", {"volume_types": {"name": "fast"}}, _quoted),
        (QUOTE, "/limits", {}, _quoted),
        (QUOTE, "/limits", {"limits": {"absolute": {"maxTotalVolumeGigabytes": "many"}}}, _quoted),
        (QUOTE, "/limits", {"limits": {"absolute": None}}, _quoted),
    ],
)
def test_malformed_response_is_transient(tmp_path: Path, name: str, path: str, body: dict[str, Any], ask: Ask) -> None:
    entries = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    volume_id = _volume_id(entries) if "{id}" in path or path == "/volumes" else ""
    wanted = path.replace("{id}", volume_id)
    for entry in entries:
        if entry.get("service") == "cinder" and entry["path"].endswith(wanted):
            entry["body"] = json.loads(json.dumps(body).replace("{id}", volume_id))
    with ApiProxy(Cassette(entries), live=False) as proxy:
        cloud = OpenstackCloud(proxy, None, tmp_path)
        with pytest.raises(TransientError) as caught:
            ask(cloud.provider)
        assert caught.value.code in ("response.malformed", "response.other-volume")
        assert proxy.cassette.failure is None
        cloud.close()


def test_list_with_something_else_in_it_is_transient() -> None:
    with pytest.raises(TransientError):
        list_in({"volumes": [{}, None]}, "volumes")
