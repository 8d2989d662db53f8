"""What only a guest on user-mode Linux does: its kernel's end is the machine's, and it is told with its trace."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.hypervisor import UML, GuestError, HypervisorError, Machine, define_machine
from elastio_testbed.image import build_guest_image
from elastio_testbed.polling import until
from tests.e2e.guests import BOOT_S, COMMAND_S, shell

pytestmark = pytest.mark.guest


@pytest.fixture(scope="module")
def vm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp(UML)
    with define_machine(build_guest_image(), hypervisor=UML, directory=folder, memory_mib=512) as machine:
        machine.start(BOOT_S)
        yield machine


def test_a_panic_ends_the_machine_and_is_told_with_its_trace(vm: Machine) -> None:
    with pytest.raises(GuestError):
        shell(vm, "echo c > /proc/sysrq-trigger")
    assert until(lambda: not vm.alive, COMMAND_S)
    with pytest.raises(HypervisorError, match="Kernel panic"):
        _ = vm.agent
    assert vm.await_off(COMMAND_S) is True
    vm.start(BOOT_S)


def test_nothing_of_the_guest_is_left_after_a_power_cut(vm: Machine) -> None:
    folder = str(vm.console.parent)
    assert processes_of(folder)
    vm.kill()
    assert processes_of(folder) == []


def processes_of(folder: str) -> list[str]:
    """The processes whose working directory it is: kernel, its helpers and the disk server."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "cwd").readlink()) == folder:
                found.append((process / "cmdline").read_text())
        except OSError:
            continue  # it has ended meanwhile
    return found
