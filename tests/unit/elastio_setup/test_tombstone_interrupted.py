"""Whatever ends the writing or the removal of a tombstone, not a byte is lost, and nobody waits for ever.

The power is cut after each write, and within each write, with some of its sectors on the disk.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.errors import DeviceBusyError, ElastioError, HostError
from elastio.host import composed, recompose
from elastio.host.heads import Head
from elastio.host.sysfs import wait_for
from elastio.host.tombstone import parse
from elastio.units import SECTOR
from elastio_setup import adopted_again, at_boot
from elastio_setup.adopt import Adopter
from elastio_setup.adopt_plan import AdoptPlan
from elastio_setup.adopted_record import Record, Step
from tests.fixtures.device_mapper import LOAD, SUSPEND
from tests.fixtures.errors import refused

from .adopt_machine import UUID, AdoptMachine
from .tombstones import (
    FRONT,
    LENGTHS,
    WORK,
    WRITES,
    adopt,
    adopted,
    cut_within,
    is_mountable,
    name,
    record,
    remove,
    shown,
    torn,
    write,
)


@pytest.fixture(params=LENGTHS[:2])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> AdoptMachine:
    return adopted(tmp_path, request.param)


# --- what ends it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("work", WORK)
def test_after_a_power_cut_at_any_sector_the_device_shows_the_same(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(WRITES[work]):
        for left in torn(record(machine).head.saved_sectors):
            if work == "remove":
                write(machine)
            assert cut_within(machine, work, number, left, monkeypatch)
            machine.boot()
            assert shown(machine) == machine.before, (number, left)
            assert recompose.has_tombstone(machine.sysfs, "dm-0") is (parse(machine.volume) is not None)
            write(machine)
            assert (shown(machine), is_mountable(machine)) == (machine.before, False), (number, left)
            remove(machine)
            assert (shown(machine), machine.volume) == (machine.before, machine.before), (number, left)
    if work == "remove":
        write(machine)
    assert not cut_within(machine, work, WRITES[work], (), monkeypatch), "it has no more writes"


@pytest.mark.parametrize("work", WORK)
def test_after_a_power_cut_it_can_be_released(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    length = record(machine).head.saved_sectors
    for number in range(WRITES[work]):
        if work == "remove":
            write(machine)
        assert cut_within(machine, work, number, (0,), monkeypatch)
        machine.boot()
        machine.adopter().release(record(machine), None)
        assert machine.is_as_before
        adopt(machine, length)


def test_what_is_left_beside_it_goes_only_while_nobody_uses_the_volume(
    machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """btrfs may have been mounted on the volume itself, when its head was away."""
    assert cut_within(machine, "write", WRITES["write"] - 1, (), monkeypatch)
    machine.power_off()
    machine.mount()
    before = machine.volume
    with refused(DeviceBusyError, "composed.held"):
        machine.adopter().assemble(UUID)
    assert (machine.volume, machine.is_composed) == (before, False)


def test_a_volume_that_is_composed_is_opened_for_writing_only_to_complete_its_tombstone(
    machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When that is closed, udev shows the volume again, and starts the unit, which may have failed just then."""
    opened, open_ = list[int](), os.open

    def watched(path: Path, flags: int, *args: int, **others: int) -> int:
        opened.extend([flags & os.O_ACCMODE] if str(path).endswith("dev/vdb") else [])
        return open_(path, flags, *args, **others)

    for work in (write, remove):
        work(machine)
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", watched)
            machine.boot()
        assert os.O_RDWR not in opened
    assert cut_within(machine, "write", WRITES["write"] - 1, (), monkeypatch)
    monkeypatch.setattr(os, "open", watched)
    machine.boot()
    assert opened.count(os.O_RDWR) == 1


