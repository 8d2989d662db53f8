"""A purchase whose answer was lost is not repeated while it may still be carried out.

Cinder has no client token. A request that a proxy or a client has given up may wait in the service and buy the volume
later, when nobody who looks for it by its name finds it yet. A repeat would buy a second one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elastio.errors import ProviderError, TransientError

# A purchase without an answer shows within this time, in seconds, or was not carried out.
SHOWN_S = 60.0
# Codes of requests that Cinder has surely not carried out: it refused the rate, or was never reached.
UNSENT = frozenset({"413", "429", "DiscoveryFailure"})


class LastPurchase:
    """When a purchase without an answer was sent. `seconds` is a monotonic clock."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._token, self._sent_at = "", 0.0
        self._own = ""  # the token that this process has sent last: of that it knows what came of it

    def sent_before(self, token: str, seconds_ago: float) -> None:
        """Note a purchase without an answer that another process has sent, before it was killed."""
        if token not in (self._own, self._token):
            self._token, self._sent_at = token, self._seconds() - seconds_ago

    def require_over(self, token: str) -> None:
        """Raises TransientError while a purchase with this token may still be carried out."""
        if token == self._token and self._seconds() - self._sent_at < SHOWN_S:
            text = "A purchase without an answer may still be carried out; its volume is looked for."
            raise TransientError(text, code="volume.unconfirmed")

    @contextmanager
    def sending(self, token: str) -> Iterator[None]:
        """The context in which a purchase is sent. It is noted unless there is an answer, whatever it says."""
        before = self._token, self._sent_at
        self._own = self._token = token
        self._sent_at = self._seconds()
        try:
            yield
        except TransientError as error:
            if error.code in UNSENT or error.code.startswith("login."):
                self._token, self._sent_at = before
            raise
        except ProviderError:
            self._token = ""
            raise
        self._token = ""
