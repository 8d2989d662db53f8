"""[value]: what time is worth."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.config.rules import Number, key


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSection:
    """[value]: what time is worth. Without it, only costs are compared."""

    hour: float | None = key(
        Number(
            "what an hour of waiting costs, in the currency of the provider, for example the price of this machine "
            "for an hour",
            least=0,
        ),
        None,
    )
