"""A head in the volume group: made, found again and removed, and never another logical volume."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elastio.errors import DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host.heads import LEAST_BYTES, serialize
from elastio.units import SECTOR
from elastio_setup import adopted_record, head_volume
from elastio_setup.adopted_again import recorded_again
from elastio_setup.adopted_volume import path_of
from tests.fixtures.errors import refused
from tests.fixtures.heads import HEAD
from tests.values import present

from .adopt_machine import PowerCutError
from .lvm_machine import EXTENT, LvmMachine, logical, physical
from .tombstones import record

MOST_CHANGES = 18
CLONE_UUID = "CLoNe0-aaaa-bbbb-cccc-dddd-eeee-ffffff"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LvmMachine:
    found = LvmMachine(tmp_path)
    monkeypatch.setattr(os, "fsync", lambda _: found.change())
    return found


def release(machine: LvmMachine) -> None:
    machine.adopter().release(record(machine), None)


def test_the_head_gets_a_logical_volume_that_the_release_removes(machine: LvmMachine) -> None:
    plan = machine.plan()
    assert plan.head_serials == ("volume0123456789abcd",)
    assert machine.is_as_before, "a plan changes nothing"
    machine.adopter().adopt(plan)
    assert (machine.records, machine.is_composed, machine.volume) == (["composed"], True, machine.before)
    assert [row["lv_tags"] for row in machine.made] == [head_volume.tag_of(plan.head)]
    release(machine)
    assert machine.is_as_before


def test_it_is_named_as_the_group_shows_it(machine: LvmMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    assert path_of(Path("group/data"), machine.sysfs) == machine.sysfs.path("dev/group/data")
    for other in ("group/none", "group", "/group/data", "dev/group/data"):
        assert path_of(Path(other), machine.sysfs) == Path(other)
    monkeypatch.chdir(machine.root / "dev")
    assert path_of(Path("group/data"), machine.sysfs) == Path("group/data"), "a file of that name comes first"


# --- what is refused -----------------------------------------------------------------------------------------


def changed(**fields: str) -> Callable[[LvmMachine], None]:
    return lambda machine: machine.logicals[0].update(fields)


def placed(*rows: dict[str, str]) -> Callable[[LvmMachine], None]:
    return lambda machine: setattr(machine, "physicals", list(rows))


REFUSALS: dict[str, tuple[Callable[[LvmMachine], object], type[ElastioError], str]] = {
    "thin": (changed(lv_layout="thin,sparse"), NotOursError, "group.kind"),
    "a RAID": (changed(lv_layout="raid,raid1"), NotOursError, "group.kind"),
    "cached": (changed(lv_layout="cache"), NotOursError, "group.kind"),
    "a snapshot": (changed(lv_role="public,snapshot,thicksnapshot"), NotOursError, "group.kind"),
    "an origin": (changed(lv_role="public,origin,thickorigin"), NotOursError, "group.kind"),
    "another group": (changed(vg_uuid=CLONE_UUID), NotOursError, "group.kind"),
    "full": (placed(physical(free=3)), HostError, "group.full"),
    "in pieces": (placed(physical(free=2), physical("/dev/vdh", free=2)), HostError, "group.full"),
    "not to be allocated": (placed(physical(pv_allocatable="")), HostError, "group.full"),
    "read-only": (placed(physical(vg_attr="rz--n-")), NotOursError, "group.other"),
    "exported": (placed(physical(vg_attr="wzx-n-")), NotOursError, "group.other"),
    "partial": (placed(physical(vg_attr="wz-pn-")), NotOursError, "group.other"),
    "shared": (placed(physical(vg_attr="wz--ns")), NotOursError, "group.other"),
    "without lvm2": (lambda m: m.sysfs.path("usr/sbin/lvm").unlink(), HostError, "adopt.files"),
    "lvm2 fails": (lambda m: m.failing.add("lvs"), HostError, "program.failed"),
    "no fields": (lambda m: setattr(m, "run", lambda argv, **_: "{}"), HostError, "lvm.output"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refuses_a_group_that_cannot_have_the_head(machine: LvmMachine, name: str) -> None:
    prepare, error, code = REFUSALS[name]
    prepare(machine)
    with refused(error, code):
        head_volume.free_extents(machine.sysfs, "dm-1", 512, machine.run)
    assert machine.changes == 0


def test_larger_blocks_than_those_of_the_volume_are_refused(machine: LvmMachine) -> None:
    machine.physicals.append(physical("/dev/vdh"))
    machine.physicals[0]["pv_free"] = "0"
    assert machine.plan().extents is not None
    machine.lay("sys/block/vdh/queue/logical_block_size", "4096")
    machine.lay("sys/block/vdh/vdh1/partition", "1")
    machine.link("sys/class/block/vdh1", "../../block/vdh/vdh1")
    for name in ("vdh", "vdh1"):
        machine.physicals[1]["pv_name"] = f"/dev/{name}"
        with refused(HostError, "group.full"):
            machine.plan()
    machine.lay("sys/block/vdh/queue/logical_block_size", "512")
    assert machine.plan().extents is not None
    machine.physicals[1]["pv_free"] = "0"
    with refused(HostError, "group.full"):
        machine.plan()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.sampled_from([EXTENT // 4, EXTENT, EXTENT * 16]),
)
def test_it_lies_on_the_disk_of_the_volume_if_that_has_room(machine: LvmMachine, free: list[int], extent: int) -> None:
    rows = [physical("/dev/vdh"), physical("/dev/vdb")]
    for row, extents in zip(rows, free, strict=True):
        row.update(vg_extent_size=str(extent), pv_free=str(extents * extent))
    machine.physicals = rows
    enough = [row["pv_name"] for row in rows if int(row["pv_free"]) * SECTOR >= LEAST_BYTES]
    if not enough:
        with refused(HostError, "group.full"):
            head_volume.free_extents(machine.sysfs, "dm-1", 512, machine.run)
        return
    place = head_volume.free_extents(machine.sysfs, "dm-1", 512, machine.run)
    assert place.disk == enough[-1], "vdb comes last"
    assert place.sectors * SECTOR >= LEAST_BYTES
    assert (place.extents - 1) * extent * SECTOR < LEAST_BYTES
    assert place.sectors == place.extents * extent


# --- a power cut, or a kill ----------------------------------------------------------------------------------


def is_cut(work: Callable[[], object], machine: LvmMachine, point: int) -> bool:
    """As in `test_adopt`."""
    machine.changes, machine.cut_at = 0, point
    try:
        work()
    except PowerCutError:
        return True
    finally:
        machine.cut_at = -1
    assert machine.changes <= point, "more changes than are tried"
    return False


def require_whole(machine: LvmMachine) -> None:
    assert machine.volume == machine.before
    assert (machine.records, machine.is_composed, len(machine.made)) == (["composed"], True, 1) or machine.is_as_before


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_after_a_power_cut_while_adopting_it_is_composed_or_as_before(machine: LvmMachine, point: int) -> None:
    plan = machine.plan()
    if is_cut(lambda: machine.adopter().adopt(plan), machine, point):
        machine.boot()
    require_whole(machine)
    if machine.is_as_before:
        machine.adopter().adopt(machine.plan())
    assert machine.is_composed


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_ended_while_releasing_it_is_composed_or_as_before(machine: LvmMachine, point: int, is_killed: bool) -> None:
    machine.adopter().adopt(machine.plan())
    known = record(machine)
    if is_cut(lambda: machine.adopter().release(known, None), machine, point) and not is_killed:
        machine.boot()
        require_whole(machine)
    if machine.records:
        release(machine)
    assert machine.is_as_before


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_a_killed_adoption_is_undone_even_if_that_is_cut_too(machine: LvmMachine, point: int) -> None:
    plan = machine.plan()
    is_cut(lambda: machine.adopter().adopt(plan), machine, point)
    for again in range(MOST_CHANGES):
        if not machine.records or not is_cut(lambda: release(machine), machine, again):
            break
    assert machine.is_as_before


@pytest.mark.parametrize("activates", [True, False])
def test_what_a_killed_lvcreate_has_not_wiped_is_no_copy_of_the_volume(machine: LvmMachine, activates: bool) -> None:
    """The volume lay on these extents before it was moved."""
    machine.activates = activates
    plan = machine.plan()
    lvcreate = machine._lvcreate

    def killed(argv: Sequence[str]) -> str:
        machine.cut_at = machine.changes
        return lvcreate(argv)

    machine._lvcreate = killed  # type: ignore[method-assign]
    with pytest.raises(PowerCutError):
        machine.adopter().adopt(plan)
    assert (len(machine.made), machine.activated) == (1, 1)
    machine.found["dm-2"] = machine.found["dm-1"]
    machine.boot()
    assert machine.is_as_before
    assert ["lvchange"] not in [argv[:1] for argv in machine.ran]


@pytest.mark.parametrize("program", ["lvcreate", "dmsetup", "udevadm"])
def test_an_adoption_that_fails_is_undone(machine: LvmMachine, program: str) -> None:
    plan = machine.plan()
    machine.failing.add(program)
    with refused(HostError, "program.failed"):
        machine.adopter().adopt(plan)
    machine.failing.clear()
    assert machine.is_as_before or program == "udevadm"
    if machine.records:
        release(machine)
    assert machine.is_as_before


def test_a_volume_of_another_size_than_planned_is_not_used(machine: LvmMachine) -> None:
    plan = machine.plan()
    extents = present(plan.extents)
    with refused(HostError, "group.made"):
        machine.adopter().adopt(replace(plan, extents=replace(extents, sectors=extents.sectors + 8)))
    assert machine.is_as_before


# --- afterwards ----------------------------------------------------------------------------------------------


def test_at_boot_a_head_that_nobody_has_activated_is(machine: LvmMachine) -> None:
    machine.adopter().adopt(machine.plan())
    machine.activates = False
    machine.boot()
    assert (machine.is_composed, machine.records) == (True, ["composed"])
    machine.power_off()
    release(machine)
    assert machine.is_as_before


def test_of_two_heads_in_a_group_the_right_one_is_removed(machine: LvmMachine) -> None:
    other = logical("elastio-head-other", CLONE_UUID, lv_tags="elastio-head-of-another,mine")
    machine.logicals.append(other)
    machine.content_of(other).write_bytes(serialize(HEAD).ljust(LEAST_BYTES, b"\0"))
    machine.activate(other)
    machine.adopter().adopt(machine.plan())
    release(machine)
    assert machine.made == [other]


def test_the_one_in_a_clone_of_the_group_is_kept(machine: LvmMachine) -> None:
    """vgimportclone(8) gives the group another UUID, and its volumes keep theirs."""
    machine.adopter().adopt(machine.plan())
    made = machine.made[0]
    clone = {**made, "vg_uuid": CLONE_UUID, "vg_name": "clone"}
    machine.logicals.append(clone)
    machine.logicals.remove(made)
    machine.logicals.append(made)
    release(machine)
    assert machine.made == [clone]


def test_two_with_its_tag_are_refused_and_one_that_is_gone_is_fine(machine: LvmMachine) -> None:
    machine.adopter().adopt(machine.plan())
    copy = {**machine.made[0], "lv_uuid": CLONE_UUID, "lv_name": "copy"}
    machine.logicals.insert(0, copy)
    with refused(NotOursError, "group.ambiguous"):
        release(machine)
    assert (machine.records, machine.is_composed) == (["composed"], True)
    machine.logicals.remove(copy)
    machine.made[0]["lv_tags"] = ""
    release(machine)
    assert (machine.records, len(machine.made)) == ([], 1), "without its tag it is somebody's"


@pytest.mark.parametrize("use", ["data", "another head", "used", "unreadable"])
def test_with_something_else_on_it_it_is_kept_and_nothing_changes(machine: LvmMachine, use: str) -> None:
    """The head was moved away by hand, and its logical volume used for something else."""
    machine.adopter().adopt(machine.plan())
    machine.power_off()
    node = machine.sysfs.path(f"dev/{machine.head_device}")
    machine.disk("vdj", 96, "another0123456789abc", node.read_bytes())
    error: type[ElastioError] = NotOursError
    code = "head.other"
    node.write_bytes(bytes(LEAST_BYTES))
    if use == "data":
        node.write_bytes(bytes(LEAST_BYTES - 1) + b"x")
    elif use == "another head":
        node.write_bytes(serialize(HEAD).ljust(LEAST_BYTES, b"\0"))
    elif use == "used":
        machine.lay(f"sys/block/{machine.head_device}/holders/dm-9", "")
        error, code = DeviceBusyError, "head.used"
    else:
        node.unlink()
        error, code = HostError, "head.unreadable"
    with refused(error, code):
        release(machine)
    assert (machine.records, len(machine.made)) == (["composed"], 1)


def test_with_a_snapshot_it_is_kept_and_as_a_raid_it_goes(machine: LvmMachine) -> None:
    """lvremove(8) removes the snapshots of what it removes."""
    machine.adopter().adopt(machine.plan())
    machine.made[0]["lv_role"] = "public,origin,thickorigin"
    with refused(NotOursError, "head.snapshots"):
        release(machine)
    assert (machine.records, len(machine.made), machine.is_composed) == (["composed"], 1, True)
    machine.made[0].update(lv_role="public", lv_layout="raid,raid1")
    release(machine)
    assert machine.is_as_before


def test_an_adoption_that_was_not_complete_keeps_the_head_of_another(
    machine: LvmMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = machine.plan()

    def cut_when_made() -> None:
        if machine.activated > 1:
            raise PowerCutError

    with monkeypatch.context() as cut:
        cut.setattr(machine, "change", cut_when_made)
        with pytest.raises(PowerCutError):
            machine.adopter().adopt(plan)
    machine.sysfs.path(f"dev/{machine.head_device}").write_bytes(serialize(HEAD).ljust(LEAST_BYTES, b"\0"))
    with refused(NotOursError, "head.other"):
        release(machine)
    assert (machine.records, len(machine.made)) == (["adopting"], 1)


def test_a_group_that_cannot_be_changed_is_not_released(machine: LvmMachine) -> None:
    machine.adopter().adopt(machine.plan())
    for row in machine.logicals:
        row["vg_attr"] = "wz-pn-"
    with refused(NotOursError, "group.other"):
        release(machine)
    assert (machine.records, machine.is_composed) == (["composed"], True)


def test_a_volume_that_lvremove_has_left_keeps_its_record(machine: LvmMachine) -> None:
    machine.adopter().adopt(machine.plan())
    lvremove, machine._lvremove = machine._lvremove, lambda argv: ""  # type: ignore[method-assign]
    with refused(HostError, "group.left"):
        release(machine)
    assert machine.records == ["releasing"]
    machine._lvremove = lvremove  # type: ignore[method-assign]
    release(machine)
    assert machine.is_as_before


def test_a_lost_record_names_the_group_again(machine: LvmMachine) -> None:
    machine.adopter().adopt(machine.plan())
    before = record(machine)
    adopted_record.delete(machine.sysfs, before)
    machine.power_off()
    recorded_again(machine.adopter(), machine.sysfs.path(f"dev/{machine.head_device}"))
    assert record(machine).group_uuid == before.group_uuid
    release(machine)
    assert machine.is_as_before
