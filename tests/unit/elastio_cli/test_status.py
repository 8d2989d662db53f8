"""`elastio status`: its output in each situation."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from elastio.agent.status_builder import RuntimeInfo, status_of
from elastio.control.exit_codes import Exit
from elastio.control.status import CapacityPart, CreditsPart, MonthPart, OthersPart, Status
from elastio.core.capacity import Unknown
from elastio.core.cycle import CacheUse, Cycle, Timestamps, Trigger
from elastio.core.model import (
    CacheSetUuid,
    HostView,
    Quote,
    Rates,
    Sample,
    Serial,
    Volume,
    VolumeId,
    VolumeSpec,
    VolumeState,
)
from elastio.core.shares import BoostRights
from elastio.core.state import AgentState, Inhibition, InhibitionReason, Listed, Observation, Phase
from elastio.errors import ControlError
from elastio.strategy.credits import CreditBalance, CreditBucket
from elastio.strategy.memory import Capped, LearnedBandwidth, LoadWatch, Memory, SpeedBounds, UselessBoost, Waste
from elastio.strategy.spending import Caps, Others, Period, Spend, Spent
from elastio.units import GIB, MIB
from elastio_cli.main import main
from elastio_cli.status import rows
from tests.fixtures.errors import refused

from .conftest import POLICY, FakeAgent, Golden, Shell, backing_with, published, standing

SNAPSHOT = Inhibition(InhibitionReason.SNAPSHOT, 9000.0)
VOLUME = Volume(
    VolumeId("vol-1"), Serial("vol1"), VolumeState.ATTACHED, 10 * GIB, 131.072, "tok", "uuid", 1_789_999_900.0
)
VOLUME_SPEC = VolumeSpec(10 * GIB, 128.0)
CYCLE = Cycle(
    token="tok",
    trigger=Trigger.LOAD,
    spec=VOLUME_SPEC,
    started_at=7900.0,
    started_wall=1_789_999_900.0,
    volume_id=VOLUME.id,
    serial=VOLUME.serial,
    cache_set=CacheSetUuid("set"),
    volume=VOLUME,
    times=Timestamps(decided=7900.0, boosted=7904.2),
    use=CacheUse(peak_dirty_bytes=3 * GIB),
    flush_started_dirty_bytes=2 * GIB,
)
LOAD = LoadWatch(utilization=0.84)

UNKNOWN_SPEND = published(standing(Phase.IDLE, owned=()))

QUOTE = Quote(VOLUME_SPEC, "USD", 0.0123, 60.0, "a price list")
PRICED = published(standing(Phase.BOOSTING, cycle=replace(CYCLE, quote=QUOTE), owned=(VOLUME,)))

COLD = CreditsPart(60 * GIB, 500 * GIB, 50 * GIB, 6.0, 40.0, flush_limit_mb_s=7.5)

SITUATIONS: dict[str, Status] = {
    "cold": replace(UNKNOWN_SPEND, credits=COLD),
    "idle": published(standing(Phase.IDLE, owned=())),
    "just_started": published(AgentState(waiting_for="the cloud to list this agent's volumes"), identity=None),
    "stopped": published(
        standing(
            Phase.IDLE, owned=(), waste=Waste(wasted=8, stopped="8 volumes in a row never became a cache: refused")
        )
    ),
    "thrifty": published(standing(Phase.IDLE, owned=(), waste=Waste((UselessBoost(0.4, 2.0, 1_789_999_900.0),) * 5))),
    "quiesced": published(standing(Phase.IDLE, owned=(), inhibition=SNAPSHOT, listed=Listed(7990.0, 9000.0))),
    "unknown_spend": replace(UNKNOWN_SPEND, spend=replace(UNKNOWN_SPEND.spend, known=False)),
    "paused": published(standing(Phase.IDLE, owned=(), paused=True, learned_size_bytes=4 * GIB)),
    "boosting": published(
        AgentState(
            recovered=True,
            phase=Phase.BOOSTING,
            cycle=CYCLE,
            memory=Memory(load=LOAD),
            owned=(VOLUME,),
            waiting_for="the load to end",
        ),
        dirty_bytes=3 * GIB,
    ),
    "priced": replace(
        PRICED,
        spend=replace(
            PRICED.spend, currency="USD", unpriced=1, month=MonthPart(31, 40000.0, 1.25, max_boosts=200, max_cost=5.0)
        ),
    ),
    "shared": replace(
        PRICED,
        spend=replace(
            PRICED.spend,
            currency="USD",
            month=MonthPart(31, 40000.0, 1.25, max_cost=5.0),
            others=OthersPart(3, 4567.0, 0.34, MonthPart(42, 90000.0, 2.5)),
        ),
    ),
    "shared_unknown": replace(
        UNKNOWN_SPEND,
        spend=replace(UNKNOWN_SPEND.spend, others=OthersPart(trouble="/var/lib/elastio/caps/b.json cannot be read")),
    ),
    "flushing": published(standing(Phase.FLUSHING, cycle=CYCLE, owned=(VOLUME,)), dirty_bytes=512 * MIB),
    "faulted": published(
        standing(Phase.FAULTED, fault="the cache is missing", waiting_for="an operator"),
        last_error="AttachVolume: timed out",
        last_error_wall=1_789_999_000.0,
        host_responsive=False,
    ),
}


def test_the_document_has_the_kind_of_a_fault() -> None:
    assert SITUATIONS["faulted"].fault_kind == "cache missing"
    assert SITUATIONS["idle"].fault_kind == ""


@pytest.mark.parametrize(
    ("boosts", "most", "shown"),
    [
        (0, None, "0 boosts"),
        (1, None, "1 boost"),
        (2, None, "2 boosts"),
        (1, 10, "1 of 10 boosts"),
        (0, 1, "0 of 1 boost"),
    ],
)
def test_one_boost_is_one(boosts: int, most: int | None, shown: str) -> None:
    spend = replace(SITUATIONS["idle"].spend, boosts=boosts, max_boosts=most)
    assert dict(rows(replace(SITUATIONS["idle"], spend=spend)))["today"].partition(",")[0] == shown


def test_a_cap_that_ended_a_boost_is_shown_until_its_day_is_over() -> None:
    caps = Caps(max_cost_per_day=5.0)
    state = standing(Phase.IDLE, capped=Capped("caps.max_cost_per_day", 5.0, Period(0.0, 86_400.0)))
    for wall, is_shown in ((80_000.0, True), (86_400.0, False)):
        obs = Observation(now=2.0, wall=wall)
        seen = status_of(state, obs, replace(POLICY, caps=caps), RuntimeInfo("0.1.0", 0.0))
        assert ("caps.max_cost_per_day" in dict(rows(seen)).get("capped", "")) is is_shown


def test_the_volume_of_the_cycle_is_listed_as_it_was_seen_last_and_a_deleted_one_is_not() -> None:
    """The list of the cloud is read at intervals, and may be older than the cycle."""
    gone, other = (replace(VOLUME, id=VolumeId(name)) for name in ("vol-2", "vol-3"))
    listed = (replace(VOLUME, state=VolumeState.AVAILABLE), replace(gone, state=VolumeState.GONE), other)
    for owned, shown in (
        ((), [("vol-1", "attached")]),
        (listed, [("vol-1", "attached"), ("vol-3", "attached")]),
    ):
        seen = published(standing(Phase.BOOSTING, cycle=CYCLE, owned=owned))
        assert [(v.id, v.state) for v in seen.owned or ()] == shown
    assert published(standing(Phase.BOOSTING, cycle=CYCLE)).owned is None


def test_a_volume_whose_disk_the_kernel_shows_is_attached_though_the_cloud_was_not_asked_again() -> None:
    coming = replace(VOLUME, state=VolumeState.ATTACHING)
    for times, shown in ((Timestamps(), "attaching"), (Timestamps(appeared=7903.0), "attached")):
        cycle = replace(CYCLE, volume=coming, times=times)
        seen = published(standing(Phase.BOOSTING, cycle=cycle, owned=()))
        assert [v.state for v in seen.owned or ()] == [shown]


@pytest.mark.parametrize("name", SITUATIONS)
def test_prints_the_situation_and_the_document(name: str, agent: FakeAgent, elastio: Shell, golden: Golden) -> None:
    agent.statuses = [SITUATIONS[name]]
    result = elastio("status")
    assert result.exit_code == Exit.OK
    golden(f"status_{name}.txt", result.stdout)
    assert Status.from_json(json.loads(elastio("status", "--json").stdout)) == SITUATIONS[name]


@pytest.mark.parametrize(
    ("at_start", "left", "progress"),
    [(2 * GIB, GIB, 0.5), (2 * GIB, 0, 1.0), (GIB, 2 * GIB, 0.0), (0, 0, 1.0)],
)
def test_flush_progress_is_the_share_that_has_left(at_start: int, left: int, progress: float) -> None:
    cycle = replace(CYCLE, flush_started_dirty_bytes=at_start)
    seen = published(standing(Phase.FLUSHING, cycle=cycle), dirty_bytes=left)
    assert seen.cycle is not None
    assert seen.cycle.flush_progress == progress


def test_credits_are_shown_once_they_are_known_with_the_bandwidth_in_force() -> None:
    bucket = CreditBucket(6.0, 40.0, 500 * GIB)
    policy = replace(POLICY, backing_bandwidth_mb_s=40.0, backing_credits=bucket)
    around, obs = RuntimeInfo("0.1.0", 0.0), Observation(now=2.0, wall=3.0)
    assert status_of(AgentState(), obs, policy, around).credits is None
    known = AgentState(memory=Memory(credits=CreditBalance(0.0, 1.0), credit_limit_mb_s=3.0))
    seen = status_of(known, obs, policy, around)
    assert seen.credits == CreditsPart(0.0, 500 * GIB, 50 * GIB, 6.0, 40.0, 3.0)
    assert seen.load.backing_bandwidth_mb_s == 6.0
    assert status_of(known, obs, POLICY, around).credits is None


def test_what_others_have_spent_under_shared_caps_is_in_the_document() -> None:
    others = Others(Spent(1, 2.0, 0.3), Spent(4, 5.0, 0.6))
    obs, around = Observation(now=2.0, wall=3.0, spend=Spend(others=others)), RuntimeInfo("0.1.0", 0.0)
    seen = status_of(AgentState(), obs, POLICY, around).spend
    assert seen.others == OthersPart(1, 2.0, 0.3, MonthPart(4, 5.0, 0.6))
    assert status_of(AgentState(), replace(obs, spend=Spend()), POLICY, around).spend.others is None


def test_a_price_that_is_not_known_is_not_shown() -> None:
    unknown = replace(CYCLE, quote=replace(QUOTE, price_per_hour=0.0, price_known=False))
    seen = published(standing(Phase.BOOSTING, cycle=unknown))
    assert seen.cycle is not None
    assert (seen.cycle.price_per_hour, seen.cycle.currency) == (None, "")
    assert dict(rows(seen))["cache"] == dict(rows(published(standing(Phase.BOOSTING, cycle=CYCLE))))["cache"]


def test_amounts_in_two_currencies_have_no_sum() -> None:
    seen = replace(PRICED, spend=replace(PRICED.spend, currency="EUR and USD"))
    assert "0.12" not in dict(rows(seen))["today"]


def test_a_cloud_that_cannot_be_used_is_shown_once() -> None:
    seen = published(
        AgentState(), cloud_error="no such provider is installed", last_error="no such provider is installed"
    )
    shown = rows(seen)
    assert ("cloud", "no such provider is installed") in shown
    assert "last error" not in dict(shown)


def test_between_two_scans_the_last_views_are_shown() -> None:
    """An observation carries the kernel's view and the throughput only while they are fresh."""
    around = RuntimeInfo(
        "0.1.0", 0.0, host=HostView(1.0, "boot", backing_with(GIB)), sample=Sample(1.0, 1.0, Rates(3.0, 4.0))
    )
    seen = status_of(AgentState(), Observation(now=2.0, wall=3.0), POLICY, around)
    assert seen.backing is not None
    assert seen.backing.dirty_bytes == GIB
    assert (seen.load.read_mb_s, seen.load.write_mb_s) == (3.0, 4.0)


