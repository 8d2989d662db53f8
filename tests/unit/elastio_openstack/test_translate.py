"""What services and SDK say becomes one sentence of the right class."""

from __future__ import annotations

import pytest
from keystoneauth1 import exceptions as ksa
from openstack.exceptions import ConfigException

from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError
from elastio_openstack.translate import CloudError, translate, words_of


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (400, "Invalid volume", RefusedError),
        (401, "", AuthError),
        (403, "Policy doesn't allow it", AuthError),
        (403, "The maximum allowed number of disk devices (26) to attach is exceeded", QuotaError),
        (404, "not found", RefusedError),
        (409, "conflict", TransientError),
        (413, "VolumeSizeExceedsAvailableQuota: Requested 5000G, quota is 200G", QuotaError),
        (413, "This request was rate-limited", TransientError),
        (429, "", TransientError),
        (500, "", TransientError),
        (503, "", TransientError),
    ],
)
def test_status_has_its_class(status: int, text: str, kind: type[ProviderError]) -> None:
    error = translate("POST /volumes of block-storage", CloudError(status, text))
    assert type(error) is kind
    assert str(error).startswith("POST /volumes of block-storage")
    assert text in str(error)


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ksa.ConnectFailure("refused"), TransientError, "no answer"),
        (ksa.ConnectTimeout("slow"), TransientError, "no answer"),
        (ksa.Unauthorized("expired"), AuthError, "make a new application credential"),
        (ksa.NotFound("Could not find Application Credential"), AuthError, "make a new application credential"),
        (ksa.InternalServerError("oops"), TransientError, "Keystone answers 500"),
        (ksa.EndpointNotFound("no volumev3"), RefusedError, "catalogue"),
        (ksa.MissingRequiredOptions([]), AuthError, "no usable credentials"),
        (ConfigException("Cloud lab was not found"), AuthError, r"clouds\.yaml"),
        (OSError("disk"), TransientError, "no usable answer"),
    ],
)
def test_what_the_sdk_raises_has_its_class(error: Exception, kind: type[ProviderError], said: str) -> None:
    found = translate("Logging in", error)
    assert type(found) is kind
    with pytest.raises(kind, match=said):
        raise found


def test_long_answer_is_cut() -> None:
    assert len(str(translate("GET /types", CloudError(400, "x " * 500)))) < 350


def test_words_are_found_in_an_error_body() -> None:
    assert words_of({"badRequest": {"code": 400, "message": "Invalid volume"}}) == "Invalid volume"
    assert words_of([]) == words_of({"badRequest": "no"}) == ""
