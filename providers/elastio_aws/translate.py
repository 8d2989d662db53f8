"""Turns the SDK's exceptions into errors of the agent. The only module that knows both."""

from __future__ import annotations

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from elastio.errors import AuthError, ProviderError, RefusedError, TransientError
from elastio_aws.codes import cause_of, listed

# A 5xx whose body is not XML raises ResponseParserError, which is not a BotoCoreError.
SDK_ERRORS = (sdk.ClientError, sdk.BotoCoreError, ResponseParserError)
# What the SDK's parser raises for a response of the right shape with wrong values (a size of "x").
PARSE_ERRORS = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.ProfileNotFound,
    sdk.InvalidConfigError,
    sdk.ConfigParseError,
    sdk.SSOError,
    sdk.RefreshWithMFAUnsupportedError,
)
_BAD_REQUEST = (
    sdk.ParamValidationError,
    sdk.NoRegionError,
    sdk.InvalidRegionError,
    sdk.EndpointProviderError,
    sdk.UnknownEndpointError,
    sdk.UnknownRegionError,
    sdk.DataNotFoundError,
)
_MAX_TEXT = 200


def translate(operation: str, error: Exception) -> ProviderError:
    """An error that names the operation, the code and what to do. The caller raises it `from error`.

    `code` is EC2's own, as `codes` spells it, or the name of the SDK's exception if EC2 did not respond.
    """
    if isinstance(error, sdk.ClientError):
        return _from_response(operation, error)
    name = type(error).__name__
    said = _short(str(error))
    if isinstance(error, _NO_CREDENTIALS):
        return AuthError(
            f"{operation} found no usable credentials ({name}: {said}); give the instance a role or set a profile.",
            code=name,
        )
    if isinstance(error, _BAD_REQUEST):
        text = f"{operation} could not be sent ({name}: {said}); check [provider.aws]."
        return RefusedError(text, code=name)
    # a certificate that is not valid today may be the clock's fault
    clock = ", this machine's clock" if isinstance(error, sdk.SSLError) else ""
    return TransientError(
        f"{operation} got no usable response from EC2 ({name}: {said}) and will be repeated; if this persists, check "
        f"the network{clock}, provider.aws.region and endpoint_url.",
        code=name,
    )


def _from_response(operation: str, error: sdk.ClientError) -> ProviderError:
    details = error.response.get("Error", {})
    code = str(details.get("Code", "unknown"))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    # IAM appends an encoded reason of some thousand characters, which only an administrator can decode
    text = str(details.get("Message", "")).partition("Encoded authorization failure message")[0]
    said = f" (EC2: {_short(text)})" if text.strip() else ""
    known = cause_of(code, status, text)
    return known.error(f"{operation} failed with {code}: {known.advice}{said}.", code=listed(code))


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"
