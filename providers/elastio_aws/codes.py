"""What EC2's error codes mean to the agent: one table. Pure data, without the SDK.

Codes from EC2's page "Error codes for the Amazon EC2 API"; what is not listed is judged by its HTTP status.
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
class Meaning:
    """The class an error becomes, and what an operator can do."""

    error: type[ProviderError]
    advice: str


_SLOW = Meaning(TransientError, "the account's request rate is used up, so it is asked again later")
_DOWN = Meaning(TransientError, "EC2 is not available at the moment, so it is asked again later")
_STATE = Meaning(TransientError, "the volume or the instance is between two states, so it is looked at again")
_POLICY = Meaning(AuthError, "allow the action to the instance's role, see docs/reference/iam-policy.json")
_KEYS = Meaning(AuthError, "give the instance a role, or this agent valid credentials")
_CLOCK = Meaning(AuthError, "check this machine's clock, signatures are valid for some minutes only")
_ACCOUNT = Meaning(AuthError, "the AWS account is not ready for EC2, so look into its console")
_GP3_QUOTA = Meaning(QuotaError, "ask AWS for a higher EBS quota in this region or delete unused volumes")
_SLOTS = Meaning(QuotaError, "detach another volume or network interface of this instance")
_CAPACITY = Meaning(QuotaError, "the zone has no such volume to give at the moment, so try later or ask for less")
_KMS = Meaning(RefusedError, "check provider.aws.kms_key_id and the rights on that key")
_REQUEST = Meaning(RefusedError, "check the settings of [provider.aws]")
_GONE = Meaning(RefusedError, "check provider.aws.instance_id and availability_zone")

_MEANINGS: Mapping[Meaning, tuple[str, ...]] = {
    _SLOW: (
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "EC2ThrottledException",
        "TooManyRequestsException",
    ),
    _DOWN: (
        "Unavailable",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "RequestTimeoutException",
    ),
    # NotFound may be a volume that is too young to be seen by every part of EC2 (eventual consistency)
    _STATE: (NOT_FOUND, IN_USE, INCORRECT_STATE, NOT_ATTACHED, MISMATCH, "IncorrectInstanceState"),
    _POLICY: ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException"),
    _KEYS: (
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
    _SLOTS: ("AttachmentLimitExceeded",),
    _CAPACITY: ("InsufficientVolumeCapacity", "InsufficientCapacity"),
    _KMS: ("InvalidKmsKey", "KmsKeyNotAccessibleFault", "InvalidKmsKey.InvalidState", "VolumeKmsKeyNotFound"),
    _REQUEST: (
        BAD_VALUE,
        "InvalidParameterCombination",
        "InvalidParameter",
        "MissingParameter",
        "InvalidVolumeID.Malformed",
    ),
    _GONE: (
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidZone.NotFound",
        "InvalidVolume.ZoneMismatch",
    ),
}
_BY_CODE = {code: meaning for meaning, codes in _MEANINGS.items() for code in codes}


def meaning(code: str, http_status: int) -> Meaning:
    """What a code means; one that is not listed by its status: 429 and 5xx pass, the rest does not."""
    listed = _BY_CODE.get(code.removeprefix("Server.").removeprefix("Client."))
    if listed is not None:
        return listed
    if http_status == 429:
        return _SLOW
    return _DOWN if http_status >= 500 else Meaning(RefusedError, "look the code up in EC2's list of error codes")