@pytest.mark.parametrize("ending", ["cut", "killed"])
@pytest.mark.parametrize("work", WORK)
def test_what_a_filesystem_writes_after_an_interruption_is_kept(
    machine: AdoptMachine, work: str, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old sectors beside a tombstone must not be taken for somebody else's."""
    for number in range(WRITES[work]):
        if work == "remove":
            write(machine)
        if ending == "cut":
            assert cut_within(machine, work, number, range(record(machine).head.saved_sectors), monkeypatch)
            machine.boot()
        else:
            killed(machine, work, number)
            assert wait_for(lambda: mended(machine) == ("dm-0",), 10.0)
        for sector in (2, record(machine).head.saved_sectors - 1):
            machine.sysfs.write_mapped(name(machine), FRONT + sector * SECTOR, f"{number} {ending}".encode())
        expected = shown(machine)
        machine.boot()
        assert shown(machine) == expected, number
        write(machine)
        remove(machine)
        assert machine.volume == expected, number


def killed(machine: AdoptMachine, work: str, number: int) -> None:
    """A process is killed before the write with this number, while the device is suspended, and so is its guard."""
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        pwritev, seen = os.pwritev, 0

        def kill(descriptor: int, buffers: list[bytes], at: int) -> int:
            nonlocal seen
            seen += 1
            if seen > number:
                os.killpg(0, signal.SIGKILL)
            return pwritev(descriptor, buffers, at)

        os.pwritev = kill  # type: ignore[assignment]
        try:
            WORK[work](machine)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def mended(machine: AdoptMachine) -> tuple[str, ...]:
    """What was resumed; nothing while the guard, which was killed as well, still has the lock that it inherited."""
    try:
        return recompose.mend_all(machine.sysfs)
    except DeviceBusyError:
        return ()


@pytest.mark.parametrize("work", WORK)
def test_a_device_that_a_killed_process_left_suspended_is_resumed_with_the_right_table(
    machine: AdoptMachine, work: str
) -> None:
    for number in range(WRITES[work]):
        if work == "remove":
            write(machine)
        killed(machine, work, number)
        assert machine.sysfs.is_suspended(name(machine))
        assert wait_for(lambda: mended(machine) == ("dm-0",), 10.0)
        assert not machine.sysfs.is_suspended(name(machine))
        assert shown(machine) == machine.before, number
        assert recompose.mend_all(machine.sysfs) == (), "once"
        remove(machine)
        assert machine.volume == machine.before


def test_the_guard_resumes_it_when_the_process_alone_is_killed(machine: AdoptMachine) -> None:
    child = os.fork()
    if child == 0:
        os.pwritev = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        try:
            write(machine)
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert wait_for(lambda: not machine.sysfs.is_suspended(name(machine)), 10.0)
    assert shown(machine) == machine.before


def test_the_guard_resumes_what_its_living_holder_could_not(
    machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard tries when the lock is free."""
    requests = []
    control = machine.sysfs.control

    def failing(path: str, request: int, buffer: bytearray) -> None:
        requests.append(request)
        if requests.count(SUSPEND) == 2 and request == SUSPEND and os.getpid() == holder:
            raise HostError("no memory", code="ENOMEM")
        control(path, request, buffer)

    holder = os.getpid()
    monkeypatch.setattr(machine.sysfs, "control", failing)
    with refused(HostError, "ENOMEM"):
        write(machine)
    assert not machine.sysfs.is_suspended(name(machine))
    assert shown(machine) == machine.before


@pytest.mark.parametrize("work", WORK)
def test_no_table_is_loaded_while_requests_wait(
    machine: AdoptMachine, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes memory, for which the kernel may have to write to this device. One that is right is loaded already."""
    requests, control = list[int](), machine.sysfs.control

    def watched(path: str, request: int, buffer: bytearray) -> None:
        assert request != LOAD or not machine.sysfs.is_suspended(name(machine))
        requests.append(request)
        control(path, request, buffer)

    if work == "remove":
        write(machine)
    monkeypatch.setattr(machine.sysfs, "control", watched)
    WORK[work](machine)
    assert requests.count(LOAD) == 1


def test_a_table_that_was_loaded_for_nothing_is_forgotten(machine: AdoptMachine) -> None:
    machine.sysfs.refused[SUSPEND] = 4
    child = os.fork()
    if child == 0:
        os.pwritev = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        with suppress(HostError):
            write(machine)
        os._exit(0)
    os.waitpid(child, 0)
    assert machine.sysfs.loaded(name(machine)) is None


def test_nobody_resumes_it_while_its_holder_lives(machine: AdoptMachine) -> None:
    """Also `elastio free` of another agent, in the middle of its writes."""
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    with composed.locked(machine.sysfs, wait_for, 1.0), refused(DeviceBusyError, "adopt.lock"):
        recompose.mend_all(machine.sysfs)
    assert machine.sysfs.is_suspended(name(machine))
    assert recompose.mend_all(machine.sysfs) == ("dm-0",)


def test_by_hand_it_is_resumed_as_soon_as_another_command_is_done(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    with ExitStack() as other:
        other.enter_context(composed.locked(machine.sysfs, wait_for, 1.0))

        def wait(condition: Callable[[], bool], seconds: float) -> bool:
            assert not condition()
            other.close()
            return condition() and seconds > 0

        assert recompose.mend_all(machine.sysfs, wait) == ("dm-0",)


def test_whoever_changes_adopted_volumes_resumes_them_all_before(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    with recompose.locked(machine.sysfs, wait_for, 1.0):
        assert not machine.sysfs.is_suspended(name(machine))


OTHER = "0" + UUID[1:]
COMMANDS: dict[str, Callable[[Adopter, AdoptPlan], object]] = {
    "adopt": lambda adopter, plan: adopter.adopt(plan),
    "compose": lambda adopter, _: adopter.assemble(OTHER),
    "release": lambda adopter, plan: adopter.release(Record(other(plan.head), Step.COMPOSED, "vdh", ()), None),
    "adopt --cancel": lambda adopter, _: at_boot.cancel(adopter, OTHER),
    "adopt --recorded": lambda adopter, _: adopted_again.recorded_again(adopter, adopter.sysfs.path("dev/vdz")),
}


def other(head: Head) -> Head:
    return replace(head, volume=replace(head.volume, uuid=OTHER))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_another_volume_resumes_it_even_if_that_is_refused(tmp_path: Path, command: str) -> None:
    machine = AdoptMachine(tmp_path)
    plan = machine.plan()
    machine.adopter().adopt(plan)
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    with suppress(ElastioError):
        COMMANDS[command](machine.adopter(), plan)
    assert not machine.sysfs.is_suspended(name(machine))


def test_a_volume_that_cannot_be_read_keeps_nobody_from_changing_another_one(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    machine.sysfs.path("dev/vdb").write_bytes(b"short")
    with recompose.locked(machine.sysfs, wait_for, 1.0):
        assert machine.sysfs.is_suspended(name(machine))


def test_nobody_resumes_it_who_cannot_read_the_first_sector(machine: AdoptMachine) -> None:
    machine.lay("sys/block/dm-0/dm/suspended", "1")
    node = machine.sysfs.path("dev/vdb")
    content = node.read_bytes()
    node.write_bytes(content[:100])
    with refused(HostError, "node.short"):
        recompose.mend_all(machine.sysfs)
    assert machine.sysfs.is_suspended(name(machine))
    node.write_bytes(content)
    assert recompose.mend_all(machine.sysfs) == ("dm-0",)


@pytest.mark.parametrize("request_", [LOAD, SUSPEND])
@pytest.mark.parametrize("work", WORK)
def test_a_kernel_that_refuses_changes_nothing(machine: AdoptMachine, work: str, request_: int) -> None:
    if work == "remove":
        write(machine)
    before = machine.volume
    machine.sysfs.refused[request_] = 12
    with refused(HostError, "ENOMEM"):
        WORK[work](machine)
    assert (machine.volume, shown(machine)) == (before, machine.before)


def test_a_write_that_fails_leaves_a_device_that_works(machine: AdoptMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    pwritev, left = os.pwritev, 0

    def failing(descriptor: int, buffers: list[bytes], at: int) -> int:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(5, "I/O error")
        return pwritev(descriptor, buffers, at)

    for number in range(WRITES["write"]):
        left = number
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", failing)
            with refused(HostError, "tombstone.io"):
                write(machine)
        assert (shown(machine), machine.sysfs.is_suspended(name(machine))) == (machine.before, False)
        remove(machine)
