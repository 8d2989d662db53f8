"""A volume in use is adopted at the next boot, or mounted as it always was; whatever ends the attempt."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio.host.composed import locked
from elastio.units import MIB
from elastio_setup import at_boot
from elastio_setup.adopt_plan import NEEDED, AdoptPlan, plan
from tests.fixtures.errors import refused
from tests.values import present

from .adopt_machine import ROOT, UUID, AdoptMachine, PowerCutError
from .lvm_machine import LvmMachine

# More than an adoption at boot has.
MOST_CHANGES = 17
PENDING, FLAG = f"etc/elastio/at-boot/{UUID}", f"run/elastio/at-boot/{UUID}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AdoptMachine:
    found = AdoptMachine(tmp_path)
    found.mount()
    monkeypatch.setattr(os, "fsync", lambda _: found.change())
    return found


def planned(machine: AdoptMachine, target: str = "data", head: str | None = "dev/vdh") -> AdoptPlan:
    path = machine.sysfs.path
    return plan(path(target), path(head) if head else None, machine.sysfs, machine.run, is_at_boot=True)


def ask(machine: AdoptMachine) -> bool:
    return at_boot.ask(machine.adopter(), planned(machine))


def asked(machine: AdoptMachine) -> list[str]:
    return ["refused" if each.refused else "asked" for each in at_boot.load_all(machine.sysfs)]


def checks(machine: AdoptMachine) -> int:
    return sum(argv[0] == "e2fsck" for argv in machine.ran)


def is_ended(machine: AdoptMachine, point: int, work: Callable[[], object]) -> bool:
    """Whether it was ended before the change with this number; it has fewer otherwise. Begun once before: refused."""
    machine.changes, machine.cut_at = 0, point
    try:
        work()
    except PowerCutError:
        return True
    except HostError as error:
        if error.code != "at_boot.ended":
            raise
    finally:
        machine.cut_at = -1
    assert machine.changes <= point
    return False


def boot(machine: AdoptMachine, point: int = MOST_CHANGES) -> bool:
    machine.power_off()
    return is_ended(machine, point, machine.run_unit)


def test_a_volume_in_use_is_adopted_at_the_next_boot_before_it_is_mounted(machine: AdoptMachine) -> None:
    assert ask(machine)
    assert (machine.is_as_before, machine.is_mounted, machine.is_hidden) == (True, True, False)
    machine.run_unit()
    assert (asked(machine), machine.is_as_before, checks(machine)) == (["asked"], True, 0), "not in this boot"
    assert machine.sysfs.read(f"etc/elastio/at-boot/{UUID}"), "it does not lie where the volume may be mounted"
    machine.boot()
    assert (asked(machine), machine.records, machine.volume) == ([], ["composed"], machine.before)
    assert checks(machine) == 1
    assert f"252:0 / {machine.place}" in machine.sysfs.read("proc/self/mountinfo")
    machine.boot()
    assert (machine.is_composed, checks(machine)) == (True, 1)


def test_the_head_is_found_again_whatever_the_kernel_calls_its_disk(machine: AdoptMachine) -> None:
    ask(machine)
    machine.disk("vdc", 48, "head0123456789abcdef", machine.head)
    machine.lay("sys/block/vdh/serial", "another0123456789abc")
    machine.head_device, machine.head_number = "vdc", "240:48"
    machine.boot()
    assert machine.is_composed
    assert machine.sysfs.path("dev/vdh").read_bytes() == bytes(len(machine.head)), "the other one is not touched"


def test_another_head_is_not_taken_for_the_one_that_was_asked_for(machine: AdoptMachine) -> None:
    ask(machine)
    before = machine.sysfs.read(PENDING)
    assert not ask(machine), "the same is asked for once"
    machine.disk("vdi", 64, "another0123456789abc", bytes(len(machine.head)))
    with refused(ConfigError, "at_boot.other"):
        at_boot.ask(machine.adopter(), planned(machine, head="dev/vdi"))
    assert machine.sysfs.read(PENDING) == before


def test_what_is_mounted_from_it_is_mounted_too(machine: AdoptMachine) -> None:
    own = machine.sysfs.read("etc/fstab")
    machine.lay("etc/fstab", f"{own}\n{machine.place}/x /srv none bind,nofail 0 0\n/dev/sdz /opt ext4 nofail 0 0\n")
    ask(machine)
    machine.power_off()
    started = []

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] == "systemctl":
            started.append(argv[-1])
            return ""
        return machine.run(argv, timeout_s=timeout_s)

    at_boot.assemble(replace(machine.adopter(), run=run), UUID)
    assert started == [str(machine.place), "/srv"]


def test_a_head_in_the_group_is_made_at_boot(tmp_path: Path) -> None:
    found = LvmMachine(tmp_path)
    found.mount()
    at_boot.ask(found.adopter(), planned(found, head=None))
    assert found.is_as_before
    found.boot()
    assert (found.is_composed, asked(found)) == (True, [])


def gone(machine: AdoptMachine, name: str) -> None:
    machine.lay(f"sys/block/{name}/serial", "another0123456789abc")


def copied(machine: AdoptMachine) -> None:
    machine.disk("vdc", 48, "copy0123456789abcdef", machine.volume)
    machine.found["vdc"] = machine.found["vdb"]


def written(machine: AdoptMachine) -> None:
    with machine.sysfs.path("dev/vdh").open("r+b") as file:
        file.write(b"data")


def twice(machine: AdoptMachine) -> None:
    machine.disk("vdc", 48, "head0123456789abcdef", machine.head)


REFUSALS: dict[str, tuple[Callable[[AdoptMachine], object], str]] = {
    "damaged": (lambda m: m.failing.add("e2fsck"), "adopt.damaged"),
    "a journal to replay": (lambda m: setattr(m, "dump", "needs_recovery"), "adopt.journal"),
    "a copy beside it": (copied, "adopt.copy"),
    "a copy in its place": (lambda m: gone(m, "vdb"), "volume.copy"),
    "no head": (lambda m: gone(m, "vdh"), "at_boot.missing"),
    "two heads": (twice, "at_boot.missing"),
    "a head with data": (written, "head.not_blank"),
    "the composition fails, and is undone": (lambda m: m.failing.add("modprobe"), "program.failed"),
    "fstab lost its nofail": (
        lambda m: m.lay("etc/fstab", f"UUID={UUID} {m.place} ext4 defaults 0 2\n"),
        "fstab.nofail",
    ),
    "its file is damaged": (lambda m: m.lay(PENDING, "{"), "record.unreadable"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_at_boot_is_mounted_as_before_and_not_tried_again(machine: AdoptMachine, name: str) -> None:
    ask(machine)
    prepare, code = REFUSALS[name]
    prepare(machine)
    head = machine.head
    with refused(ElastioError, code):
        machine.boot()
    assert f"240:16 / {machine.place}" in machine.sysfs.read("proc/self/mountinfo")
    assert (machine.volume, machine.head, machine.records, machine.is_composed) == (machine.before, head, [], False)
    assert (asked(machine), machine.is_hidden) == (["refused"], False)
    ran = len(machine.ran)
    machine.boot()
    assert (len(machine.ran), machine.is_hidden, asked(machine)) == (ran, False, ["refused"])


def test_where_nothing_can_be_written_down_it_is_mounted_as_before(
    machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(machine)

    def fail(descriptor: int) -> None:
        if "/etc/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EROFS, "read-only")

    with monkeypatch.context() as only:
        only.setattr(os, "fsync", fail)
        with refused(ConfigError, "record.unwritable"):
            machine.boot()
    assert (machine.is_as_before, machine.is_hidden, machine.is_mounted) == (True, False, True)


def test_it_is_waited_for_a_volume_and_a_head_but_not_for_long(machine: AdoptMachine) -> None:
    ask(machine)
    waited = list[float]()
    wait = machine.wait

    def come(condition: Callable[[], bool], seconds: float) -> bool:
        if seconds == at_boot.APPEAR_S:
            waited.append(seconds)
            assert not condition()
            machine.lay("sys/block/vdh/serial", "head0123456789abcdef")
        return wait(condition, seconds)

    machine.wait = come  # type: ignore[method-assign]
    gone(machine, "vdh")
    machine.boot()
    assert (machine.is_composed, len(waited), len(machine.slept)) == (True, 1, 1)


def test_an_asked_for_adoption_that_was_refused_is_asked_for_again(machine: AdoptMachine) -> None:
    ask(machine)
    machine.failing.add("e2fsck")
    with refused(NotOursError, "adopt.damaged"):
        machine.boot()
    machine.failing.clear()
    assert ask(machine)
    assert (asked(machine), machine.is_hidden) == (["asked"], False)
    machine.boot()
    assert machine.is_composed


# --- interrupted ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", range(8))
def test_after_a_power_cut_while_asking_it_is_asked_for_or_not(machine: AdoptMachine, point: int) -> None:
    is_ended(machine, point, lambda: ask(machine))
    assert not machine.is_hidden, "it is mounted"
    machine.boot()
    assert machine.is_composed or (machine.is_as_before and not machine.is_hidden)


@pytest.mark.parametrize("point", range(MOST_CHANGES))
@pytest.mark.parametrize("ending", ["cut", "kill"])
def test_ended_before_any_change_it_is_adopted_or_mounted_as_before(
    machine: AdoptMachine, ending: str, point: int
) -> None:
    ask(machine)
    if boot(machine, point):
        assert point < MOST_CHANGES - 1, "it has more changes"
        assert not (boot(machine) if ending == "cut" else is_ended(machine, MOST_CHANGES, machine.run_unit))
    assert machine.volume == machine.before
    assert "asked" not in asked(machine)
    assert (machine.records, machine.is_composed) == (["composed"], True) or (
        machine.is_as_before and not machine.is_hidden
    )
    is_composed = machine.is_composed
    machine.boot()
    assert (machine.is_composed, machine.is_hidden) == (is_composed, is_composed), "the next boots change nothing"


@pytest.mark.parametrize("point", range(MOST_CHANGES))
def test_a_power_cut_in_the_second_attempt_is_as_good(machine: AdoptMachine, point: int) -> None:
    ask(machine)
    assert boot(machine, 9)
    boot(machine, point)
    assert not boot(machine)
    assert machine.is_as_before
    assert not machine.is_hidden
    assert "asked" not in asked(machine)


def test_what_could_not_be_undone_stays_hidden_until_it_is(machine: AdoptMachine) -> None:
    ask(machine)
    dmsetup = machine._dmsetup

    def stuck(argv: Sequence[str]) -> str:
        """It shows other bytes, and cannot be removed."""
        if argv[1] == "remove":
            raise HostError("busy", code="program.failed")
        answer = dmsetup(argv)
        if argv[1] == "create":
            machine.spoil()
        return answer

    machine._dmsetup = stuck  # type: ignore[method-assign]
    with refused(NotOursError, "composed.differs"):
        machine.boot()
    assert (asked(machine), machine.is_hidden, machine.is_mounted) == (["asked"], True, False)
    machine._dmsetup = dmsetup  # type: ignore[method-assign]
    with refused(HostError, "at_boot.ended"):
        machine.run_unit()
    assert (machine.is_as_before, machine.is_mounted, asked(machine)) == (True, True, ["refused"])


def test_another_that_runs_meanwhile_does_not_show_the_volume(machine: AdoptMachine) -> None:
    ask(machine)
    machine.power_off()
    lock = locked(machine.sysfs, machine.wait, 0.0, f"run/elastio/at-boot.{UUID}.lock")
    with lock, refused(DeviceBusyError, "adopt.lock"):
        machine.run_unit()
    assert (machine.is_hidden, asked(machine)) == (True, ["asked"])


# --- what is asked for -----------------------------------------------------------------------------------------


def test_it_is_asked_for_once_and_taken_back(machine: AdoptMachine) -> None:
    assert ask(machine)
    before = machine.sysfs.read(PENDING)
    assert not ask(machine)
    assert machine.sysfs.read(PENDING) == before
    at_boot.cancel(machine.adopter(), UUID)
    machine.boot()
    assert (machine.is_as_before, machine.is_hidden, asked(machine)) == (True, False, [])


def test_what_is_begun_is_not_taken_back(machine: AdoptMachine) -> None:
    ask(machine)
    machine.lay(PENDING, machine.sysfs.read(PENDING).replace('"is_begun": false', '"is_begun": true'))
    with refused(DeviceBusyError, "at_boot.begun"):
        at_boot.cancel(machine.adopter(), UUID)
    assert present(at_boot.load(machine.sysfs, UUID)).is_begun


def test_several_mounts_do_not_matter_and_any_other_use_does(machine: AdoptMachine) -> None:
    mounted = machine.sysfs.read("proc/self/mountinfo")
    machine.lay("proc/self/mountinfo", f"{mounted}\n37 22 240:16 /sub /mnt rw - ext4 /dev/vdb rw\n")
    assert (planned(machine, "dev/vdb").place, planned(machine).place) == (machine.place, machine.place)
    machine.lay("proc/swaps", f"Filename\n{machine.place}/swap file 1 0 -2\n")
    with refused(DeviceBusyError, "adopt.used"):
        planned(machine)
    machine.lay("proc/swaps", "")
    machine.lay("proc/self/mountinfo", ROOT)
    with refused(ConfigError, "at_boot.unused"):
        planned(machine, "dev/vdb")
    machine.lay("sys/block/vdb/holders/dm-9", "")
    with refused(DeviceBusyError, "adopt.used"):
        planned(machine, "dev/vdb")


@pytest.mark.parametrize("place", ["/", "/usr", "/boot", "/etc", "/var", *map(str, NEEDED)])
@pytest.mark.parametrize("is_at_boot", [True, False])
def test_what_the_boot_needs_is_refused_by_its_mount_or_its_line(
    machine: AdoptMachine, place: str, is_at_boot: bool
) -> None:
    mounted = f"{ROOT}36 22 240:16 / {place} rw - ext4 /dev/vdb rw\n"
    machine.lay("proc/self/mountinfo", mounted)
    found = (machine.sysfs.path("dev/vdb"), machine.sysfs.path("dev/vdh"), machine.sysfs, machine.run)
    with refused(ElastioError, "adopt.root" if is_at_boot else "adopt.mounted"):
        plan(*found, is_at_boot=is_at_boot)
    machine.lay("proc/self/mountinfo", ROOT)
    machine.lay("etc/fstab", f"UUID={UUID} {place} ext4 nofail 0 2\n")
    with refused(NotOursError, "adopt.root"):
        machine.plan()


def test_what_the_initramfs_mounts_is_refused(machine: AdoptMachine) -> None:
    machine.lay("etc/fstab", f"UUID={UUID} {machine.place} ext4 nofail,x-initrd.mount 0 2\n")
    with refused(ConfigError, "adopt.fstab"):
        planned(machine)


def test_a_head_that_could_not_be_found_after_a_boot_is_refused(machine: AdoptMachine) -> None:
    twice(machine)
    with refused(NotOursError, "at_boot.head"):
        ask(machine)
    machine.lay("sys/block/vdc/size", str(MIB))
    gone(machine, "vdc")
    machine.lay("sys/block/vdh/serial", "")
    with refused(NotOursError, "at_boot.head"):
        ask(machine)
    assert (asked(machine), machine.sysfs.exists(FLAG)) == ([], False)
