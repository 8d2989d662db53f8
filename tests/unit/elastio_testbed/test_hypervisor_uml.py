"""User-mode Linux without a guest: its agent over a pair of sockets, its console, its processor, its root."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elastio_testbed.guest.uml_agent import Requests
from elastio_testbed.hypervisor import (
    UML,
    Disk,
    GuestError,
    GuestTimeout,
    HypervisorError,
    chosen_hypervisor,
    define_machine,
)
from elastio_testbed.hypervisor.choice import may_make_namespaces
from elastio_testbed.hypervisor.plugged import PluggedDisks
from elastio_testbed.hypervisor.uml.kernel import Kernel
from elastio_testbed.hypervisor.uml.process import panic_in
from elastio_testbed.hypervisor.uml.processor import Processor
from elastio_testbed.hypervisor.uml.programs import UmlPrograms
from elastio_testbed.hypervisor.uml.root import prepared_root
from elastio_testbed.image import GuestImage, ImageError

pytestmark = pytest.mark.runs_programs

CALL_S = 20.0
SERIAL = "vol0123456789abcdef0"


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def programs(line: tuple[socket.socket, socket.socket], tmp_path: Path) -> Iterator[UmlPrograms]:
    ours, theirs = line
    share = tmp_path / "share"
    share.mkdir()
    guest = threading.Thread(target=Requests(theirs.fileno(), str(share)).serve_all)
    guest.start()
    yield UmlPrograms(ours, share, lambda: "the last lines")
    # Before its descriptor is closed, whose number the next test would get.
    ours.shutdown(socket.SHUT_RDWR)
    guest.join()


def test_a_program_gets_input_and_environment_and_returns_its_exit_code(programs: UmlPrograms) -> None:
    argv = ["sh", "-c", 'cat; echo "$NAME" >&2; exit 7']
    done = programs.run(argv, timeout_s=CALL_S, env={"NAME": "value"}, input=b"in\0put")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"in\0put", b"value\n")
    assert programs.run(["sh", "-c", "kill -9 $$"], timeout_s=CALL_S).returncode == -9


def test_files_are_written_and_read_unchanged_and_requests_leave_nothing(programs: UmlPrograms, tmp_path: Path) -> None:
    data = bytes(range(256)) * 10_000
    programs.write_file(f"{tmp_path}/deep/file", b"old", 0o644)
    programs.write_file(f"{tmp_path}/deep/file", data, 0o600)
    assert programs.read_file(f"{tmp_path}/deep/file") == data
    assert (tmp_path / "deep/file").stat().st_mode & 0o777 == 0o600
    assert list((tmp_path / "share").iterdir()) == []


def test_many_requests_at_once_get_each_its_own_answer(programs: UmlPrograms) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = programs.check(["echo", str(number)], timeout_s=CALL_S)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: str(number) for number in range(20)}


def test_a_program_that_hangs_is_killed_and_is_a_timeout(programs: UmlPrograms, tmp_path: Path) -> None:
    script = f"echo $$ > {tmp_path}/pid; exec sleep 4321"
    with pytest.raises(GuestTimeout):
        programs.run(["sh", "-c", script], timeout_s=1.0)
    pid = int((tmp_path / "pid").read_text())
    while Path(f"/proc/{pid}/cmdline").exists():
        os.sched_yield()


def test_what_the_guest_refuses_is_an_error_with_the_console(programs: UmlPrograms) -> None:
    with pytest.raises(GuestError, match="the last lines"):
        programs.run(["no-such-program"], timeout_s=CALL_S)
    with pytest.raises(GuestError):
        programs.read_file("/no/such/file")
    with pytest.raises(GuestError):
        programs.check(["false"], timeout_s=CALL_S)


def test_a_guest_that_ends_ends_what_waits_and_what_comes(
    line: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    ours, theirs = line
    programs = UmlPrograms(ours, tmp_path, lambda: "")
    threading.Timer(0.1, lambda: theirs.shutdown(socket.SHUT_RDWR)).start()
    for _ in range(2):
        with pytest.raises(GuestError) as caught:
            programs.run(["true"], timeout_s=CALL_S)
        assert not isinstance(caught.value, GuestTimeout)


def test_a_panic_is_told_from_its_first_complaint_on() -> None:
    console = "booting\nkernel BUG at drivers/md/bcache/request.c:203!\nCall Trace:\n a\nKernel panic - not syncing\n"
    assert panic_in(console).splitlines()[0] == "kernel BUG at drivers/md/bcache/request.c:203!"
    assert panic_in(console).endswith("Kernel panic - not syncing")
    assert panic_in("booting\nreboot: Power down\n") == ""


def test_two_guests_have_two_processors_while_there_are_two() -> None:
    first, second = Processor(), Processor()
    try:
        held = {first.number, second.number}
        assert held <= os.sched_getaffinity(0)
        assert len(held) == min(2, len(os.sched_getaffinity(0))) or Processor().number in os.sched_getaffinity(0)
    finally:
        first.release()
        second.release()


# --- the table of disks ----------------------------------------------------------------------------------


def disk(serial: str = SERIAL, path: str = "/a") -> Disk:
    return Disk(serial, Path(path), None)


def test_places_are_used_in_turn_and_never_twice() -> None:
    plugged = PluggedDisks((0, 1))
    plugged.add(disk("a"), plugged.free_place())
    plugged.add(disk("b"), plugged.free_place())
    with pytest.raises(HypervisorError):
        plugged.free_place()
    plugged.remove("a")
    assert plugged.free_place() == 0
    assert plugged.serials() == ("b",)


def test_a_serial_belongs_to_one_file() -> None:
    plugged = PluggedDisks((0, 1))
    assert not plugged.is_plugged(disk())
    plugged.add(disk(), 0)
    assert plugged.is_plugged(disk())
    with pytest.raises(HypervisorError):
        plugged.is_plugged(disk(path="/b"))


def test_a_dead_disk_is_gone_after_the_machines_end_and_its_unplug_succeeds_once() -> None:
    plugged = PluggedDisks((0, 1))
    plugged.add(disk(), 0)
    plugged.mark_dead(SERIAL)
    assert plugged.is_dead(SERIAL)
    assert plugged.serials() == (SERIAL,)
    plugged.machine_ended()
    assert plugged.serials() == ()
    assert plugged.take_pulled(SERIAL)
    assert not plugged.take_pulled(SERIAL)
    with pytest.raises(HypervisorError):
        plugged.entry(SERIAL)


# --- choice and root -------------------------------------------------------------------------------------


def test_an_unknown_hypervisor_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTIO_HYPERVISOR", "xen")
    with pytest.raises(HypervisorError):
        chosen_hypervisor()
    assert chosen_hypervisor("qemu") == "qemu"
    monkeypatch.setenv("ELASTIO_HYPERVISOR", UML)
    assert chosen_hypervisor() == UML
    with pytest.raises(HypervisorError):
        define_machine(image(tmp_path), hypervisor="xen", directory=tmp_path)


@pytest.mark.parametrize(("effective", "may"), [("000001ffffffffff", True), ("00000000a80425fb", False)])
def test_namespaces_need_a_capability(effective: str, may: bool) -> None:
    # The second is what a container of Docker's has.
    assert may_make_namespaces(f"Name:\tpytest\nCapInh:\t0\nCapEff:\t{effective}\n") is may


def test_user_mode_linux_says_what_it_lacks(tmp_path: Path) -> None:
    with define_machine(image(tmp_path), hypervisor=UML, directory=tmp_path / "vm") as machine:
        with pytest.raises(HypervisorError):
            machine.plug(SERIAL, tmp_path / "a", bytes_per_second=1, driver="nvme")
        with pytest.raises(HypervisorError):
            machine.forward(9100, 9100)
        with pytest.raises(HypervisorError):
            _ = machine.agent


def image(folder: Path) -> GuestImage:
    return GuestImage(folder / "root.ext4", folder, folder, folder, "digest", "bookworm")


def kernel(folder: Path) -> Kernel:
    module = folder / "uml-test/modules/6.1/kernel/bcache.ko"
    module.parent.mkdir(parents=True)
    module.write_bytes(b"module")
    return Kernel(folder / "uml-test/linux", folder, (), folder / "uml-test/modules/6.1")


def listed(root: Path, path: str) -> str:
    argv = ["debugfs", "-R", f"stat {path}", str(root)]
    return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=CALL_S).stdout


def test_the_prepared_root_has_modules_agent_and_units_and_leaves_the_image_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ELASTIO_CACHE", str(tmp_path / "cache"))
    source = image(tmp_path)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", str(source.root), "16M"], check=True, timeout=CALL_S)
    before = source.root.read_bytes()
    root = prepared_root(source, kernel(tmp_path))
    assert "Type: regular" in listed(root, "/usr/lib/modules/6.1/kernel/bcache.ko")
    assert "Type: regular" in listed(root, "/usr/lib/elastio-laboratory/uml_agent.py")
    assert '"/dev/null"' in listed(root, "/etc/systemd/system/fstrim.timer")
    wanted = listed(root, "/etc/systemd/system/sysinit.target.wants/laboratory-agent.service")
    assert '"../laboratory-agent.service"' in wanted
    assert source.root.read_bytes() == before
    subprocess.run(["e2fsck", "-fn", str(root)], check=True, capture_output=True, timeout=CALL_S)


def test_a_root_without_room_is_an_error_and_leaves_no_entry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ELASTIO_CACHE", str(tmp_path / "cache"))
    source, full = image(tmp_path), kernel(tmp_path)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", str(source.root), "2M"], check=True, timeout=CALL_S)
    (full.modules / "large.ko").write_bytes(os.urandom(4 << 20))
    with pytest.raises(ImageError):
        prepared_root(source, full)
    assert not list((tmp_path / "cache").glob("uml-root-*/root.ext4"))
