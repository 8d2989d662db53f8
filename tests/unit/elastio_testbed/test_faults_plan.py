"""The plan of a campaign is determined by its seed and covers every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from click.testing import CliRunner

from elastio.core.state import Phase
from elastio_testbed.cli import main
from elastio_testbed.ec2 import FaultKind
from elastio_testbed.ec2.faults import Faults
from elastio_testbed.errors import PlanError
from elastio_testbed.faults.evidence import folder_of
from elastio_testbed.faults.fault_actions import FAULT_ACTIONS
from elastio_testbed.faults.kinds import (
    EVERYWHERE,
    KINDS,
    OF_ADOPTED,
    PHASES,
    PULLS,
    SELECTION,
    STEPS,
    THROTTLED,
    TOMBSTONES,
    FaultAction,
    Trigger,
)
from elastio_testbed.faults.plan import WITHOUT_SIDE_FAULT, PlannedRun, plan
from elastio_testbed.faults.run_result import RunResult, summary
from elastio_testbed.faults.runner import has_struck, is_done
from elastio_testbed.faults.tears import Tear


def test_a_plan_is_determined_by_its_seed_and_begins_with_a_shorter_one() -> None:
    assert plan(60, 3)[:20] == plan(20, 3)
    assert plan(60, 7) != plan(60, 8)


def test_every_kind_and_every_trigger_of_a_kind_comes_before_any_is_repeated() -> None:
    runs = plan(2 * len(EVERYWHERE), 5)
    for half in (runs[: len(EVERYWHERE)], runs[len(EVERYWHERE) :]):
        assert {run.kind for run in half} == set(EVERYWHERE) == set(KINDS) - set(OF_ADOPTED)
    assert {run.trigger for run in plan(len(STEPS), 2, ["power-cut"])} == set(STEPS)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_is_within_the_limits_of_its_kind(seed: int) -> None:
    for run in plan(60, seed):
        kind = KINDS[run.kind]
        assert run.trigger in kind.triggers
        assert 0 <= run.delay_s <= kind.random_s
        own = [each for each in run.cloud if each.kind == run.kind]
        assert [each.call in kind.calls for each in own] == ([True] if kind.calls else [])
        assert len(run.cloud) == len(own) or run.action not in WITHOUT_SIDE_FAULT


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(PlanError) as raised:
        plan(1, 1, ["meteor"])
    assert raised.value.code == "kind"


# --- the table ---------------------------------------------------------------------------------------------------


def test_triggers_have_the_names_of_the_journal() -> None:
    assert {trigger.what for trigger in PHASES} == set(Phase) - {Phase.FAULTED}
    others = {trigger for kind in KINDS.values() for trigger in kind.triggers} - {*STEPS, *PHASES}
    assert others == {THROTTLED, *TOMBSTONES}
    assert {t for name in EVERYWHERE for t in KINDS[name].triggers}.isdisjoint(TOMBSTONES), "only adopted volumes"
    with pytest.raises(ValueError, match="InstallCaches"):
        Trigger("outcome", "InstallCaches")


def test_every_fault_of_the_cloud_is_known_to_the_endpoint() -> None:
    kinds = set()
    for kind in KINDS.values():
        assert (kind.fault is not None) == bool(kind.calls)
        for call in kind.calls:
            fault = kind.cloud_fault(call)
            assert fault is not None
            assert fault.times is not None, "with an endless fault the agent never becomes idle"
            kinds.add(fault.kind)
    assert kinds == set(FaultKind)


def test_every_action_has_a_function_and_is_in_the_table_and_the_selection_covers_every_group() -> None:
    assert {kind.action for kind in KINDS.values()} == set(FAULT_ACTIONS) == set(FaultAction)
    assert len(SELECTION) >= 8
    chosen = {KINDS[name].action for name in SELECTION}
    assert {
        FaultAction.KILL_DAEMON,
        FaultAction.CUT_POWER,
        FaultAction.REBOOT,
        FaultAction.STOP_SERVICE,
        FaultAction.NOTHING,
    } <= chosen
    assert chosen & set(PULLS)


@pytest.mark.parametrize(
    ("kind", "delay_s", "missed", "done"),
    [
        ("daemon-kill", 0.0, False, True),
        ("daemon-kill", 0.0, True, False),
        ("daemon-kill-random", 2.0, False, False),
        ("daemon-kill-holding", 0.0, False, False),  # it remains to be checked that nobody is throttled
        ("daemon-kill-holding", 0.0, True, True),
        ("power-cut", 0.0, False, False),
        ("power-cut", 0.0, True, False),
        ("cache-pulled-dirty", 1.0, False, False),
        ("cache-pulled-dirty", 1.0, True, True),
    ],
)
def test_only_a_kill_at_its_trigger_is_done_by_the_guest_and_a_missing_cache_is_not_removed(
    kind: str, delay_s: float, missed: bool, done: bool
) -> None:
    run = dataclasses.replace(plan(1, 1, [kind])[0], delay_s=delay_s)
    assert is_done(run, missed=missed) is done


def test_a_fault_of_the_cloud_that_hit_no_call_is_detected() -> None:
    run = plan(1, 1, ["api-throttled"])[0]
    faults = Faults()
    faults.add(*(fault for each in run.cloud if (fault := KINDS[each.kind].cloud_fault(each.call))))
    assert not has_struck(faults.pending(), run)
    hit = faults.take("CreateVolume" if run.cloud[0].call == "*" else run.cloud[0].call, {FaultKind.THROTTLE})
    assert hit is not None
    assert has_struck(faults.pending(), run)
    assert has_struck([], run)


# --- results -----------------------------------------------------------------------------------------------------

RUN = PlannedRun(1, "power-cut", Trigger("intent", "CreateVolume"), 0.0, (), 9)
SOUND = RunResult(RUN, acknowledged_records=40, recovery_s=12.0, rest_s=60.0)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"lost_records": 1, "missed": True}, "lost"),
        ({"missed": True}, "missed"),
        ({"stuck": "it", "missed": True}, "failed"),
    ],
)
def test_the_folder_of_the_evidence_says_why_it_is_kept_and_what_repeats_the_run(
    changes: dict[str, Any], kind: str
) -> None:
    assert folder_of(dataclasses.replace(SOUND, **changes), 7) == f"{kind}-7-{RUN.number}"


def test_a_campaign_sums_its_runs() -> None:
    other = dataclasses.replace(SOUND, planned=plan(1, 1, ["api-lost-answer"])[0], recovery_s=20.0)
    document = summary(3, [SOUND, other])
    assert document["runs"] == 2
    assert document["faults"] == {"api-lost-answer": 1, "power-cut": 1}
    assert document["acknowledged_records"] == 80
    assert document["worst_recovery_s"] == 20.0
    assert document["sound"] is True


@pytest.mark.parametrize(
    "failure",
    [
        {"lost_records": 1},
        {"unverified_records": 1},
        {"leaked_volumes": ("vol-1",)},
        {"stuck": "no guest"},
        {"interrupted": True},
    ],
)
def test_one_failure_makes_a_campaign_unsound(failure: dict[str, Any]) -> None:
    assert summary(3, [SOUND, dataclasses.replace(SOUND, **failure)])["sound"] is False
    assert summary(3, [])["sound"] is False, "a campaign of no runs proves nothing"


def test_the_command_prints_a_plan_without_running_it() -> None:
    done = CliRunner().invoke(main, ["faults", "--runs", "3", "--seed", "4", "--list"])
    assert done.exit_code == 0
    assert done.output.splitlines() == [str(run) for run in plan(3, 4)]
    only = CliRunner().invoke(main, ["faults", "--runs", "3", "--seed", "4", "--only", "2", "--list"])
    assert only.output.splitlines() == [str(plan(3, 4)[1])]
    two = CliRunner().invoke(main, ["faults", "--runs", "3", "--seed", "4", "--only", "3", "--only", "1", "--list"])
    assert two.output.splitlines() == [str(run) for run in plan(3, 4)[::2]]
    none = CliRunner().invoke(main, ["faults", "--runs", "3", "--only", "1", "--only", "4", "--list"])
    assert none.exit_code == 1


@pytest.mark.parametrize(
    ("adopted", "kinds"), [((), ()), (("--adopted", "pv/ext4"), ()), (("--adopted", "luks/ext4"), OF_ADOPTED)]
)
def test_faults_strike_a_tombstone_only_where_it_comes_and_goes_with_a_cache(
    adopted: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    selection = CliRunner().invoke(main, ["faults", "--selection", *adopted, "--list"])
    assert selection.output.splitlines() == [str(run) for run in plan(len(SELECTION + kinds), 1, SELECTION + kinds)]
    campaign = CliRunner().invoke(main, ["faults", "--runs", "80", *adopted, "--list"])
    assert campaign.output.splitlines() == [str(run) for run in plan(80, 1, EVERYWHERE + kinds)]
    chosen = CliRunner().invoke(main, ["faults", "--kind", OF_ADOPTED[0], "--runs", "1", *adopted, "--list"])
    assert chosen.exit_code == (0 if kinds else 1)


def test_a_record_that_the_kernel_provably_lost_is_counted_separately() -> None:
    result = dataclasses.replace(SOUND, lost_records=1, torn_records=1, tears=(Tear("run1-0", 1.0),))
    assert result.is_sound
    document = summary(3, [result])
    assert (document["lost_records"], document["torn_records"], document["sound"]) == (1, 1, True)
    assert not dataclasses.replace(result, lost_records=2).is_sound


@pytest.mark.parametrize(("torn_runs", "tears", "sound"), [(1, 1, True), (2, 10, True), (2, 9, False), (27, 27, False)])
def test_a_campaign_in_which_too_many_tears_lost_a_record_is_unsound(torn_runs: int, tears: int, sound: bool) -> None:
    whole = dataclasses.replace(SOUND, tears=(Tear("run1-0", 1.0),))
    torn = dataclasses.replace(whole, lost_records=1, torn_records=1)
    document = summary(3, [torn] * torn_runs + [whole] * (tears - torn_runs))
    assert (document["sound"], document["torn_off_under_load"]) == (sound, tears)


def test_the_document_has_the_evidence_of_tears_and_the_kernel() -> None:
    tear = Tear("run1-0", 1.0, kernel_log=("[    2.0] bcache: something",))
    document = summary(3, [dataclasses.replace(SOUND, tears=(tear,), kernel="6.1.0-56-cloud-amd64")])
    assert document["kernels"] == ["6.1.0-56-cloud-amd64"]
    assert document["stories"][0]["tears"] == (dataclasses.asdict(tear),)
