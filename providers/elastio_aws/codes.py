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
UNKNOWN_INSTANCE = "InvalidInstanceID.NotFound"
DRY_RUN_OK = "DryRunOperation"


@dataclass(frozen=True, slots=True)
class Cause:
    """The class of the error, and what an operator can do."""

    error: type[ProviderError]
    advice: str


_THROTTLED = Cause(TransientError, "the account's request rate limit is reached; the call will be repeated")
_UNAVAILABLE = Cause(TransientError, "EC2 is not available; the call will be repeated")
_WRONG_STATE = Cause(TransientError, "the volume or the instance is changing its state; the call will be repeated")
_NEW_INSTANCE = Cause(
    TransientError,
    "EC2 does not show the instance, or not yet; the call will be repeated; if this persists, check "
    "provider.aws.instance_id and region",
)
_OTHER_CHANGE = Cause(TransientError, "another change of the same resource is in progress; the call will be repeated")
_REPEAT = Cause(TransientError, "EC2 asks for the call to be repeated, which will be done")
_NOT_PERMITTED = Cause(AuthError, "allow the action to the instance's role (see `elastio aws policy`)")
_CREDENTIALS = Cause(AuthError, "give the instance a role, or the agent valid credentials")
_EXPIRED = Cause(AuthError, "the temporary credentials have expired; renew them, or give the instance a role")
_CLOCK = Cause(AuthError, "check this machine's clock: signatures are valid for a few minutes only")
_CLOCK_OR_EXPIRED = Cause(AuthError, "check this machine's clock, and renew the credentials if they are temporary ones")
_CLOCK_OR_CREDENTIALS = Cause(
    AuthError,
    "give the instance a role, or the agent valid credentials; if they are valid, check this machine's clock and that "
    "the account has the region enabled",
)
_ACCOUNT = Cause(AuthError, "the AWS account is not ready for EC2, or not in this region; check it in the console")
_GP3_QUOTA = Cause(QuotaError, "ask AWS for a higher EBS quota in this region or delete unused volumes")
_ATTACHMENT_LIMIT = Cause(QuotaError, "detach another volume or network interface of this instance")
_CAPACITY = Cause(QuotaError, "the zone has no capacity for this volume; try later or ask for less")
_KMS = Cause(RefusedError, "check provider.aws.kms_key_id and the permissions on that key")
_TAGS = Cause(RefusedError, "check provider.aws.extra_tags and the account's tag policies")
_REQUEST = Cause(RefusedError, "check the settings of [provider.aws]")
_WRONG_PLACE = Cause(RefusedError, "check provider.aws.instance_id, region and availability_zone")
_UNLISTED = Cause(RefusedError, "look up the code in EC2's list of error codes")