def test_what_counts_of_the_load_is_published_with_the_rights() -> None:
    sample = Sample(1.0, 1.0, Rates(3.0, 14.0), counted=Rates(0.5, 1.0))
    policy = replace(POLICY, boost_rights=BoostRights(("*",), ("tar.service",)))
    seen = status_of(AgentState(), Observation(now=2.0, wall=3.0), policy, RuntimeInfo("0.1.0", 0.0, sample=sample))
    assert (seen.load.counted_mb_s, seen.load.may_boost, seen.load.no_boost) == (1.5, ("*",), ("tar.service",))
    assert Status.from_json(seen.to_json()) == seen
    assert "1.5 MB/s" in dict(rows(seen))["throughput"]


def test_a_learned_bandwidth_is_published_and_shown() -> None:
    fixed = published(standing(Phase.IDLE, owned=()))
    assert fixed.learned_bandwidth_mb_s is None
    known = standing(Phase.IDLE, owned=(), bandwidth=LearnedBandwidth(91.0, instance_mb_s=math.inf))
    learned = published(known, bandwidth=SpeedBounds(64.0, 32.0, 128.0))
    assert learned.learned_bandwidth_mb_s == 91.0
    assert set(rows(learned)) - set(rows(fixed)) == {("next cache", "91 MB/s, learned")}


