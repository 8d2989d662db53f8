"""The whole text: what is always there, what the agent says, and what the ledger has. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from elastio.control.status import Status
from elastio.metrics.agent_values import agent_values
from elastio.metrics.exposition import Value, render
from elastio.metrics.ledger_values import Bills, ledger_values


def document(seen: Status | None, bills: Bills | None, *, wall: float, device: str, version: str) -> str:
    """The metrics at `wall`. `seen` None: no agent answers; `bills` None: the ledger cannot be read.

    `version` is that of the command, which stands in for the agent's while none answers.
    """
    return render(_values(seen, bills, wall, version), device)


def _values(seen: Status | None, bills: Bills | None, wall: float, version: str) -> Iterator[Value]:
    yield Value("elastio_up", seen is not None)
    yield Value("elastio_metrics_timestamp_seconds", wall)
    yield Value("elastio_ledger_readable", bills is not None)
    yield Value("elastio_build_info", 1, (seen.agent.version if seen else version,))
    if seen is not None:
        yield from agent_values(seen)
    if bills is not None:
        yield from ledger_values(bills)
