"""Experiments on the laboratory's OpenStack without its services: refusals, configuration, usage."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from elastio.config import schema
from elastio.core.model import VolumeSpec
from elastio.units import GIB
from elastio_openstack import settings, speeds
from elastio_testbed.cli import main
from elastio_testbed.errors import LabError
from elastio_testbed.experiment import PUBLISHED, Scaled, Setup
from elastio_testbed.machine import Tables, config_text
from elastio_testbed.openstack import demo
from elastio_testbed.openstack.cinder_usage import CinderUsage, attach_spans, usage_of
from elastio_testbed.run import trials_of
from elastio_testbed.trial import OPENSTACK, Plan, Trial, cloud_s, volume_agbs

UUID = "0b6f4c1e-5d0c-4a57-9d55-6f3a4b1c2d3e"
PLAN = Plan("demo", PUBLISHED, 0.12, 0.5, cloud=OPENSTACK)
VOLUME = "3f2b8a1c-0d4e-4f6a-9b8c-7d6e5f4a3b2c"


def test_each_cloud_has_trials_of_its_own() -> None:
    assert trials_of(replace(PLAN, cloud="ec2")) is Trial
    assert trials_of(PLAN) is demo.OpenstackTrial


@pytest.mark.parametrize(
    "changes",
    [
        {"vms": 2},
        {"side_by_side": True},
        {"setups": (Setup.LVMCACHE,)},
        {"experiment": "lammps"},
        {"bandwidth": 1.0},
        {"disturb": 1},
    ],
)
def test_plan_that_this_cloud_cannot_run_is_refused_before_anything_starts(changes: dict[str, object]) -> None:
    with pytest.raises(LabError):
        trials_of(replace(PLAN, **changes))  # type: ignore[arg-type]


def configured(scaled: Scaled, *changes: Tables) -> dict[str, Any]:
    return tomllib.loads(config_text(demo.config_tables(UUID, scaled), *changes))


def test_configuration_is_valid_and_the_fast_type_provides_the_bandwidth() -> None:
    document = configured(PLAN.scaled())
    policy = schema.parse(document).policy()
    assert policy.initial_size_bytes == policy.min_size_bytes == GIB
    assert policy.caps.max_size_bytes == 4 * GIB
    table = settings.parse(document["provider"]["openstack"])
    known = [speed for name, row in table.types.items() if (speed := speeds.speed_of(name, row, None))]
    wanted = VolumeSpec(policy.min_size_bytes, policy.bought_bandwidth_mb_s)
    chosen, size_gib = speeds.choose(wanted, known)
    assert (chosen.name, size_gib) == ("fast", 1)


def test_first_cache_of_a_larger_experiment_is_rounded_up_and_below_the_cap() -> None:
    policy = schema.parse(configured(replace(PLAN, scale=1.0).scaled())).policy()
    assert policy.initial_size_bytes == 5 * GIB
    assert policy.caps.max_size_bytes == 20 * GIB


def test_changed_settings_are_merged_with_the_others() -> None:
    changes: Tables = {"policy": {"attach_timeout_s": 45}, "cache": {"max_size_gib": 8}}
    policy = schema.parse(configured(PLAN.scaled(), changes)).policy()
    assert policy.attach_timeout_s == 45
    assert (policy.caps.max_size_bytes, policy.cool_down_s) == (8 * GIB, 1)


def action(kind: str, begin: str, end: str, message: str | None = None) -> dict[str, str | None]:
    """An action in the format of Nova's list."""
    day = "2026-01-01T"
    return {
        "action": kind,
        "start_time": f"{day}{begin}.000000",
        "updated_at": f"{day}{end}.000000",
        "message": message,
    }


def test_volume_takes_the_first_attach_that_succeeded_after_it_was_available() -> None:
    spans = attach_spans(
        [
            action("attach_volume", "00:10:00", "00:10:09"),
            action("attach_volume", "00:09:55", "00:09:56", "Error"),
            action("detach_volume", "00:09:54", "00:09:54"),
            action("attach_volume", "00:00:20", "00:00:25"),
        ]
    )
    columns = [VOLUME, "1", "fast", "2026-01-01 00:09:50", "2026-01-01 00:09:53", "2026-01-01 00:11:00"]
    row = usage_of(columns, spans)
    assert cloud_s(row.history) == 3.0 + 9.0
    assert (row.serial, row.size_gib) == (VOLUME[:20], 1)
    assert row.deleted_at is not None
    assert row.deleted_at - row.created_at == 70.0
    assert row.history[-1] == (row.deleted_at, "deleted")


def test_volume_without_an_attach_of_its_own_has_the_states_that_it_reached() -> None:
    spans = attach_spans([action("attach_volume", "00:10:00", "00:10:09")])
    gone = usage_of([VOLUME, "1", "fast", "2026-01-01 00:05:00", "2026-01-01 00:05:03", "2026-01-01 00:06:00"], spans)
    assert cloud_s(gone.history) is None
    assert [state for _, state in gone.history] == ["creating", "available", "deleted"]
    never_available = usage_of([VOLUME, "1", "fast", "2026-01-01 00:05:00", "NULL", "NULL"], [])
    assert never_available.deleted_at is None
    assert [state for _, state in never_available.history] == ["creating"]


def test_cost_of_a_cinder_volume_is_its_types_bandwidth_times_whole_gib() -> None:
    row = usage_of([VOLUME, "2", "fast", "2026-01-01 00:00:00", "NULL", "2026-01-01 00:00:10"], [])
    assert volume_agbs(row, CinderUsage.scale) == pytest.approx(64.0 * 2 * GIB / 1e9 * 10)


def test_command_line_refuses_in_one_line() -> None:
    done = CliRunner().invoke(main, ["run", "demo", "--cloud", "openstack", "--bandwidth", "1"])
    assert (done.exit_code, len(done.output.splitlines())) == (1, 1)
