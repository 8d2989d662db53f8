"""Doctor's check of adopted volumes."""

from __future__ import annotations

from elastio.errors import ElastioError
from elastio.host import composed
from elastio.setup import adopted_record
from elastio.setup.adopted_record import Record
from elastio.setup.check_result import CheckResult, Machine, fail, ok

NAME = "adopted volume"


def adopted(machine: Machine) -> list[CheckResult]:
    """One result for each record; none on a machine without adopted volumes."""
    try:
        return [_composed(machine, record) for record in adopted_record.load_all(machine.sysfs)]
    except ElastioError as error:
        return [fail(NAME, str(error), "restore the file, or remove it to use the volume as it is", error.code)]


def _composed(machine: Machine, record: Record) -> CheckResult:
    adaptive = composed.adaptive_of(machine.sysfs, record.head)
    if adaptive is not None and record.step is adopted_record.Step.COMPOSED:
        return ok(NAME, f"{record.uuid} is on /dev/{adaptive}, without boosts")
    return fail(
        NAME,
        f"{record.uuid} is not composed (recorded step: {record.step})",
        f"see `journalctl -u elastio-compose@{record.uuid}`, or run `elastio device release {record.uuid}`",
        "not_composed",
    )
