"""Which error of the agent an EC2 error code becomes: one table. Pure data, without the SDK.

Codes from EC2's page "Error codes for the Amazon EC2 API". A code that is not listed is classified by its HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from elastio.errors import AuthError, ProviderError, QuotaError, RefusedError, TransientError

NOT_FOUND = "InvalidVolume.NotFound"
IN_USE = "VolumeInUse"
INCORRECT_STATE = "IncorrectState"
NOT_ATTACHED = "InvalidAttachment.NotFound"
MISMATCH = "IdempotentParameterMismatch"
BAD_VALUE = "InvalidParameterValue"
DRY_RUN_OK = "DryRunOperation"


@dataclass(frozen=True, slots=True)
class Cause:
    """The class of the error, and what an operator can do."""

    error: type[ProviderError]
    advice: str


_THROTTLED = Cause(TransientError, "the account's request rate limit is reached; the call will be repeated")
_UNAVAILABLE = Cause(TransientError, "EC2 is not available; the call will be repeated")
_WRONG_STATE = Cause(TransientError, "the volume or the instance is changing its state; the call will be repeated")
_NOT_PERMITTED = Cause(AuthError, "allow the action to the instance's role (see `elastio aws policy`)")
_CREDENTIALS = Cause(AuthError, "give the instance a role, or the agent valid credentials")
_CLOCK = Cause(AuthError, "check this machine's clock: signatures are valid for a few minutes only")
_ACCOUNT = Cause(AuthError, "the AWS account is not ready for EC2; check it in the console")
_GP3_QUOTA = Cause(QuotaError, "ask AWS for a higher EBS quota in this region or delete unused volumes")
_ATTACHMENT_LIMIT = Cause(QuotaError, "detach another volume or network interface of this instance")
_CAPACITY = Cause(QuotaError, "the zone has no capacity for this volume; try later or ask for less")
_KMS = Cause(RefusedError, "check provider.aws.kms_key_id and the permissions on that key")
_REQUEST = Cause(RefusedError, "check the settings of [provider.aws]")
_WRONG_PLACE = Cause(RefusedError, "check provider.aws.instance_id and availability_zone")
_UNLISTED = Cause(RefusedError, "look up the code in EC2's list of error codes")

_CODES: Mapping[Cause, tuple[str, ...]] = {
    _THROTTLED: (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "EC2ThrottledException",
        "TooManyRequestsException",
    ),
    _UNAVAILABLE: (
        "Unavailable",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "RequestTimeoutException",
    ),
    # NotFound may be a new volume that not every part of EC2 shows yet (eventual consistency)
    _WRONG_STATE: (NOT_FOUND, IN_USE, INCORRECT_STATE, NOT_ATTACHED, MISMATCH, "IncorrectInstanceState"),
    _NOT_PERMITTED: ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
    _CREDENTIALS: (
        "AuthFailure",
        "ExpiredToken",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    ),
    _CLOCK: ("RequestExpired", "InvalidSignatureException", "RequestTimeTooSkewed"),
    _ACCOUNT: ("Blocked", "OptInRequired", "PendingVerification"),
    _GP3_QUOTA: (
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "MaxThroughputLimitExceeded",
        "ResourceLimitExceeded",
    ),
    _ATTACHMENT_LIMIT: ("AttachmentLimitExceeded",),
    _CAPACITY: ("InsufficientVolumeCapacity", "InsufficientCapacity"),
    _KMS: ("InvalidKmsKey", "KmsKeyNotAccessibleFault", "InvalidKmsKey.InvalidState", "VolumeKmsKeyNotFound"),
    _REQUEST: (
        BAD_VALUE,
        "InvalidParameterCombination",
        "InvalidParameter",
        "MissingParameter",
        "InvalidVolumeID.Malformed",
    ),
    _WRONG_PLACE: (
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidZone.NotFound",
        "InvalidVolume.ZoneMismatch",
    ),
}
_BY_CODE = {code: cause for cause, codes in _CODES.items() for code in codes}


def cause_of(code: str, http_status: int) -> Cause:
    """The cause of a code; for one that is not listed by the HTTP status: 429 and 5xx are transient."""
    listed = _BY_CODE.get(code.removeprefix("Server.").removeprefix("Client."))
    if listed is not None:
        return listed
    if http_status == 429:
        return _THROTTLED
    return _UNAVAILABLE if http_status >= 500 else _UNLISTED
