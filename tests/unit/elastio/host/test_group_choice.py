"""Which cgroups are looked at where there are many, and whose bandwidth limit is in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastio.host.cgroups import CGROUPS
from elastio.host.group_watch import MOST_GROUPS
from elastio.strategy.account import account
from tests.unit.elastio.host.test_group_watch import DB, NUMBER, Machine


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    made.proc.task(10, "D")
    made.group(DB, 10)
    return made


@pytest.mark.parametrize(("limit", "cap_mb_s", "limited"), [("max", 9, 0), ("9900000", 99, 1), ("11000000", 9, 0)])
def test_the_lower_limit_of_cgroup_and_device_is_in_force(
    machine: Machine, limit: str, cap_mb_s: float, limited: float
) -> None:
    machine.kernel.lay(f"{CGROUPS}/{DB}/io.max", f"{NUMBER} rbps=max wbps={limit} riops=max wiops=max")
    machine.look()
    machine.use(DB, 500)
    seen = machine.look(cap_mb_s=cap_mb_s).groups[DB]
    assert account(seen).bandwidth_s == pytest.approx(seen.seconds)
    assert seen.limited.seconds == pytest.approx(limited * seen.seconds)


def test_more_cgroups_than_are_looked_at_are_a_remark(machine: Machine) -> None:
    for number in range(MOST_GROUPS):
        machine.group(f"system.slice/many{number}.service")
    assert len(machine.look().remarks) == 1
