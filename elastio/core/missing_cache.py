"""A cache that is missing while the backing device may need it: which volume it is, and what an operator can do. Pure.

Theory of operation
-------------------

With writeback, the newest data is on two volumes together for some minutes. If the cache volume is missing, the backing
device alone is not a consistent filesystem: started by force, it may be damaged, or silently older. So the agent never
starts it alone. It looks for the cache, and waits.

`elastio recover` offers two remedies, and this module decides both:

- *Bring the cache back.* The journal names the volume. If it names none, the only volume that carries this device's tag
  is taken; if there are several, the operator names one. A device that was clean when its cache was removed may have
  been written to since, so its cache may be older. It is attached again only by name, and by whoever accepts that
  (`operator_confirmed`): reads of what it has missed return older data, which is a loss like any other.
- *Give the data up.* The operator is shown how much was dirty on the volume when it was last seen, and names the
  volume, unless it is provably gone, and no machine's volume for this device is left that may be it. The order covers
  this one volume (`loss_accepted_for`): if another cache is missing later, it does not apply. It ends when it was
  carried out, or when the cache came back.

A volume that was given up stays with the operator (`given_up`): the agent neither attaches nor deletes it, and shows it
until the cloud no longer lists it. A start by force leaves bcache's state "inconsistent" on the device; that state
counts as accepted until the next cache.

A list of this agent's own volumes says nothing of the cache of a machine that is gone: it has another owner. Whoever
gives up a missing cache without naming it says that it no longer exists. So while a cache is missing, the cloud is also
asked for every volume whose tag names this backing device, whoever its owner is, and such an order is refused until it
has answered, and while one of them is not clean. An order that names a volume is not: whoever names it has seen it.
Machines of one image have one backing UUID: the list may show caches of the others, and a name decides then, too.

The cache of a machine that is gone: a machine died while its cache was dirty, and its backing volume is now here. The
device waits for a cache set on a volume that another machine owns (`CACHE_MISSING`), or somebody attached that volume
and the kernel has assembled both (`FOREIGN_CACHE`). The agent is FAULTED, without a cycle, and would never touch the
volume. An operator's order to take it over adds one step to what the agent does with a missing cache of its own:

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

from elastio.core.actions import ListForBacking, Outcome, OutcomeKind, TakeOverVolume
from elastio.core.cycle import NO_BACKOFF, UNKNOWN_VOLUME, Backoff, Cycle, Trigger
from elastio.core.model import BackingView, CacheState, Request, Volume, VolumeId, VolumeState, VolumeTag
from elastio.core.polling import next_backoff
from elastio.core.recovery import cycle_of
from elastio.core.state import AgentState, Answer, Observation, Phase, TakeOver
from elastio.units import format_duration, format_size


def answer_take_over(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    """The answer to RECOVER of a volume that another machine bought."""
    if request.volume_id is None:
        return state, Answer(request, False, "the volume is not named", "recover.volume_id")
    cycle = state.cycle
    if cycle is not None and cycle.volume_id == request.volume_id and cycle.trigger is Trigger.ORPHAN:
        return _again(state, cycle, request)
    code, refused = _why_not(state, obs.backing, request)
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
    if (backing.cache_set or backing.superblock_set) is None:
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


def _settle_take_over(state: AgentState, obs: Observation) -> AgentState:
    """The state after what came of the order, or without it once the danger is over."""
    for outcome in obs.outcomes:
        order = state.take_over
        if isinstance(outcome.action, TakeOverVolume) and order is not None:
            state = _settled(state, order, outcome, obs) if outcome.action.volume_id == order.volume_id else state
    is_over = state.take_over is not None and state.recovered and state.phase is not Phase.FAULTED
    return replace(state, take_over=None) if is_over else state


def _settled(state: AgentState, order: TakeOver, outcome: Outcome, obs: Observation) -> AgentState:
    if outcome.kind is OutcomeKind.DONE and isinstance(outcome.value, Volume):
        # It was a cache: its data is nowhere else until it was attached and flushed.
        cycle = replace(cycle_of(outcome.value, obs), forced=True, tag=VolumeTag.DIRTY).stamped(boosted=obs.now)
        return replace(state, cycle=replace(cycle, operator_confirmed=order.is_confirmed), take_over=None)
    if outcome.kind is OutcomeKind.REFUSED:
        return replace(state, take_over=replace(order, refused=outcome.error, code=outcome.code))
    return replace(state, take_over=replace(order, backoff=next_backoff(order.backoff, outcome, obs)))


UNSEEN = "the kernel's state is not known yet (if `dmesg` shows that bcache hangs, only a reset helps)"
# An older list may lack a volume that somebody restored, or show one that was deleted.
LIST_EVERY_S = 60.0


def answer(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    """The answer to RECOVER: bring the volume back, or, if the request accepts the loss, go on without it.

    For a volume that another machine bought, see `answer_take_over`.
    """
    backing = obs.backing
    if backing is None:
        return _without_backing(state, request, obs)
    if state.phase is Phase.FAULTED and (unclaimed := state.unclaimed(backing)) and not state.is_stopped:
        return _give_up_unclaimed(state, request, unclaimed)
    if not state.lacks_cache(backing):
        other = f"; the agent is faulted for another reason: {state.fault}" if state.fault else ""
        return state, Answer(request, False, f"no cache is missing{other}", "recover.nothing")
    if request.accepts_loss and not request.brings_back:
        return _accept(state, request, backing, obs)
    if state.cycle is not None and not backing.waits_for_cache:
        return state, Answer(request, False, remedies(state.cycle), "recover.not-waiting")
    return _bring_back(state, request, obs)


def _without_backing(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    """RECOVER while the backing device is not registered. The agent registers it again by itself.

    A loss can be accepted only while the device is registered and shows that it lacks a cache.
    """
    is_shut_out = state.phase is Phase.FAULTED and not state.is_stopped
    lost_its_cache = state.cycle is not None and state.cycle.may_be_attached and not state.cycle.may_lack_data
    if is_shut_out and lost_its_cache and (request.brings_back or not request.accepts_loss):
        return _bring_back(state, request, obs)
    text = "the backing device is not registered with bcache" if obs.host else UNSEEN
    return state, Answer(request, False, f"{text}: ask again in a moment", "device.unknown")


def remedies(cycle: Cycle) -> str:
    """What an operator can do about a device that runs without the cache it may need."""
    name = cycle.volume_id or UNKNOWN_VOLUME
    return (
        "this backing device does not wait for a cache: attach the right backing volume instead, or, if this is the "
        f"right one, give up the data with --accept-data-loss --volume {name}"
    )


def remedies_if_clean(cycle: Cycle | None) -> str:
    """What an operator can do about a device that was clean and may have been written to since its cache failed."""
    name = (cycle.volume_id if cycle else None) or "ID"
    return (
        "the device was clean when its cache was removed, so only root may decide. If the cache failed (`journalctl -k "
        "-b -1` shows `cache is clean, keep it alive`), it is older than the device: go on without it with "
        f"--accept-data-loss --volume {name}. If the volume was detached while the machine was off, or if the power "
        "failed within seconds of the first writes, bring it back with --bring-back --accept-data-loss --volume "
        f"{name}. If you do not know: take snapshots of both volumes, bring it back, check the filesystem, and compare "
        "it with the other copy"
    )


def settle(state: AgentState, obs: Observation) -> AgentState:
    """The state without orders that are carried out, and without what remains of them once that is over.

    That is: given-up volumes that are gone, and an accepted inconsistency.
    """
    state = _settle_listing(_settle_take_over(state, obs), obs)
    backing = obs.backing
    is_anything_given_up = state.given_up or state.is_stale_accepted
    if not is_anything_given_up or not state.recovered or state.phase is Phase.FAULTED or backing is None:
        return state
    there = {v.id for v in candidates(state)}
    left = state.given_up if state.owned is None else tuple(v for v in state.given_up if v in there)
    marked = state.is_stale_accepted and backing.state is CacheState.INCONSISTENT
    return replace(state, given_up=left, is_stale_accepted=marked)


def _settle_listing(state: AgentState, obs: Observation) -> AgentState:
    """The state with the newest list; without one after a failure, and once no cache can be missing."""
    for outcome in obs.outcomes:
        if isinstance(outcome.action, ListForBacking):
            found = outcome.value if outcome.kind is OutcomeKind.DONE and isinstance(outcome.value, tuple) else None
            backoff = next_backoff(state.backoff_of("ListForBacking"), outcome, obs)
            if found is not None:
                backoff = Backoff(0, obs.now + LIST_EVERY_S * (0.75 + 0.5 * obs.jitter))
            state = replace(state.with_backoff(outcome.action, backoff), for_backing=found)
    if state.phase is Phase.FAULTED or (state.for_backing, state.backoff_of("ListForBacking")) == (None, NO_BACKOFF):
        return state
    return replace(state.with_backoff("ListForBacking", NO_BACKOFF), for_backing=None)


# --- bring it back ---------------------------------------------------------------------------------------


def candidates(state: AgentState) -> tuple[Volume, ...]:
    """This agent's volumes that exist: one of them may be the missing cache."""
    return tuple(v for v in state.owned or () if not v.state.is_gone)


