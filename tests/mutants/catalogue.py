"""The rules that keep data and money, and how each is broken.

Where a decision, the invariants and the host check the same rule, breaking one of them is noticed as a decision that
was thrown away; the mutants "everywhere" break all of them.
"""

from __future__ import annotations

from .adopted import ADOPTED
from .beyond import BEYOND, by_test
from .learning import LEARNS
from .mutant import Mutant, Patch
from .on_the_way import ON_THE_WAY
from .paid import PAID
from .spending import SPENDING
from .together import TOGETHER

STEPS, EVENTS, INVARIANTS, STATE, CYCLE, MODEL, RELEASE = (
    "elastio/core/planner.py",
    "elastio/core/detection.py",
    "elastio/core/invariants.py",
    "elastio/core/state.py",
    "elastio/core/cycle.py",
    "elastio/core/model.py",
    "elastio/core/release.py",
)
FACTS, RECOVERY, MACHINE, LOOP = (
    "elastio/core/update.py",
    "elastio/core/recovery.py",
    "elastio/core/machine.py",
    "elastio/agent/loop.py",
)
POLLING = "elastio/core/polling.py"
JOURNAL, ACTIONS = "elastio/agent/journal.py", "elastio/core/actions.py"
HOST, KERNEL, CLOUD = (
    "simulator/elastio_sim/host.py",
    "simulator/elastio_sim/link.py",
    "simulator/elastio_sim/provider.py",
)

EARLY = Patch(STEPS, "LAST_S, POLL_S = 0.5,", "LAST_S, POLL_S = 1e9,")
ANY_TIME = Patch(INVARIANTS, "MOMENT_S = 1.0", "MOMENT_S = 1e9")
HOST_BYPASSES = Patch(HOST, "if bcache.state is not CacheState.CLEAN or (kernel", "if False and (kernel")
ASLEEP, ASLEEP_ALLOWED = (Patch(file, "if backing.is_dirty_unseen:", "if False:") for file in (STEPS, INVARIANTS))
HOST_ASLEEP = Patch(HOST, "if bcache.state is CacheState.CLEAN and bcache.dirty_bytes > little:", "if False:")
CLEAN_IS_DRAINED = Patch(
    MODEL,
    "return self.state is CacheState.CLEAN and self.cache_mode is CacheMode.NONE",
    "return self.state is CacheState.CLEAN",
)
NOT_BYPASSED = Patch(
    MODEL,
    "return self.cache_set is not None and self.cache_mode is not CacheMode.WRITEBACK",
    "return False",
)
ANY_DISK = Patch(
    CYCLE, "return None in (self.backing_serial, backing.disk_serial) or self.backing_serial ==", "return True or 0 =="
)
ANY_LEAVE = Patch(CYCLE, "return self.times.boosted is None or any(at is not None for at in gone)", "return True")
NO_DISPUTE = Patch(RECOVERY, "_may_lack_data(state, cycle, obs, backing):", "False:")
NOT_RELEASED = Patch(RELEASE, "if disk is not None and disk.is_in_use and not cycle.is_gone:", "if False and disk:")
LET_GO = Patch(
    INVARIANTS,
    'Checked on every decision, and again by the executor on a scan of its own.\n    """\n',
    'Checked on every decision, and again by the executor on a scan of its own.\n    """\n    return ""\n',
)
OUTLIVED_ANYWAY = Patch(
    STATE,
    "return is_awaited and backing.state is CacheState.CLEAN and not may_lack_data and not is_back",
    "return backing.waits_for_cache or (is_awaited and may_lack_data and is_back)",
)
OVERWRITTEN = "/an older copy is put on the backing disk"
DIES_AT_BOOT, DIES_UNSEEN = "/power cut, then the cache dies/", "/the cache dies, then power cut/"
POWER_CUT = "/power cut/nothing"
DISK_FULL = "/lives/the journal's disk stays full"
NEW_TOKEN = Patch(STEPS, "cycle.token, cycle.spec, size", "f'{cycle.token}{obs.now}', cycle.spec, size")
ANY_TOKEN = Patch(INVARIANTS, "if cycle is None or action.token != cycle.token:", "if cycle is None:")


def one(name: str, breaks: str, file: str, old: str, new: str, first: str = "") -> Mutant:
    return Mutant(name, breaks, (Patch(file, old, new),), first=first)


