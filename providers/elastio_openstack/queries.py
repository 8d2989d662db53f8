"""GET requests for volumes: one volume, or every volume with given metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from elastio.core.model import VolumeId
from elastio.errors import ProviderError, TransientError
from elastio_openstack.catalog import CINDER
from elastio_openstack.responses import list_in, object_in, parsing

if TYPE_CHECKING:
    from elastio_openstack.client import Cloud

NOT_FOUND = "404"
PAGE_SIZE = 100
MAX_PAGES = 100


def show_volume(cloud: Cloud, volume_id: VolumeId) -> dict[str, Any] | None:
    """The volume as Cinder shows it, or None if there is none. Raises TransientError if Cinder returns another one."""
    try:
        found = object_in(cloud.call(CINDER, "GET", f"/volumes/{quote(volume_id)}"), "volume")
    except ProviderError as error:
        if error.code == NOT_FOUND:
            return None
        raise
    if found.get("id") != volume_id:
        text = f"Cinder returned another volume than {volume_id}; the call will be repeated."
        raise TransientError(text, code="response.other-volume")
    return found


def list_volumes(cloud: Cloud, metadata: Mapping[str, str], **filters: str) -> Iterator[dict[str, Any]]:
    """Every volume with these metadata, page by page. Raises TransientError beyond MAX_PAGES."""
    # Cinder parses the filter as a Python literal
    query = {"metadata": repr(dict(metadata)), "limit": str(PAGE_SIZE), **filters}
    for _ in range(MAX_PAGES):
        response = cloud.call(CINDER, "GET", f"/volumes/detail?{urlencode(query)}")
        shown = list_in(response, "volumes")
        # a cloud may be configured without this filter: then it returns every volume
        with parsing("volumes"):
            found = [row for row in shown if metadata.items() <= (row.get("metadata") or {}).items()]
        yield from found
        # A cloud may be configured for shorter pages than asked for (osapi_max_limit): then it links to the next one.
        if not shown or (len(shown) < PAGE_SIZE and not response.get("volumes_links")):
            return
        query["marker"] = str(shown[-1].get("id"))
    text = f"The list of volumes did not end within {MAX_PAGES} pages; the call will be repeated."
    raise TransientError(text, code="response.too-long")


def attachment_records(cloud: Cloud, volume_id: str) -> list[dict[str, Any]]:
    """Cinder's attachment records of a volume, including incomplete ones."""
    return list_in(cloud.call(CINDER, "GET", f"/attachments?{urlencode({'volume_id': volume_id})}"), "attachments")