def _bring_back(state: AgentState, request: Request, obs: Observation) -> tuple[AgentState, Answer]:
    """Find the volume and let it be attached. This cancels an order to give it up."""
    cycle, backing = state.cycle, obs.backing
    is_confirmed = request.volume_id is not None and request.accepts_loss
    if backing is not None and backing.may_have_been_written_since and not is_confirmed:
        return state, Answer(request, False, remedies_if_clean(cycle), "recover.may-be-older")
    if cycle is not None and request.volume_id in (None, cycle.volume_id):
        state = replace(state, cycle=replace(cycle, backoffs={}, operator_confirmed=is_confirmed), loss_accepted_for="")
        return state, Answer(request, True, f"the missing cache is {known_loss(cycle, obs)}; it is being brought back")
    if cycle is not None and not is_replaceable(state):
        text = f"the journal names volume {cycle.volume_id}, not {request.volume_id}: nothing was changed"
        return state, Answer(request, False, text, "recover.volume_id")
    if state.owned is None:
        text = "the cloud has not listed this agent's volumes yet: ask again in a moment"
        return state, Answer(request, False, text, "cloud.unlisted")
    found = [v for v in candidates(state) if request.volume_id in (None, v.id)]
    if len(found) != 1:
        return state, Answer(request, False, _not_exactly_one(found), "recover.volume_id")
    cycle = replace(cycle_of(found[0], obs), operator_confirmed=is_confirmed).stamped(boosted=obs.now)
    text = f"the missing cache can only be volume {found[0].id}, bought for this device; it is being brought back"
    return replace(state, cycle=cycle, loss_accepted_for=""), Answer(request, True, text)


