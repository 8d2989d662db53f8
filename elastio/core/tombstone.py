"""When the tombstone of an adopted volume is written and removed. Pure.

It is there before a cache is installed, and until an idle agent sees that bcache names none: whoever mounted the volume
alone meanwhile would see older data. See `elastio.host.tombstone` for how.
"""

from __future__ import annotations

from elastio.core.actions import RemoveTombstone, WriteTombstone
from elastio.core.cycle import Cycle
from elastio.core.model import BackingView
from elastio.core.observation import Observation
from elastio.core.polling import NextAction, ask
from elastio.core.state import AgentState, Phase


def written(cycle: Cycle, backing: BackingView, obs: Observation) -> NextAction:
    """Before a cache is installed, while its disk is awaited; nothing where it is there, or none is needed."""
    if backing.has_tombstone is not False:
        return NextAction()
    write = WriteTombstone()
    return ask(write, cycle.backoff_of(write), obs, "the tombstone of the adopted volume")


def removed(state: AgentState, obs: Observation) -> NextAction:
    """As soon as no cache can be needed. Not after a fault: what the kernel shows may be an older copy."""
    backing = obs.host.backing if obs.host else None
    if backing is None or not backing.may_lose_tombstone or state.phase is not Phase.IDLE:
        return NextAction()
    remove = RemoveTombstone()
    return ask(remove, state.backoff_of(remove), obs, "the adopted volume to be a plain filesystem again")