DRAINING = (
    Mutant("bypass early", "requests are held back for a moment only", (EARLY,)),
    Mutant("bypass early everywhere", "no write bypasses dirty data", (EARLY, ANY_TIME, HOST_BYPASSES)),
    Mutant("dirty index bypassed", "the kernel must know of the dirt", (ASLEEP,), first=POWER_CUT),
    Mutant(
        "dirty index bypassed everywhere",
        "the same: whatever `state` calls clean is bypassed at once",
        (
            ASLEEP,
            Patch(STEPS, "if left_s <= LAST_S:", "if left_s <= LAST_S or backing.state == 'clean':"),
            ASLEEP_ALLOWED,
            ANY_TIME,
            HOST_ASLEEP,
        ),
        first=POWER_CUT,
    ),
    Mutant("drained while absorbing", "a cache is drained in mode none only", (CLEAN_IS_DRAINED,)),
    by_test(
        "back from none",
        "nothing leads back from none",
        NOT_BYPASSED,
        "tests/unit/elastio/core/test_detection.py::test_a_cache_that_somebody_else_made_writes_bypass_is_flushed_even_under_load",
        "the load has to return within the tenths of a second between the bypass and the detach",
    ),
    by_test(
        "bypass with requests in flight",
        "a bypass waits for quiet",
        Patch(HOST, "and not kernel.is_quiet)", "and False)"),
        "tests/unit/elastio_sim/test_host.py::test_writes_do_not_bypass_the_cache_while_a_request_is_in_flight",
        "the one block in flight has to be written a second time before it is flushed",
    ),
    one(
        "bypass without a flush of the disk",
        "the clean copy goes with the first write: what was flushed is durable by then",
        HOST,
        "kernel.fsync()\n        kernel.set_mode(CacheMode.NONE)",
        "kernel.set_mode(CacheMode.NONE)",
    ),
    by_test(
        "attach with writes in flight",
        "a cache comes when no write is in flight",
        Patch(KERNEL, "in_flight = self._write.block is not None and self.settings.holds_back", "in_flight = False"),
        "tests/unit/elastio_sim/test_kernel_attach.py"
        "::test_a_write_that_was_in_flight_when_a_cache_came_leaves_an_older_block_in_it_unless_it_is_waited_for",
        "the block in flight has to be read before its write ends, and again after it",
    ),
)
LETTING_GO = (
    one(
        "release before the detach",
        "inside out: the cache set leaves first",
        RELEASE,
        "if cycle.cache_set is not None and host.backing.cache_set == cycle.cache_set:",
        "if False and cycle.cache_set is not None:",
    ),
    Mutant("detach a disk with its superblock", "the disk is wiped before it leaves", (NOT_RELEASED,)),
    Mutant("detach a disk with its superblock everywhere", "the same", (NOT_RELEASED, LET_GO)),
    one(
        "delete before the detach",
        "a volume is detached before it is deleted",
        RELEASE,
        "action: actions.Action = actions.DetachVolume(volume_id, serial)",
        "action: actions.Action = actions.DeleteVolume(volume_id, serial)",
    ),
    one(
        "released before it is durable",
        "the backing device is made durable",
        RELEASE,
        "if cycle.needs_sync:",
        "if False:",
    ),
    one("no fsync at all", "fsync reaches the disk", KERNEL, "        self.bcache.fsync()\n", "        return\n"),
    one(
        "release without fsync",
        "no cache is on the disk before the cache goes",
        HOST,
        "self._kernel.fsync()\n        self._kernel.unregister(serial)",
        "self._kernel.unregister(serial)",
    ),
    Mutant("any disk, any leave", "a cycle belongs to one disk, and is detached by its agent", (ANY_DISK, ANY_LEAVE)),
    Mutant(
        "any leave is believed",
        "no cache is believed after the agent's own detach only",
        (ANY_LEAVE,),
        first=OVERWRITTEN,
    ),
    Mutant("any disk is believed", "a cycle belongs to one disk", (ANY_DISK,)),
    Mutant("no doubt after a start", "a start believes no more than a scan", (NO_DISPUTE,), first=DIES_AT_BOOT),
    one(
        "danger is overlooked",
        "a missing or foreign cache is for people",
        MACHINE,
        "danger = None if state.phase is Phase.FAULTED else detection.danger(state, obs)",
        "danger = None",
    ),
    Mutant("started without its cache", "nothing is started without what it needs", (OUTLIVED_ANYWAY,)),
    Mutant(
        "started without its cache everywhere",
        "the same",
        (
            OUTLIVED_ANYWAY,
            Patch(
                INVARIANTS,
                "if not is_failed_clean and not (state.is_loss_accepted",
                "if False and (state.is_loss_accepted",
            ),
        ),
    ),
    Mutant(
        "a stale cache comes back",
        "what has missed writes is not put in front again",
        (
            Patch(STEPS, "if backing.may_have_been_written_since and not cycle.operator_confirmed:", "if False:"),
            Patch(
                INVARIANTS,
                'return "what is on it may be older than the backing device" if in_doubt else ""',
                'return ""',
            ),
        ),
        first=DIES_UNSEEN,
    ),
    one(
        "unseen is never in front",
        "what was being attached may have taken writes before anybody saw it",
        RECOVERY,
        "if cycle.may_lack_data or not cycle.may_have_served:",
        "if cycle.may_lack_data or cycle.times.boosted is None:",
        first=DIES_AT_BOOT,
    ),
    one(
        "a detach is not written down",
        "the agent's own detach is believed, and known after a crash",
        FACTS,
        "return replace(state, cycle=cycle.stamped(detaching=now))",
        "return state",
    ),
)
BUYING = (
    Mutant("another token at each try", "a purchase has one name", (NEW_TOKEN,)),
    Mutant("another token everywhere", "the same", (NEW_TOKEN, ANY_TOKEN)),
    one("a token buys twice", "a token buys one volume", CLOUD, "if volume.token == token:", "if False:"),
    one(
        "orphans stay",
        "what no cycle knows is released",
        STATE,
        "there = (v for v in self.owned or () if v.state not in (VolumeState.ELSEWHERE, VolumeState.FOREIGN))",
        "there: tuple[Volume, ...] = ()",
    ),
    one(
        "unseen is gone", "a new volume may not show yet", POLLING, "VISIBLE_WITHIN_S = 60.0", "VISIBLE_WITHIN_S = 0.0"
    ),
    one(
        "installed before it is marked",
        "dirty is written on it first",
        STEPS,
        "if tag.waiting_for:\n        return tag",
        "if False:\n        return tag",
    ),
    one(
        "the bill goes on",
        "a bill ends with its volume",
        CYCLE,
        "return self if self.closed_wall is not None else replace(self, closed_wall=self.wall_at(now))",
        "return self",
    ),
    one(
        "born without a tag",
        "what has never been a cache may go",
        "simulator/elastio_sim/cloud.py",
        "tag: VolumeTag = VolumeTag.CLEAN",
        "tag: VolumeTag = VolumeTag.UNKNOWN",
    ),
)
WRITING_DOWN = (
    one(
        "the tag is not sent",
        "what is dirty is tagged so in the cloud",
        "elastio/agent/executor.py",
        "provider.tag(action.volume_id, action.tag)",
        "pass",
    ),
    Mutant(
        "tagged clean before the detach",
        "what serves as a cache is not tagged clean, dirty or not",
        (
            Patch(
                RELEASE,
                "    if backing.is_drained:\n",
                "    tag = tag_volume(cycle, VolumeTag.CLEAN, obs, policy)\n"
                "    if backing.is_drained and tag.action is not None:\n        return tag\n"
                "    if backing.is_drained:\n",
            ),
            Patch(INVARIANTS, "DeleteVolume() | actions.TagVolume(tag=VolumeTag.CLEAN):", "DeleteVolume():"),
        ),
    ),
    one(
        "a detach deletes",
        "a volume leaves before it is deleted",
        "elastio/agent/executor.py",
        "cloud.detach(a.volume_id)",
        "cloud.delete(a.volume_id)",
    ),
    one(
        "intents may be lost",
        "an intent is on the disk before its effect",
        JOURNAL,
        'self._append("intent", body, now, wall, durable=True)',
        'self._append("intent", body, now, wall, durable=False)',
    ),
    one(
        "decisions may be lost",
        "a decision is on the disk",
        JOURNAL,
        'self._append("decision", body, now, wall, durable=True)',
        'self._append("decision", body, now, wall, durable=False)',
        first=POWER_CUT,
    ),
    one(
        "no intents",
        "an intent is written before its effect",
        LOOP,
        "if not (is_read(action) or self._is_intended(action, obs) or lifts_limit(action)):",
        "if False:",
    ),
    one(
        "giving back is written down first",
        "limits are lifted with a full disk, too",
        LOOP,
        "self._is_intended(action, obs) or lifts_limit(action)):",
        "self._is_intended(action, obs)):",
        first=DISK_FULL,
    ),
    one(
        "limits stay",
        "limits are lifted",
        STEPS,
        'obs, "the write limit to be lifted") if free else NextAction()',
        'obs, "the write limit to be lifted") if False else NextAction()',
        first=DISK_FULL,
    ),
)
MUTANTS: tuple[Mutant, ...] = (
    *DRAINING,
    *LETTING_GO,
    *BUYING,
    *WRITING_DOWN,
    *ON_THE_WAY,
    *PAID,
    *LEARNS,
    *SPENDING,
    *TOGETHER,
    *ADOPTED,
    *BEYOND,
)