def _not_exactly_one(found: list[Volume]) -> str:
    if not found:
        return (
            "no volume with this agent's tags exists. If another machine bought the cache and is gone, find its volume "
            "by the tag elastio:backing, which has the UUID of the backing device, and take it over with --foreign ID"
        )
    names = ", ".join(f"{v.id} ({v.state}, {v.tag})" for v in found)
    return f"more than one volume may be the missing cache: {names}; name one with --volume"


def known_loss(cycle: Cycle, obs: Observation) -> str:
    """What is known about the volume and about the data that only it holds: a phrase for people."""
    volume = f"volume {cycle.volume_id or UNKNOWN_VOLUME} ({cycle.volume_state or 'not seen'})"
    if cycle.dirty_wall is None:
        return f"{volume}; how much data only it holds is not known"
    ago = format_duration(max(0.0, obs.wall - cycle.dirty_wall))
    peak = format_size(max(cycle.use.peak_dirty_bytes, cycle.dirty_bytes))
    text = f"{volume}; it had {format_size(cycle.dirty_bytes)} of dirty data when last recorded {ago} ago"
    return f"{text}, and {peak} at most until then; what was written since comes on top"


# --- go on without it --------------------------------------------------------------------------------------


def _accept(state: AgentState, request: Request, backing: BackingView, obs: Observation) -> tuple[AgentState, Answer]:
    code, refused = "recover.accepts_loss", _why_not_accepted(state, request, backing)
    if not refused and not request.volume_id:
        code, refused = _why_not_nameless(state, obs)
    if refused:
        return state, Answer(request, False, f"{refused}; nothing was changed", code)
    name = (state.cycle.volume_id if state.cycle else request.volume_id) or UNKNOWN_VOLUME
    lost = known_loss(state.cycle, obs) if state.cycle else "the extent of the loss is not known"
    text = f"the device goes on without its cache: {lost}. Check the filesystem before you use it"
    return replace(state, loss_accepted_for=name), Answer(request, True, text)


