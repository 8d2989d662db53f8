"""Errors as the real SDK raises them, injected through its events and seen through the provider."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as sdk

from elastio.core.model import VolumeId, VolumeSpec
from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError
from elastio.units import GIB
from elastio_aws.translate import translate
from tests.fixtures.errors import refused

from .conftest import respond

VOLUME = VolumeId("vol-0123456789abcdef0")
SPEC = VolumeSpec(10 * GIB, 130.0)


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (503, "RequestLimitExceeded", TransientError),
        (400, "Throttling", TransientError),
        (429, "SomethingNew", TransientError),
        (503, "Unavailable", TransientError),
        (500, "Server.InternalError", TransientError),
        (500, "SomethingNew", TransientError),
        (400, "IncorrectState", TransientError),
        (400, "InvalidVolume.NotFound", TransientError),
        (400, "SomethingNew", RefusedError),
        (400, "InvalidParameterCombination", RefusedError),
        (400, "InvalidZone.NotFound", RefusedError),
        (400, "VolumeLimitExceeded", QuotaError),
        (400, "MaxIOPSLimitExceeded", QuotaError),
        (500, "InsufficientVolumeCapacity", QuotaError),
        (403, "UnauthorizedOperation", AuthError),
        (401, "AuthFailure", AuthError),
        (400, "RequestExpired", AuthError),
        (400, "ExpiredToken", AuthError),
        (401, "OptInRequired", AuthError),
    ],
)
def test_ec2_code_determines_the_class(provider: Any, status: int, code: str, kind: type[ProviderError]) -> None:
    respond(provider, "CreateVolume", status, code, "A reason.")
    with pytest.raises(ProviderError) as caught:
        provider.create("token", SPEC, {})
    assert type(caught.value) is kind
    assert isinstance(caught.value.__cause__, sdk.ClientError)
    assert caught.value.code == code
    assert "A reason" in str(caught.value)


def test_encoded_reason_of_iam_is_removed(provider: Any) -> None:
    text = "You are not authorized. Encoded authorization failure message: " + "x" * 900
    respond(provider, "CreateVolume", 403, "UnauthorizedOperation", text)
    with pytest.raises(AuthError) as caught:
        provider.create("token", SPEC, {})
    assert "not authorized" in str(caught.value)
    assert "xxx" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("status", "page", "code"),
    [
        (500, "<!doctype html><p>oops</p>", "ResponseParserError"),
        (500, "upstream error", "ResponseParserError"),
        (502, "<html>Bad gateway</html>", "502"),  # of a proxy
    ],
)
def test_response_that_is_not_of_ec2_is_transient(provider: Any, status: int, page: str, code: str) -> None:
    respond(provider, "DescribeVolumes", status, body=page)
    with refused(TransientError, code):
        provider.attach(VOLUME)


def test_credentials_are_used_once_they_appear(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with refused(AuthError, "NoCredentialsError"):
        provider.list_owned()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert provider.list_owned() == ()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sdk.EndpointConnectionError(endpoint_url="http://x"), TransientError),
        (sdk.ReadTimeoutError(endpoint_url="http://x"), TransientError),
        (sdk.ConnectionClosedError(endpoint_url="http://x"), TransientError),
        (sdk.CredentialRetrievalError(provider="role", error_msg="slow"), TransientError),
        (sdk.PartialCredentialsError(provider="env", cred_var="key"), AuthError),
        (sdk.ProfileNotFound(profile="p"), AuthError),
        (sdk.ParamValidationError(report="bad"), RefusedError),
        (sdk.NoRegionError(), RefusedError),
    ],
)
def test_exception_of_the_sdk_determines_the_class(error: Exception, kind: type[ProviderError]) -> None:
    translated = translate("CreateVolume", error)
    assert type(translated) is kind
    assert translated.code == type(error).__name__
