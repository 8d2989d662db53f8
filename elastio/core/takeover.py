"""The cache of a machine that is gone: an operator's order to take over its volume. Pure.

Theory of operation
-------------------

A machine died while its cache was dirty, and its backing volume is now here. The device waits for a cache set on a
volume that another machine owns (`CACHE_MISSING`), or somebody attached that volume and the kernel has assembled both
(`FOREIGN_CACHE`). The agent is FAULTED, without a cycle, and would never touch the volume.

The order adds one step to what the agent does with a missing cache of its own:

1. `TakeOverVolume`. The executor asks the cloud about volume and owner, and scans the kernel (`foreign`). Then the
   provider replaces the owner tag and the tag `dirty` in one call. Before it nothing has changed; after it the volume
   is one of this machine's own, which no janitor and no agent releases while it is dirty.
2. A cycle is made from the tags, as for a missing cache that the journal does not name. FAULTED attaches the volume and
   registers its cache set, if it is the one that the superblock of the backing device names.
3. The kernel assembles the device: REPAIRED. The cycle is `forced`: it continues in FLUSHING whatever the load, then in
   DETACHING, with every rule of these phases.

The order itself is not remembered after a restart. If the agent dies before step 1, nothing has happened. If it dies
after it, the volume is listed as this machine's own and kept, and the same order finds it so. From step 2 on the
journal has the cycle. So the same order can be given again at any time.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import Outcome, OutcomeKind, TakeOverVolume
from elastio.core.cycle import Cycle, Trigger
from elastio.core.model import BackingView, Request, Volume, VolumeId, VolumeTag
from elastio.core.observation import Answer, Observation
from elastio.core.polling import next_backoff
from elastio.core.recovery import cycle_of
from elastio.core.state import AgentState, Phase, TakeOver


def answer(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    """The answer to RECOVER of a volume that another machine bought."""
    if request.volume_id is None:
        return state, Answer(request, False, "the volume is not named", "recover.volume_id")
    cycle = state.cycle
    if cycle is not None and cycle.volume_id == request.volume_id and cycle.trigger is Trigger.ORPHAN:
        return _again(state, cycle, request)
    backing = obs.host.backing if obs.host else None
    code, refused = _why_not(state, backing, request)
    if refused:
        return state, Answer(request, False, refused, code)
    order = TakeOver(VolumeId(request.volume_id), is_confirmed=request.accepts_loss)
    text = f"the cloud is asked whether the machine that bought volume {order.volume_id} is gone; then it is taken over"
    return replace(state, take_over=order, loss_accepted_for=""), Answer(request, True, text)


def _again(state: AgentState, cycle: Cycle, request: Request) -> tuple[AgentState, Answer]:
    """The volume was taken over: what is left to do is done at once, and to its end."""
    confirmed = cycle.operator_confirmed or request.accepts_loss
    cycle = replace(cycle, forced=True, backoffs={}, operator_confirmed=confirmed)
    text = f"volume {cycle.volume_id} is this machine's own now; it is brought back, flushed and released"
    return replace(state, cycle=cycle, loss_accepted_for=""), Answer(request, True, text)


def _why_not(state: AgentState, backing: BackingView | None, request: Request) -> tuple[str, str]:
    """Why nothing is taken over now: a code and a sentence; both empty: the cloud is asked."""
    if state.is_stopped:
        return "agent.faulted", f"the agent is faulted: {state.fault}"
    if backing is None:
        return "device.unknown", "the backing device is not registered with bcache, or the kernel does not answer"
    if state.cycle is not None and not is_replaceable(state):
        text = f"this agent has a cache of its own, volume {state.cycle.volume_id} ({state.phase}): flush it first"
        return "agent.busy", text
    if state.phase is not Phase.FAULTED or not (backing.waits_for_cache or backing.cache_set is not None):
        return "recover.nothing", "no cache is missing"
    if backing.waits_for_cache and backing.running:
        return "device.in_use", "the adaptive device is still in use: unmount it first"
    if needed_set(backing) is None:
        return "device.unknown", "the superblock of the backing device cannot be read, so its cache set is not known"
    if backing.may_have_been_written_since and not request.accepts_loss:
        return "recover.may-be-older", OLDER
    return "", ""


OLDER = (
    "the superblock of the device says clean. Either the machine died within seconds of the first writes, and only "
    "the cache has them; or the cache had failed before, it is older than the device, and blocks would be read as they "
    "were before. If you do not know: take snapshots of both volumes, take the cache over with --accept-data-loss, "
    "check the filesystem, and compare it with the other copy. Only if that machine's kernel log shows `cache is "
    "clean, keep it alive`, go on without it: `elastio recover --accept-data-loss --volume ID`, without --foreign"
)


def is_replaceable(state: AgentState) -> bool:
    """The cycle was made from a volume's tags, and the kernel has not confirmed that this volume is the cache."""
    cycle = state.cycle
    is_guess = cycle is not None and cycle.trigger is Trigger.ORPHAN and cycle.cache_set is None
    return is_guess and state.phase is Phase.FAULTED


def needed_set(backing: BackingView) -> str | None:
    """The cache set that the device has, or waits for; None: its superblock cannot be read."""
    return backing.cache_set or backing.superblock_set


def settle(state: AgentState, obs: Observation) -> AgentState:
    """The state after what came of the order, or without it once the danger is over."""
    for outcome in obs.outcomes:
        order = state.take_over
        if isinstance(outcome.action, TakeOverVolume) and order is not None:
            state = _settled(state, order, outcome, obs) if outcome.action.volume_id == order.volume_id else state
    is_over = state.take_over is not None and state.recovered and state.phase is not Phase.FAULTED
    return replace(state, take_over=None) if is_over else state


def _settled(state: AgentState, order: TakeOver, outcome: Outcome, obs: Observation) -> AgentState:
    if outcome.kind is OutcomeKind.DONE and isinstance(outcome.value, Volume):
        cycle = replace(
            cycle_of(outcome.value, obs), forced=True, operator_confirmed=order.is_confirmed, tag=VolumeTag.DIRTY
        )
        # It was a cache: its data is nowhere else until it was attached and flushed.
        return replace(state, cycle=cycle.stamped(boosted=obs.now), take_over=None)
    if outcome.kind is OutcomeKind.REFUSED:
        return replace(state, take_over=replace(order, refused=outcome.error, code=outcome.code))
    return replace(state, take_over=replace(order, backoff=next_backoff(order.backoff, outcome, obs)))
