"""The error tree. Adapters translate into it; nothing above an adapter sees an errno, an HTTP code or an SDK type.

Every message is one sentence that an operator can act on.
"""

from __future__ import annotations


class ElastioError(Exception):
    """Root of every error the agent raises on purpose.

    `code` tells causes of one class apart, for programs and tests: a configuration key, the cloud's own error code, or
    a short stable word. Empty where the class says it all. The message may be reworded at any time; a code may not.
    """

    def __init__(self, message: object = "", *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ConfigError(ElastioError):
    """The configuration is missing, unreadable or wrong; nothing was changed."""


class ProviderError(ElastioError):
    """The cloud did not do what was asked."""


class TransientError(ProviderError):
    """Asking again later may help: throttled, unavailable, timed out, answer lost."""


class RefusedError(ProviderError):
    """The request itself is wrong and asking again will not help: parameters, limits of the volume type."""


class QuotaError(ProviderError):
    """An account, capacity or attachment limit is reached."""


class AuthError(ProviderError):
    """Credentials are missing, expired or not allowed to do this."""


class HostError(ElastioError):
    """The kernel or a system program did not do what was asked."""


class DeviceBusyError(HostError):
    """A device is mounted, held, or otherwise in use."""


class NotOursError(HostError):
    """A device is not provably the one this agent created; it was not touched."""


class JournalError(ElastioError):
    """The journal cannot be read or written; without it no effect may start."""


class LedgerError(ElastioError):
    """The cost ledger cannot be read or written; what was spent is unknown until it can."""


class LockedError(ElastioError):
    """Another agent already drives this device."""


class InvariantError(ElastioError):
    """A decision broke a safety rule: a bug. The agent stops acting and keeps observing."""


class ControlError(ElastioError):
    """The daemon cannot be reached or refused a request."""
