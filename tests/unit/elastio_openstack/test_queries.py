"""The list of volumes is whole, however a cloud divides it into pages."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest

from elastio.errors import TransientError
from elastio_openstack.queries import MAX_PAGES, PAGE_SIZE, list_volumes

OWN = {"elastio:owner": "me"}


class Cinder:
    """GET /volumes/detail of a project, with Cinder's rule for links: after a page that has as many rows as may be."""

    def __init__(self, volumes: int, most_a_page: int, *, ends: bool = True) -> None:
        self.ids = [f"{number:05d}" for number in range(volumes)]
        self.most_a_page, self.ends, self.calls = most_a_page, ends, 0

    def call(self, service: str, method: str, path: str, body: object = None) -> dict[str, Any]:
        self.calls += 1
        query = {name: found[0] for name, found in parse_qs(urlparse(path).query).items()}
        most = min(int(query["limit"]), self.most_a_page)
        begin = self.ids.index(query["marker"]) + 1 if self.ends and "marker" in query else 0
        # Without the filter for metadata every volume is listed; the last one is ours.
        rows = [
            {"id": each, "metadata": OWN if each == self.ids[-1] else {}} for each in self.ids[begin : begin + most]
        ]
        links = {"volumes_links": [{"rel": "next", "href": "http://cinder/next"}]} if len(rows) == most else {}
        return {"volumes": rows, **links}


@pytest.mark.parametrize("most_a_page", [1000, PAGE_SIZE, 50, 7])
@pytest.mark.parametrize("volumes", [1, 49, 50, 51, 2 * PAGE_SIZE, 230])
def test_no_volume_is_left_out(volumes: int, most_a_page: int) -> None:
    cinder = Cinder(volumes, most_a_page)
    assert [row["id"] for row in list_volumes(cinder, OWN)] == [cinder.ids[-1]]  # type: ignore[arg-type]
    assert cinder.calls == volumes // min(PAGE_SIZE, most_a_page) + 1


def test_a_list_without_an_end_is_no_list() -> None:
    cinder = Cinder(50, 50, ends=False)
    with pytest.raises(TransientError):
        list(list_volumes(cinder, OWN))  # type: ignore[arg-type]
    assert cinder.calls == MAX_PAGES
