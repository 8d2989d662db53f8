"""The volumes that any machine bought for this backing device, and why none of them may be overlooked. Pure.

Theory of operation
-------------------

A list of this agent's own volumes says nothing of the cache of a machine that is gone: it has another owner. Whoever
gives up a missing cache without naming it says that it no longer exists. So while a cache is missing, the cloud is also
asked for every volume whose tag names this backing device, whoever its owner is, and such an order is refused until it
has answered, and while one of them is not clean. An order that names a volume is not: whoever names it has seen it.
Machines of one image have one backing UUID: the list may show caches of the others, and a name decides then, too.
"""

from __future__ import annotations

from dataclasses import replace

from elastio.core.actions import ListForBacking, OutcomeKind
from elastio.core.cycle import NO_BACKOFF, Backoff
from elastio.core.model import BackingView, CacheState, Volume, VolumeState, VolumeTag
from elastio.core.observation import Observation
from elastio.core.polling import NextAction, ask, next_backoff
from elastio.core.state import AgentState, Phase
from elastio.units import format_duration, format_size

# An older list may lack a volume that somebody restored, or show one that was deleted.
LIST_EVERY_S = 60.0
_GONE = (VolumeState.GONE, VolumeState.DELETING)


def lacks_cache(state: AgentState, backing: BackingView) -> bool:
    """The device needs a cache that is not there, or may lack what one holds: an operator may give it up."""
    is_inconsistent = backing.state is CacheState.INCONSISTENT
    may_lack_data = state.cycle is not None and (state.cycle.may_lack_data or is_inconsistent)
    return state.phase is Phase.FAULTED and (backing.waits_for_cache or may_lack_data)


def listing(state: AgentState, obs: Observation) -> NextAction:
    """The list, when it is due; nothing where no cache is missing."""
    backing = obs.backing
    if backing is None or state.is_stopped or not lacks_cache(state, backing):
        return NextAction()
    return ask(state, ListForBacking(), obs, "")


def settle(state: AgentState, obs: Observation) -> AgentState:
    """The state with the newest list; without one after a failure, and once no cache can be missing."""
    for outcome in obs.outcomes:
        if isinstance(outcome.action, ListForBacking):
            is_done = outcome.kind is OutcomeKind.DONE and isinstance(outcome.value, tuple)
            found = outcome.value if is_done and isinstance(outcome.value, tuple) else None
            backoff = next_backoff(state.backoff_of("ListForBacking"), outcome, obs)
            backoff = Backoff(0, obs.now + LIST_EVERY_S * (0.75 + 0.5 * obs.jitter)) if is_done else backoff
            state = replace(state.with_backoff(outcome.action, backoff), for_backing=found)
    if state.phase is Phase.FAULTED or (state.for_backing, state.backoff_of("ListForBacking")) == (None, NO_BACKOFF):
        return state
    return replace(state.with_backoff("ListForBacking", NO_BACKOFF), for_backing=None)


def not_clean(state: AgentState) -> tuple[Volume, ...]:
    """Those that exist, are not tagged clean, and were not given up."""
    there = (v for v in state.for_backing or () if v.state not in _GONE and v.tag is not VolumeTag.CLEAN)
    return tuple(v for v in there if v.id not in state.given_up)


def why_not_nameless(state: AgentState, obs: Observation) -> tuple[str, str]:
    """Why a missing cache cannot be given up without its name: a code and a sentence; both empty: it can."""
    if state.for_backing is None:
        error = state.backoff_of("ListForBacking").error
        text = "the cloud has not listed the volumes of this backing device yet, whoever owns them, so the cache may "
        text += f"still exist{f' ({error})' if error else ''}: ask again in a moment, or name the volume with --volume"
        return "cloud.unlisted", text
    there = not_clean(state)
    if not there:
        return "", ""
    text = "; ".join(_described(v, state, obs) for v in there)
    return "recover.volume_id", (
        f"what was bought for this backing device and is not clean may be the missing cache: {text}. Give one up by "
        "its name alone, with --volume"
    )


def _described(volume: Volume, state: AgentState, obs: Observation) -> str:
    age = format_duration(max(0.0, obs.wall - volume.created_wall))
    is_own = volume.id in {v.id for v in state.owned or ()}
    remedy = "bring it back: `elastio recover --volume" if is_own else "take it over: `elastio recover --foreign"
    whose = "" if is_own else " of another machine"
    seen = f"{format_size(volume.size_bytes)}, {age} old, {volume.tag}"
    return f"volume {volume.id}{whose} ({seen}; {remedy} {volume.id}`)"