def _give_up_unclaimed(state: AgentState, request: Request, unclaimed: tuple[Volume, ...]) -> tuple[AgentState, Answer]:
    """The device runs without them, so nothing has to be started: the volume is left to the operator at once."""
    names = ", ".join(v.id for v in unclaimed)
    named = next((v.id for v in unclaimed if v.id == request.volume_id), None)
    if named is None or not request.accepts_loss or request.brings_back:
        text = (
            f"volume {names} may hold data that this device lacks. If the device is an older copy, attach the right "
            "backing volume instead, and the volume too; the agent then continues. If it is the right one: give the "
            f"volume up with --accept-data-loss --volume {unclaimed[0].id}, and delete it once it is not needed"
        )
        return state, Answer(request, False, text, "recover.not-waiting")
    text = f"volume {named} is left as it is, and the agent goes on without it"
    return replace(state, given_up=(*state.given_up, named)), Answer(request, True, text)


def _why_not_accepted(state: AgentState, request: Request, backing: BackingView) -> str:
    """Why the loss cannot be accepted now; empty: it can."""
    if backing.waits_for_cache and backing.running:
        return "the adaptive device is still in use: unmount it first"
    if state.cycle is not None:
        return _why_not_named(state.cycle, request.volume_id, backing)
    if state.owned is None:
        return "the cloud has not listed this agent's volumes yet, so the cache may still exist"
    there = candidates(state)
    if there and request.volume_id not in {v.id for v in (*there, *state.in_doubt(state.for_backing or ()))}:
        return f"{_not_exactly_one(list(there))}, or bring it back without --accept-data-loss"
    return ""


def _why_not_named(cycle: Cycle, named: str | None, backing: BackingView) -> str:
    if cycle.volume_id in (None, named) or cycle.volume_state is VolumeState.GONE:
        return ""
    if cycle.may_lack_data:
        return remedies(cycle)
    if backing.may_have_been_written_since:
        return remedies_if_clean(cycle)
    return (
        f"volume {cycle.volume_id} is {cycle.volume_state or 'not seen'} and may hold the data: bring it back with "
        f"`elastio recover`, or give it up by name with --volume {cycle.volume_id}"
    )


def _why_not_nameless(state: AgentState, obs: Observation) -> tuple[str, str]:
    """Why a missing cache cannot be given up without its name: a code and a sentence; both empty: it can."""
    if state.for_backing is None:
        error = state.backoff_of("ListForBacking").error
        text = "the cloud has not listed the volumes of this backing device yet, whoever owns them, so the cache may "
        text += f"still exist{f' ({error})' if error else ''}: ask again in a moment, or name the volume with --volume"
        return "cloud.unlisted", text
    there = state.in_doubt(state.for_backing)
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
