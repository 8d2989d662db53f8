"""Which class and code an error of a service or of the SDK becomes."""

from __future__ import annotations

import pytest
from keystoneauth1 import exceptions as ksa
from openstack.exceptions import ConfigException

from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError
from elastio_openstack.translate import CloudError, message_of, translate


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (CloudError(400, "Invalid volume"), RefusedError, "400"),
        (CloudError(400, "Invalid volume: Volume status must be available to reserve"), TransientError, "400"),
        (CloudError(400, "The service is busy, please try again later"), TransientError, "400"),
        (CloudError(401, ""), AuthError, "401"),
        (CloudError(403, "Policy doesn't allow it"), AuthError, "403"),
        (CloudError(403, "The maximum allowed number of disk devices (26) to attach is exceeded"), QuotaError, "403"),
        (CloudError(404, "not found"), RefusedError, "404"),
        (CloudError(409, "conflict"), TransientError, "409"),
        (CloudError(413, "VolumeSizeExceedsAvailableQuota: Requested 5000G, quota is 200G"), QuotaError, "413"),
        (CloudError(413, "This request was rate-limited"), TransientError, "413"),
        (CloudError(429, ""), TransientError, "429"),
        (CloudError(500, ""), TransientError, "500"),
        (CloudError(503, ""), TransientError, "503"),
        (ksa.ConnectFailure("refused"), TransientError, "ConnectFailure"),
        (ksa.ConnectTimeout("slow"), TransientError, "ConnectTimeout"),
        (ksa.Unauthorized("expired"), AuthError, "login.401"),
        (ksa.NotFound("Could not find Application Credential"), AuthError, "login.404"),
        (ksa.InternalServerError("oops"), TransientError, "login.500"),
        (ksa.EndpointNotFound("no volumev3"), RefusedError, "EndpointNotFound"),
        (ksa.MissingRequiredOptions([]), AuthError, "MissingRequiredOptions"),
        (ConfigException("Cloud lab was not found"), AuthError, "ConfigException"),
        (OSError("disk"), TransientError, "OSError"),
    ],
)
def test_error_has_its_class_and_code(error: Exception, kind: type[ProviderError], code: str) -> None:
    found = translate("POST /volumes of block-storage", error)
    assert (type(found), found.code) == (kind, code)


@pytest.mark.parametrize(
    ("error", "blamed"),
    [
        (ksa.NotFound("The resource could not be found."), "auth_url"),
        (ksa.NotFound("Could not find Application Credential: a."), "make a new application credential"),
        (ksa.Unauthorized("Application credentials cannot request a scope."), "project"),
        (ksa.InvalidResponse("<html>"), "auth_url"),
        (OSError("Could not find a suitable TLS CA certificate bundle"), "cacert"),
    ],
)
def test_login_that_fails_blames_what_can_be_its_cause(error: Exception, blamed: str) -> None:
    assert blamed in str(translate("Logging in", error))


def test_message_of_the_cloud_is_shown_and_a_long_one_truncated() -> None:
    assert "Invalid volume" in str(translate("GET /types", CloudError(400, "Invalid volume")))
    assert len(str(translate("GET /types", CloudError(400, "x " * 500)))) < 350


def test_message_is_found_in_an_error_body() -> None:
    assert message_of({"badRequest": {"code": 400, "message": "Invalid volume"}}) == "Invalid volume"
    assert message_of([]) == message_of({"badRequest": "no"}) == ""
