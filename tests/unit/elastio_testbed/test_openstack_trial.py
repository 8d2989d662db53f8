"""Experiments on the laboratory's OpenStack, as far as they show without one: refusals, configuration, books."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from click.testing import CliRunner

from elastio.config import schema
from elastio.core.model import VolumeSpec
from elastio.units import GIB
from elastio_openstack import settings, speeds
from elastio_testbed.cli import main
from elastio_testbed.experiment import PUBLISHED, Setup
from elastio_testbed.openstack import demo
from elastio_testbed.openstack.books import CinderBooks, attachments_of, row_of
from elastio_testbed.openstack.errors import LabError
from elastio_testbed.run import trials_of
from elastio_testbed.trial import OPENSTACK, Plan, Trial, cloud_s, volume_agbs

UUID = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
PLAN = Plan("demo", PUBLISHED, 0.12, 0.5, cloud=OPENSTACK)
VOLUME = "3f2b8a1c-0d4e-4f6a-9b8c-7d6e5f4a3b2c"


def test_each_cloud_has_trials_of_its_own() -> None:
    assert trials_of(replace(PLAN, cloud="ec2")) is Trial
    assert trials_of(PLAN) is demo.OpenstackTrial


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"vms": 2}, "one guest at a time"),
        ({"side_by_side": True}, "one guest at a time"),
        ({"setups": (Setup.LVMCACHE,)}, "run demo or cm1"),
        ({"experiment": "lammps"}, "run demo or cm1"),
        ({"bandwidth": 1.0}, "use --bandwidth 0.5"),
        ({"disturb": 1}, "--disturb is for EC2"),
    ],
)
def test_plan_that_this_cloud_cannot_run_is_refused_before_anything_is_made(
    changes: dict[str, object], said: str
) -> None:
    with pytest.raises(LabError, match=said):
        trials_of(replace(PLAN, **changes))  # type: ignore[arg-type]


def test_agent_of_the_guest_understands_its_configuration_and_the_fast_type_carries_what_it_buys() -> None:
    document = tomllib.loads(demo.config_text(UUID, PLAN.scaled(), {}))
    policy = schema.parse(document).policy()
    assert policy.initial_size_bytes == policy.min_size_bytes == GIB
    assert policy.caps.max_size_bytes == 4 * GIB
    table = settings.parse(document["provider"]["openstack"])
    known = [speed for name, row in table.types.items() if (speed := speeds.speed_of(name, row, None))]
    wanted = VolumeSpec(policy.min_size_bytes, policy.bought_bandwidth_mb_s)
    chosen, size_gib = speeds.choose(wanted, known)
    assert (chosen.name, size_gib) == ("fast", 1)


def test_first_cache_of_a_larger_experiment_is_rounded_up_and_below_the_cap() -> None:
    policy = schema.parse(tomllib.loads(demo.config_text(UUID, replace(PLAN, scale=1.0).scaled(), {}))).policy()
    assert policy.initial_size_bytes == 5 * GIB
    assert policy.caps.max_size_bytes == 20 * GIB


def test_changed_settings_replace_and_complete_the_others() -> None:
    changes = {"policy": {"attach_timeout_s": 45}, "cache": {"max_size_gib": 8}}
    document = tomllib.loads(demo.config_text(UUID, PLAN.scaled(), changes))
    policy = schema.parse(document).policy()
    assert policy.attach_timeout_s == 45
    assert (policy.caps.max_size_bytes, policy.cool_down_s) == (8 * GIB, 1)


def action(kind: str, begin: str, end: str, message: str | None = None) -> dict[str, str | None]:
    """As Nova lists it."""
    day = "2026-01-01T"
    return {
        "action": kind,
        "start_time": f"{day}{begin}.000000",
        "updated_at": f"{day}{end}.000000",
        "message": message,
    }


def test_volume_takes_the_first_attach_that_succeeded_after_it_was_available() -> None:
    spans = attachments_of(
        [
            action("attach_volume", "00:10:00", "00:10:09"),
            action("attach_volume", "00:09:55", "00:09:56", "Error"),
            action("detach_volume", "00:09:54", "00:09:54"),
            action("attach_volume", "00:00:20", "00:00:25"),
        ]
    )
    columns = [VOLUME, "1", "fast", "2026-01-01 00:09:50", "2026-01-01 00:09:53", "2026-01-01 00:11:00"]
    row = row_of(columns, spans)
    assert cloud_s(row.history) == 3.0 + 9.0
    assert (row.serial, row.size_gib) == (VOLUME[:20], 1)
    assert row.deleted_at is not None
    assert row.deleted_at - row.created_at == 70.0
    assert row.history[-1] == (row.deleted_at, "deleted")


def test_attach_of_a_later_volume_is_not_taken_for_the_one_that_is_gone() -> None:
    spans = attachments_of([action("attach_volume", "00:10:00", "00:10:09")])
    gone = row_of([VOLUME, "1", "fast", "2026-01-01 00:05:00", "2026-01-01 00:05:03", "2026-01-01 00:06:00"], spans)
    assert cloud_s(gone.history) is None
    assert [state for _, state in gone.history] == ["creating", "available", "deleted"]


def test_volume_that_never_became_available_has_only_begun() -> None:
    row = row_of([VOLUME, "1", "fast", "2026-01-01 00:05:00", "NULL", "NULL"], [])
    assert row.deleted_at is None
    assert [state for _, state in row.history] == ["creating"]


def test_cost_of_a_cinder_volume_is_its_types_bandwidth_times_whole_gib() -> None:
    row = row_of([VOLUME, "2", "fast", "2026-01-01 00:00:00", "NULL", "2026-01-01 00:00:10"], [])
    assert volume_agbs(row, CinderBooks.scale) == pytest.approx(64.0 * 2 * GIB / 1e9 * 10)


def test_command_line_refuses_in_one_sentence() -> None:
    done = CliRunner().invoke(main, ["run", "demo", "--cloud", "openstack", "--bandwidth", "1"])
    assert done.exit_code == 1
    assert done.output.startswith("Error: the volume types carry")
    assert "Traceback" not in done.output


def test_command_line_knows_the_cloud_of_this_machine() -> None:
    done = CliRunner().invoke(main, ["cloud", "openstack", "--help"])
    assert done.exit_code == 0
    assert {"up", "down", "status"} <= set(done.output.split())
