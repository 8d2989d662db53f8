"""`elastio recover --foreign`: what it asks, what it waits for, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elastio.control.exit_codes import Exit
from elastio.control.protocol import accepted
from elastio.core.model import VolumeId
from elastio.core.recovery import cycle_of
from elastio.core.state import Phase, TakeOver
from tests.values import seen, volume

from .conftest import FakeAgent, Golden, Shell, published, standing

OPEN = published(standing(Phase.IDLE, owned=()))
WAITING = replace(published(standing(Phase.FAULTED, fault="the cache is missing"), dirty_bytes=1), missing=None)
FLUSHING = published(standing(Phase.FLUSHING, cycle=cycle_of(volume(), seen())), dirty_bytes=2**30)
TAKEN = {"command": "recover", "version": 1, "is_foreign": True, "accepts_loss": False, "volume_id": "vol-7"}


def test_cache_of_a_dead_machine_is_followed_until_its_volume_is_gone(
    agent: FakeAgent, elastio: Shell, golden: Golden
) -> None:
    agent.statuses = [WAITING, WAITING, FLUSHING, FLUSHING, OPEN]
    agent.replies = {"recover": accepted("the cloud is asked")}
    done = elastio("recover", "--foreign", "vol-7")
    assert done.exit_code == Exit.OK, done.output
    golden("recover_foreign.txt", done.stdout)
    assert agent.asked[1] == TAKEN


def test_volume_that_is_not_taken_over_ends_the_wait_with_the_reason(agent: FakeAgent, elastio: Shell) -> None:
    order = TakeOver(VolumeId("vol-7"), refused="its machine still exists", code="volume.owner")
    refusal = published(standing(Phase.FAULTED, fault="the cache is missing", take_over=order))
    agent.statuses, agent.replies = [WAITING, refusal], {"recover": accepted("the cloud is asked")}
    done = elastio("recover", "--foreign", "vol-7")
    assert (done.exit_code, done.stderr) == (Exit.REFUSED, "elastio: its machine still exists\n")


@pytest.mark.parametrize(("typed", "code"), [("vol-7\n", Exit.OK), ("yes\n", Exit.FAILED)])
def test_cache_that_may_be_older_is_used_by_typing_its_name(
    typed: str, code: Exit, agent: FakeAgent, elastio: Shell
) -> None:
    agent.statuses, agent.replies = [WAITING, OPEN], {"recover": accepted("the cloud is asked")}
    assert elastio("recover", "--foreign", "vol-7", "--accept-data-loss", stdin=typed).exit_code == code
    assert [m.get("accepts_loss") for m in agent.asked if m["command"] == "recover"] == ([True] if not code else [])


def test_a_volume_is_foreign_or_this_machines_own(agent: FakeAgent, elastio: Shell) -> None:
    assert elastio("recover", "--foreign", "vol-7", "--volume", "vol-8").exit_code == Exit.USAGE
    assert agent.asked == []
