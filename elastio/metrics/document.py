"""The whole text: what is always there, what the agent says, and what the ledger has. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from elastio.control.status import Status
from elastio.metrics.agent_values import agent_values
from elastio.metrics.exposition import Value, render_all
from elastio.metrics.ledger_values import Bills, ledger_values


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one device. `seen` None: no agent answers; `bills` None: the ledger cannot be read."""

    device: str
    seen: Status | None
    bills: Bills | None


def document(devices: Iterable[Known], *, wall: float, version: str) -> str:
    """The metrics of all these devices at `wall`.

    `version` is that of the command, which stands in for the agent's while none answers.
    """
    return render_all((each.device, _values(each.seen, each.bills, wall, version)) for each in devices)


def _values(seen: Status | None, bills: Bills | None, wall: float, version: str) -> Iterator[Value]:
    yield Value("elastio_up", seen is not None)
    yield Value("elastio_metrics_timestamp_seconds", wall)
    yield Value("elastio_ledger_readable", bills is not None)
    yield Value("elastio_build_info", 1, (seen.agent.version if seen else version,))
    if seen is not None:
        yield from agent_values(seen)
    if bills is not None:
        yield from ledger_values(bills)
