"""Errors as the real SDK raises them, injected through its events and seen through the provider."""

from __future__ import annotations

from typing import Any

import pytest
from botocore import exceptions as sdk
from botocore.retries import standard

from elastio.core.model import VolumeId, VolumeSpec
from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError
from elastio.units import GIB
from elastio_aws.codes import cause_of
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
        (500, "InternalError", TransientError),
        (500, "SomethingNew", TransientError),
        (400, "IncorrectState", TransientError),
        (400, "InvalidVolume.NotFound", TransientError),
        (400, "InvalidInstanceID.NotFound", TransientError),
        (400, "ConcurrentTagAccess", TransientError),
        (400, "IncorrectModificationState", TransientError),
        (400, "InvalidState", TransientError),
        (400, "RetryableError", TransientError),
        (400, "BandwidthLimitExceeded", TransientError),
        (408, "SomethingNew", TransientError),
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
        (403, "RequestInTheFuture", AuthError),
        (403, "InvalidSecurity.RequestHasExpired", AuthError),
        (403, "TagPolicyViolation", RefusedError),
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


def test_codes_that_the_sdk_repeats_are_transient() -> None:
    repeated = (
        *standard.ThrottledRetryableChecker._THROTTLED_ERROR_CODES,
        *standard.TransientRetryableChecker._TRANSIENT_ERROR_CODES,
    )
    assert {code: cause_of(code, 400).error for code in repeated} == dict.fromkeys(repeated, TransientError)


@pytest.mark.parametrize(
    ("spelled", "code"),
    [
        ("InvalidKMSKey.InvalidState", "InvalidKmsKey.InvalidState"),
        ("Client.InvalidKMSKey.InvalidState", "InvalidKmsKey.InvalidState"),
        ("Server.InternalError", "InternalError"),
        ("ExpiredTokenException", "ExpiredToken"),
        ("KmsKeyNotAccessibleFault", "KmsKeyNotAccessible"),
        ("client.invalidvolume.notfound", "InvalidVolume.NotFound"),
        ("SomethingNewException", "SomethingNewException"),
    ],
)
def test_spelling_of_a_code_makes_no_difference(spelled: str, code: str) -> None:
    found = translate("CreateVolume", _response(spelled))
    assert found.code == code
    assert cause_of(spelled, 400) == cause_of(code, 400)


def test_volume_that_is_unknown_in_another_spelling_is_no_volume(provider: Any) -> None:
    respond(provider, "DescribeVolumes", 400, "Client.InvalidVolume.NotFound")
    assert provider.describe(VOLUME) is None


@pytest.mark.parametrize(
    ("code", "text", "same_as"),
    [
        ("SignatureDoesNotMatch", "Signature expired: 20261124T001427Z is now earlier than 20261124T014428Z", "clock"),
        ("InvalidSignatureException", "Signature not yet current: 20261125T034853Z is still later than", "clock"),
        ("SignatureDoesNotMatch", "The request signature we calculated does not match the one you provided.", "keys"),
        ("UnrecognizedClientException", "The security token included in the request is expired", "expired"),
    ],
)
def test_message_tells_which_cause_a_code_has(code: str, text: str, same_as: str) -> None:
    certain = {"clock": "RequestTimeTooSkewed", "keys": "InvalidAccessKeyId", "expired": "ExpiredToken"}
    assert cause_of(code, 403, text) == cause_of(certain[same_as], 403)


@pytest.mark.parametrize("code", ["AuthFailure", "SignatureDoesNotMatch", "RequestExpired"])
def test_code_with_several_causes_names_the_clock_and_the_credentials(code: str) -> None:
    advice = cause_of(code, 401).advice
    assert "clock" in advice
    assert "credentials" in advice


def test_unlisted_code_is_repeated_if_ec2_asks_for_it() -> None:
    assert type(translate("CreateTags", _response("SomethingNew", "Please try again later."))) is TransientError
    assert type(translate("CreateTags", _response("MissingParameter", "Please try again."))) is RefusedError


def test_certificate_that_is_not_valid_today_may_be_the_clock() -> None:
    error = translate("CreateTags", sdk.SSLError(endpoint_url="https://x", error="certificate is not yet valid"))
    assert type(error) is TransientError
    assert "clock" in str(error)


def _response(code: str, text: str = "A reason.") -> sdk.ClientError:
    answer = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": 400}}
    return sdk.ClientError(answer, "CreateVolume")


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
