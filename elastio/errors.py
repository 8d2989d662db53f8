"""The errors of the project. Adapters translate an errno, an HTTP status or an SDK's exception into one of them.

Every message is one sentence that an operator can act on.
"""

from __future__ import annotations


class ElastioError(Exception):
    """The base class of every error that the agent raises on purpose.

    `code` distinguishes causes within a class, for programs and tests: a configuration key, the cloud's own error code,
    or a short stable word; empty if the class is enough. A message may change at any time; a code does not.
    """

    def __init__(self, message: object = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ConfigError(ElastioError):
    """The configuration is missing, unreadable or wrong; nothing was changed."""


class ProviderError(ElastioError):
    """A request to the cloud failed."""


class TransientError(ProviderError):
    """A later retry may help: throttled, unavailable, timed out, answer lost."""


class RefusedError(ProviderError):
    """The request itself is wrong, and a retry will not help: parameters, limits of the volume type."""


class QuotaError(ProviderError):
    """An account, capacity or attachment limit is reached."""


class AuthError(ProviderError):
    """Credentials are missing, expired or do not permit this."""


class HostError(ElastioError):
    """A request to the kernel or to a system program failed."""


class DeviceBusyError(HostError):
    """A device is mounted, held, or otherwise in use."""


class NotOursError(HostError):
    """A device or volume is not provably this agent's; it was not changed."""


class JournalError(ElastioError):
    """The journal cannot be read or written; without it no effect may start."""


class UnsyncedError(JournalError):
    """The record was written, but it is not certain to be durable: the next start may find it, or may not."""


class LedgerError(ElastioError):
    """The ledger cannot be read or written; what was spent is unknown meanwhile."""


class LockedError(ElastioError):
    """Another agent already serves this device."""


class InvariantError(ElastioError):
    """A decision would have broken a safety rule, which is a bug. The agent stops acting and continues to observe."""


class ControlError(ElastioError):
    """The agent cannot be reached, or refused a request."""
