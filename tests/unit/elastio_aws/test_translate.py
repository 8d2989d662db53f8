"""Errors as the real SDK raises them, through its events, seen from above the provider."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as sdk

from elastio.core.model import VolumeId, VolumeSpec
from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError
from elastio.units import GIB
from elastio_aws.codes import code_of
from elastio_aws.translate import translate

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
def test_code_becomes_its_class_and_is_named(
    open_aws: Any, answer: Any, status: int, code: str, kind: type[ProviderError]
) -> None:
    provider = open_aws()
    answer(provider, "CreateVolume", status, code, "A reason.")
    with pytest.raises(ProviderError) as caught:
        provider.create("token", SPEC, {})
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"CreateVolume failed with {code}: ")
    assert str(caught.value).endswith("(EC2: A reason).")
    assert isinstance(caught.value.__cause__, sdk.ClientError)
    assert code_of(caught.value) == code


def test_encoded_reason_of_iam_is_left_out(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    text = "You are not authorized. Encoded authorization failure message: " + "x" * 900
    answer(provider, "CreateVolume", 403, "UnauthorizedOperation", text)
    with pytest.raises(AuthError) as caught:
        provider.create("token", SPEC, {})
    assert "not authorized" in str(caught.value)
    assert "iam-policy.json" in str(caught.value)
    assert "xxx" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("page", ["<!doctype html><p>oops</p>", "upstream error"])
def test_answer_that_is_no_xml_is_transient(open_aws: Any, answer: Any, page: str) -> None:
    provider = open_aws()
    answer(provider, "DescribeVolumes", 500, body=page)
    with pytest.raises(TransientError, match="DescribeVolumes got no usable answer"):
        provider.attach(VOLUME)


def test_page_of_a_proxy_is_transient(open_aws: Any, answer: Any) -> None:
    provider = open_aws()
    answer(provider, "DescribeVolumes", 502, body="<html>Bad gateway</html>")
    with pytest.raises(TransientError, match="502"):
        provider.attach(VOLUME)


def test_nobody_listening_is_transient(open_aws: Any) -> None:
    provider = open_aws(endpoint_url="http://127.0.0.1:9")
    with pytest.raises(TransientError, match="DescribeVolumes got no usable answer from EC2"):
        provider.describe(VOLUME)


def test_throttled_call_is_repeated_up_to_the_attempts_set(open_aws: Any, answer: Any) -> None:
    provider = open_aws(max_attempts=2)
    calls = answer(provider, "DescribeVolumes", 503, "RequestLimitExceeded")
    with pytest.raises(TransientError):
        provider.describe(VOLUME)
    assert len(calls) == 2


def test_missing_credentials_are_found_once_they_appear(open_aws: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    provider = open_aws()
    with pytest.raises(AuthError, match="give the instance a role"):
        provider.list_owned()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert provider.list_owned() == ()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (sdk.ReadTimeoutError(endpoint_url="http://x"), TransientError),
        (sdk.ConnectionClosedError(endpoint_url="http://x"), TransientError),
        (sdk.CredentialRetrievalError(provider="role", error_msg="slow"), TransientError),
        (sdk.PartialCredentialsError(provider="env", cred_var="key"), AuthError),
        (sdk.ProfileNotFound(profile="p"), AuthError),
        (sdk.ParamValidationError(report="bad"), RefusedError),
        (sdk.NoRegionError(), RefusedError),
    ],
)
def test_error_of_the_sdk_itself_becomes_its_class(error: Exception, kind: type[ProviderError]) -> None:
    translated = translate("CreateVolume", error)
    assert type(translated) is kind
    assert "CreateVolume" in str(translated)
    assert type(error).__name__ in str(translated)