# From "Error codes for the Amazon EC2 API": those that a call of this package may get, and all of which EC2 says that
# they pass or asks for a retry, whatever their HTTP status; and the codes of the SDK's own retries.
_CODES: Mapping[Cause, tuple[str, ...]] = {
    _THROTTLED: (
        "RequestLimitExceeded",
        "Throttling",
        "Throttled",
        "RequestThrottled",
        "EC2Throttled",
        "TooManyRequests",
        "LimitExceeded",
        "BandwidthLimitExceeded",
        "ProvisionedThroughputExceeded",
        "SnapshotCreationPerVolumeRateExceeded",
        "SlowDown",
    ),
    _UNAVAILABLE: (
        "Unavailable",
        "ServiceUnavailable",
        "ServerInternal",
        "InternalError",
        "InternalFailure",
        "InternalServerError",
        "RequestTimeout",
        "RetryableError",
    ),
    # NotFound may be a volume so new that not every part of EC2 shows it yet (eventual consistency)
    _WRONG_STATE: (
        NOT_FOUND,
        IN_USE,
        INCORRECT_STATE,
        NOT_ATTACHED,
        MISMATCH,
        "IncorrectInstanceState",
        "IncorrectModificationState",
        "InvalidState",
        "InvalidInstanceState",
        "InvalidInstanceID.NotLinkable",
    ),
    _NEW_INSTANCE: (UNKNOWN_INSTANCE,),
    _OTHER_CHANGE: (
        "ConcurrentTagAccess",
        "ConcurrentModification",
        "ConcurrentSnapshotLimitExceeded",
        "ConcurrentCreateImageNoRebootLimitExceeded",
        "PendingSnapshotLimitExceeded",
        "PriorRequestNotComplete",
        "TransactionInProgress",
        "BundlingInProgress",
        "CreditSpecificationUpdateInProgress",
    ),
    _NOT_PERMITTED: ("UnauthorizedOperation", "AccessDenied"),
    _CREDENTIALS: ("InvalidAccessKeyId", "MissingAuthenticationToken", "IncompleteSignature"),
    _EXPIRED: ("ExpiredToken", "TokenRefreshRequired"),
    _CLOCK: ("RequestTimeTooSkewed", "RequestInTheFuture", "InvalidSecurity.RequestHasExpired"),
    _CLOCK_OR_EXPIRED: ("RequestExpired",),
    # a region that the account has not enabled does not know the account's credentials
    _CLOCK_OR_CREDENTIALS: (
        "AuthFailure",
        "InvalidClientTokenId",
        "InvalidSignature",
        "SignatureDoesNotMatch",
        "UnrecognizedClient",
    ),
    _ACCOUNT: ("AccountDisabled", "Blocked", "OptInRequired", "PendingVerification", "SubscriptionRequired"),
    _GP3_QUOTA: (
        "VolumeLimitExceeded",
        "MaxIOPSLimitExceeded",
        "MaxThroughputLimitExceeded",
        "ResourceLimitExceeded",
        "ResourceCountExceeded",
    ),
    _ATTACHMENT_LIMIT: ("AttachmentLimitExceeded",),
    _CAPACITY: ("InsufficientVolumeCapacity", "InsufficientCapacity"),
    _KMS: (
        "InvalidKmsKey",
        "KmsKeyNotAccessible",
        "InvalidKmsKey.InvalidState",
        "VolumeKmsKeyNotFound",
        "CustomerKeyHasBeenRevoked",
        "EncryptedVolumesNotSupported",
    ),
    _TAGS: ("TagLimitExceeded", "TagPolicyViolation", "InvalidTagKey.Malformed"),
    _REQUEST: (
        BAD_VALUE,
        "ClientInvalidParameterValue",
        "InvalidCharacter",
        "InvalidClientToken",
        "InvalidInput",
        "InvalidParameter",
        "InvalidParameterCombination",
        "InvalidParameterDependency",
        "InvalidRequest",
        "InvalidVolumeID.Malformed",
        "MissingParameter",
        "OperationNotPermitted",
        "UnknownParameter",
        "UnknownVolumeType",
        "Unsupported",
        "UnsupportedOperation",
        "ValidationError",
        "VolumeIOPSLimit",
    ),
    _WRONG_PLACE: (
        "InvalidAvailabilityZone",
        "InvalidInstanceID.Malformed",
        "InvalidRegion",
        "InvalidVolume.ZoneMismatch",
        "InvalidVolumeID.ZoneMismatch",
        "InvalidZone.NotFound",
        "VolumeTypeNotAvailableInZone",
        "ZonesMismatched",
    ),
}
_PREFIXES = ("client.", "server.")
_SUFFIXES = ("exception", "fault")
# Of a cause that leaves it open: words of the message, and the cause that they tell.
_TOLD: Mapping[Cause, tuple[tuple[str, Cause], ...]] = {
    _CLOCK_OR_CREDENTIALS: (
        ("signature expired", _CLOCK),
        ("signature not yet current", _CLOCK),
        ("date in the future", _CLOCK),
        ("signature we calculated", _CREDENTIALS),
        ("token included in the request is expired", _EXPIRED),
    ),
    _UNLISTED: (("try again", _REPEAT), ("retry your request", _REPEAT), ("retry the request", _REPEAT)),
}


def listed(code: str) -> str:
    """The code as this module spells it, or itself if it is not listed.

    Services spell one code with other capitals, with an ending (`ExpiredTokenException`), and with the side in front.
    """
    return _SPELLING.get(_key(code), code)


def cause_of(code: str, http_status: int, text: str = "") -> Cause:
    """The cause of a code; for one that is not listed by the HTTP status: 408, 429 and 5xx are transient.

    `text` is EC2's message: where one code has several causes, or is not listed, it may tell which.
    """
    found = _BY_CODE.get(listed(code))
    if found is None and (http_status in (408, 429) or http_status >= 500):
        return _THROTTLED if http_status == 429 else _UNAVAILABLE
    found = found or _UNLISTED
    said = text.lower()
    return next((told for words, told in _TOLD.get(found, ()) if words in said), found)


def _key(code: str) -> str:
    bare = code.strip().lower()
    for prefix in _PREFIXES:
        bare = bare.removeprefix(prefix)
    for suffix in _SUFFIXES:
        bare = bare.removesuffix(suffix)
    return bare


_BY_CODE = {code: cause for cause, codes in _CODES.items() for code in codes}
_SPELLING = {_key(code): code for code in (*_BY_CODE, DRY_RUN_OK)}
