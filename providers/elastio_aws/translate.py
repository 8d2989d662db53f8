"""From what the SDK raises to the agent's error tree. The only place that knows both."""

from __future__ import annotations

from botocore import exceptions as sdk
from botocore.parsers import ResponseParserError

from elastio.errors import AuthError, ProviderError, RefusedError, TransientError
from elastio_aws.codes import meaning

# A 5xx whose body is no XML raises ResponseParserError, which is not a BotoCoreError.
SDK_ERRORS = (sdk.ClientError, sdk.BotoCoreError, ResponseParserError)
# What the SDK's parser lets through where an answer has the right shape and the wrong values (a size of "x").
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError)

_NO_CREDENTIALS = (
    sdk.NoCredentialsError,
    sdk.PartialCredentialsError,
    sdk.ProfileNotFound,
    sdk.InvalidConfigError,
    sdk.ConfigParseError,
    sdk.UnauthorizedSSOTokenError,
)
_BAD_REQUEST = (
    sdk.ParamValidationError,
    sdk.NoRegionError,
    sdk.InvalidRegionError,
    sdk.EndpointProviderError,
    sdk.UnknownEndpointError,
    sdk.DataNotFoundError,
)
_MAX_TEXT = 200


def translate(operation: str, error: Exception) -> ProviderError:
    """One sentence that names the operation, the code and what to do. The caller raises it `from error`.

    `code` is EC2's own, or the name of the SDK's exception where EC2 did not answer.
    """
    if isinstance(error, sdk.ClientError):
        return _answered(operation, error)
    name = type(error).__name__
    if isinstance(error, _NO_CREDENTIALS):
        return AuthError(
            f"{operation} found no usable credentials ({name}); give the instance a role or set a profile.", code=name
        )
    if isinstance(error, _BAD_REQUEST):
        text = f"{operation} could not be sent ({name}: {_short(str(error))}); check [provider.aws]."
        return RefusedError(text, code=name)
    return TransientError(
        f"{operation} got no usable answer from EC2 ({name}: {_short(str(error))}); it is asked again, "
        "and if that goes on check the network and provider.aws.endpoint_url.",
        code=name,
    )


def _answered(operation: str, error: sdk.ClientError) -> ProviderError:
    details = error.response.get("Error", {})
    code = str(details.get("Code", "unknown"))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    known = meaning(code, status)
    # IAM appends an encoded reason of a thousand characters that only an administrator can decode
    text = str(details.get("Message", "")).partition("Encoded authorization failure message")[0]
    said = f" (EC2: {_short(text)})" if text.strip() else ""
    return known.error(f"{operation} failed with {code}: {known.advice}{said}.", code=code)


def _short(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_TEXT else line[: _MAX_TEXT - 1] + "…"