def test_the_capacity_is_published_with_its_reason() -> None:
    found = published(standing(Phase.IDLE)).capacity
    assert found is not None
    assert found.mb_s == pytest.approx(0.97 * 60)
    assert replace(found, mb_s=None) == CapacityPart(None, "backing volume", 60.0)


def test_an_agent_that_the_kernel_does_not_answer_tells_no_capacity() -> None:
    found = published(standing(Phase.IDLE), host_responsive=False).capacity
    assert found is not None
    assert (found.mb_s, found.unknown) == (None, Unknown.NOT_RUNNING)


def test_a_socket_that_the_system_cannot_have_is_wrong_configuration(tmp_path: Path) -> None:
    path = tmp_path / "elastio.toml"
    path.write_text(
        f'device = {{ backing_uuid = "{"0" * 8}-0000-0000-0000-{"0" * 12}", bandwidth_mb_s = 33 }}\n'
        f'cache.bandwidth_mb_s = 128\nprovider.name = "sim"\nagent.socket = "/{"n" * 107}"\n'
    )
    assert CliRunner().invoke(main, ["--config", str(path), "status"]).exit_code == Exit.CONFIG


def test_an_agent_that_is_not_running_is_one_sentence(elastio: Shell, golden: Golden) -> None:
    result = elastio("status")
    assert (result.exit_code, result.stdout) == (Exit.UNREACHABLE, "")
    golden("agent_not_running.txt", result.stderr)


@pytest.mark.parametrize("changes", [{"load": None}, {"load": {"threshold": 1}}, {"wall": "now"}, {"owned": [{}]}])
def test_a_document_of_another_release_is_refused(changes: dict[str, object]) -> None:
    with refused(ControlError, "status.fields"):
        Status.from_json({**SITUATIONS["idle"].to_json(), **changes})


def test_a_field_of_a_later_release_is_ignored() -> None:
    assert Status.from_json({**SITUATIONS["idle"].to_json(), "of_a_later_release": 1}) == SITUATIONS["idle"]
