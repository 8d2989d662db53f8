"""`elastio setup`: from a blank volume to `elastiod --sim`, and again after each failure."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.paths import DEFAULT_PATH
from elastio.config.schema import load
from elastio.control.exit_codes import Exit
from elastio.errors import ConfigError, DeviceBusyError, ElastioError, HostError, NotOursError
from elastio_setup.fstab import entries
from elastio_setup.plan import Wanted
from elastio_setup.survey import survey
from tests.fixtures.errors import refused

from .blank_machine import FILESYSTEM_UUID, BlankMachine
from .conftest import VOLUME_SERIAL, FakeAgent, Golden, Shell
from .machine import LEAST, UUID, backing, lay
from .sim_machine import SimMachine

CHANGING = ["make-bcache", "mkfs.ext4", "udevadm", "systemctl daemon-reload", "mount", "systemctl enable"]


@pytest.fixture
def machine(tmp_path: Path) -> BlankMachine:
    return BlankMachine(tmp_path)


@pytest.fixture
def simulated(machine: BlankMachine, elastio: Shell, tmp_path: Path) -> Iterator[Shell]:
    """`elastio` on that machine; its unit is `elastiod --sim` with the configuration that was written."""
    started: list[SimMachine] = []

    def start() -> None:
        config = load(tmp_path / "elastio.toml")
        config = replace(config, agent=replace(config.agent, socket_group=""))
        started.append(SimMachine(tmp_path / "agent.sock", config=config))

    machine.on_start = start
    yield Shell(replace(elastio.app, run=machine))
    for each in started:
        each.close()


def options(machine: BlankMachine, *more: str) -> tuple[str, ...]:
    return ("setup", str(machine.device), str(machine.place), "--provider", "sim", "--bandwidth", "33", "--yes", *more)


def told(machine: BlankMachine, *more: str) -> tuple[str, ...]:
    return ("setup", str(machine.device), str(machine.place), "--provider", "toy", "--dry-run", *more)


def test_two_commands_lead_from_a_blank_volume_to_a_proven_boost(
    simulated: Shell, machine: BlankMachine, tmp_path: Path, golden: Golden
) -> None:
    result = simulated(*options(machine, "--max-cost-per-day", "2"))
    assert result.exit_code == Exit.OK, result.output
    assert machine.changes == CHANGING
    golden("setup.txt", result.stdout)
    config = load(tmp_path / "elastio.toml")
    assert (config.device.backing_uuid, config.device.bandwidth_mb_s, config.cache.bandwidth_mb_s) == (UUID, 33, 132)
    assert (config.caps.max_cost_per_day, config.caps.max_boosts_per_day) == (2, 288)
    *_, line = entries(machine.fstab)
    assert line.is_of(FILESYSTEM_UUID, "bcache0")
    assert "nofail" in line.options
    drill = simulated("boost", "--drill")
    assert drill.exit_code == Exit.OK, drill.output
    assert "0 volumes left" in drill.stdout
    assert list(machine.place.iterdir()) == []


def test_a_second_run_changes_nothing(simulated: Shell, machine: BlankMachine, golden: Golden) -> None:
    simulated(*options(machine))
    before = machine.fstab
    machine.ran.clear()
    result = simulated(*options(machine))
    assert (result.exit_code, machine.changes, machine.fstab) == (Exit.OK, [], before), result.output
    golden("setup_again.txt", result.stdout)


def test_a_further_device_has_a_file_of_its_own(simulated: Shell, machine: BlankMachine, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(LEAST.replace("0123", "9999"))
    planned = simulated(*options(machine, "--dry-run")).stderr
    assert "--name" in planned, "the file that is there is for another device"
    result = simulated(*options(machine, "--name", "scratch", "--dry-run"))
    assert result.exit_code == Exit.OK, result.output
    assert str(tmp_path / "scratch.toml") in result.stdout


@pytest.mark.parametrize("program", CHANGING)
def test_after_a_failure_the_same_command_goes_on(
    program: str, simulated: Shell, machine: BlankMachine, tmp_path: Path
) -> None:
    machine.failing = {program}
    failed = simulated(*options(machine))
    assert (failed.exit_code, failed.stderr.count("\n")) == (Exit.FAILED, 1), failed.output
    machine.failing = set()
    result = simulated(*options(machine))
    assert result.exit_code == Exit.OK, result.output
    assert [entry.place for entry in entries(machine.fstab)] == ["/", str(machine.place)]
    assert {name: machine.ran.count(name) - (name == program) for name in ("make-bcache", "mkfs.ext4", "mount")} == {
        "make-bcache": 1,
        "mkfs.ext4": 1,
        "mount": 1,
    }


def test_a_failure_says_what_was_done_before(simulated: Shell, machine: BlankMachine, golden: Golden) -> None:
    machine.failing = {"mount"}
    golden("setup_failed.txt", simulated(*options(machine)).stderr)


def test_dry_run_prints_the_steps_and_changes_nothing(
    simulated: Shell, machine: BlankMachine, tmp_path: Path, golden: Golden
) -> None:
    before = machine.fstab
    result = simulated(*options(machine, "--dry-run"))
    assert (result.exit_code, machine.changes, machine.fstab) == (Exit.OK, [], before), result.output
    assert not (tmp_path / "elastio.toml").exists()
    assert not machine.place.exists()
    golden("setup_dry_run.txt", result.stdout)


def test_asks_before_it_formats(simulated: Shell, machine: BlankMachine, golden: Golden) -> None:
    words = tuple(word for word in options(machine) if word != "--yes")
    result = simulated(*words, stdin="n\n")
    assert (result.exit_code, machine.changes) == (Exit.FAILED, [])
    golden("setup_declined.txt", result.stdout)


def test_the_filesystem_can_be_chosen(simulated: Shell, machine: BlankMachine) -> None:
    assert simulated(*options(machine, "--filesystem", "xfs")).exit_code == Exit.OK
    assert machine.changes[1] == "mkfs.xfs"
    *_, line = entries(machine.fstab)
    assert line.kind == "xfs"


def test_an_agent_whose_cloud_does_not_answer_is_waited_for_in_vain(simulated: Shell, machine: BlankMachine) -> None:
    machine.on_start = lambda: None
    machine.is_enabled = False
    agent = FakeAgent(machine.folder / "agent.sock")
    seen = agent.statuses[0]
    agent.statuses = [replace(seen, owned=None, cloud_error="the credentials have expired", device_uuid=UUID)]
    agent.start()
    try:
        result = simulated(*options(machine, "--timeout", "1"))
    finally:
        agent.stop()
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.TIMED_OUT, 1), result.output
    assert "the credentials have expired" in result.stderr


def test_an_agent_of_another_device_is_not_taken_for_this_one(simulated: Shell, machine: BlankMachine) -> None:
    machine.on_start = lambda: None
    agent = FakeAgent(machine.folder / "agent.sock")
    agent.statuses = [replace(agent.statuses[0], owned=(), device_uuid="another")]
    agent.start()
    try:
        result = simulated(*options(machine))
    finally:
        agent.stop()
    assert (result.exit_code, result.stderr.count("\n")) == (Exit.FAILED, 1)


# --- the bandwidth -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("telling")
def test_the_bandwidth_is_what_the_cloud_tells(simulated: Shell, machine: BlankMachine) -> None:
    result = simulated(*told(machine))
    assert result.exit_code == Exit.OK, result.output
    assert "volume of 90 MB/s, caches of 310 MB/s from toy" in result.stdout  # 400 MB/s for all volumes


@pytest.mark.usefixtures("telling")
def test_an_unknown_bandwidth_is_asked_for(simulated: Shell, machine: BlankMachine, golden: Golden) -> None:
    lay(machine.root, sys__block__vdz__serial="QEMU_HARDDISK_1")
    result = simulated(*told(machine))
    assert (result.exit_code, machine.changes) == (Exit.CONFIG, [])
    golden("setup_no_bandwidth.txt", result.stderr)
    assert simulated(*told(machine, "--bandwidth", "50")).exit_code == Exit.OK


@pytest.mark.usefixtures("telling")
@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ("priced = false", ("--max-cost-per-day", "1")),
        ("limit_mb_s = 120", ()),
        ("limit_mb_s = 80", ()),
    ],
    ids=["no price for a cap on cost", "no room for a cache", "slower than the volume"],
)
def test_what_could_not_be_kept_is_lackingbefore_anything_changes(
    settings: str, more: tuple[str, ...], simulated: Shell, machine: BlankMachine, tmp_path: Path
) -> None:
    (tmp_path / "elastio.toml.d").mkdir()
    (tmp_path / "elastio.toml.d/cloud.toml").write_text(f"[provider.toy]\n{settings}\n")
    result = simulated(*told(machine, *more))
    assert (result.exit_code, result.stderr.count("\n"), machine.changes) == (Exit.CONFIG, 1, [])


@pytest.mark.usefixtures("telling")
def test_the_provider_of_a_drop_in_needs_no_option(simulated: Shell, machine: BlankMachine, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml.d").mkdir()
    (tmp_path / "elastio.toml.d/cloud.toml").write_text('[provider]\nname = "toy"\n')
    result = simulated("setup", str(machine.device), str(machine.place), "--dry-run")
    assert result.exit_code == Exit.OK, result.output
    assert "from toy" in result.stdout


@pytest.mark.usefixtures("telling")
def test_init_writes_the_bandwidth_that_the_cloud_tells_unless_it_is_given(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    lay(tmp_path / "root", sys__block__vdb__serial=VOLUME_SERIAL)
    words = ("init", "--print", "--provider", "toy", "--cache-bandwidth", "300")
    assert tomllib.loads(elastio(*words).stdout)["device"]["bandwidth_mb_s"] == 90
    assert tomllib.loads(elastio(*words, "--bandwidth", "60").stdout)["device"]["bandwidth_mb_s"] == 60
    lay(tmp_path / "root", sys__block__vdb__serial="QEMU_HARDDISK_1")
    assert elastio(*words).exit_code == Exit.CONFIG


# --- what is refused ---------------------------------------------------------------------------------------

Change = Callable[[BlankMachine], None]


def formatted(machine: BlankMachine) -> None:
    machine(["make-bcache", str(machine.device)], timeout_s=1)


def with_filesystem(machine: BlankMachine) -> None:
    formatted(machine)
    machine(["mkfs.ext4", "/dev/bcache0"], timeout_s=1)


def mounted_elsewhere(machine: BlankMachine) -> None:
    with_filesystem(machine)
    lay(machine.root, proc__self__mountinfo="36 35 250:99 / /srv rw - ext4 /dev/bcache0 rw\n")


def other_signature(machine: BlankMachine) -> None:
    formatted(machine)
    machine.signatures["bcache0"] = [{"type": "LVM2_member", "uuid": "x"}]


def cache_missing(machine: BlankMachine) -> None:
    formatted(machine)
    (machine.root / "sys/block/vdz/bcache/dev").unlink()


def with_config(uuid: str) -> Change:
    def change(machine: BlankMachine) -> None:
        with_filesystem(machine)
        (machine.folder / "elastio.toml").write_text(LEAST.replace(UUID, uuid))

    return change


def in_fstab(source: str, place: str = "PLACE", how: str = "nofail") -> Change:
    def change(machine: BlankMachine) -> None:
        with_filesystem(machine)
        line = f"{source} {place.replace('PLACE', str(machine.place))} ext4 {how} 0 2\n"
        lay(machine.root, etc__fstab=machine.fstab + line)

    return change


def file_at_the_place(machine: BlankMachine) -> None:
    machine.place.mkdir()
    (machine.place / "mine").touch()


def other_mount(machine: BlankMachine) -> None:
    lay(machine.root, proc__self__mountinfo=f"36 35 8:2 / {machine.place} rw - ext4 /dev/vdb rw\n")


def signature(machine: BlankMachine) -> None:
    machine.signatures["vdz"] = [{"type": "ext4", "uuid": "x"}]


def raw_data(machine: BlankMachine) -> None:
    with machine.device.open("r+b") as device:
        device.write(b"a database without a filesystem")


def raw_data_on_the_device(machine: BlankMachine) -> None:
    formatted(machine)
    with (machine.root / "dev/bcache0").open("r+b") as device:
        device.write(b"a database without a filesystem")


OURS = f"UUID={FILESYSTEM_UUID}"
REFUSED: list[tuple[Change, type[ElastioError], str]] = [
    (signature, NotOursError, "device.signature"),
    (raw_data, NotOursError, "device.not_blank"),
    (raw_data_on_the_device, NotOursError, "filesystem.not_blank"),
    (other_signature, NotOursError, "filesystem.other"),
    (cache_missing, HostError, "setup.cache_missing"),
    (mounted_elsewhere, DeviceBusyError, "mount.elsewhere"),
    (with_config("00000000-89ab-cdef-0123-456789abcdef"), ConfigError, "setup.other_device"),
    (with_config(UUID), ConfigError, "setup.caps.max_cost_per_day"),
    (in_fstab("/dev/vdb"), ConfigError, "fstab.mountpoint"),
    (in_fstab(OURS, "/srv"), ConfigError, "fstab.elsewhere"),
    (in_fstab(OURS, how="defaults"), ConfigError, "fstab.nofail"),
    (file_at_the_place, ConfigError, "mountpoint.not_empty"),
    (other_mount, ConfigError, "mountpoint.used"),
]


@pytest.mark.parametrize(("change", "error", "code"), REFUSED, ids=[code for _, _, code in REFUSED])
def test_contradictions_are_found_before_anything_changes(
    change: Change, error: type[ElastioError], code: str, machine: BlankMachine, elastio: Shell, tmp_path: Path
) -> None:
    change(machine)
    machine.ran.clear()
    wanted = Wanted(machine.device, machine.place, tmp_path / "elastio.toml", max_cost_per_day=1.0)
    with refused(error, code):
        survey(wanted, replace(elastio.app, run=machine).sysfs(), machine)
    assert machine.changes == []


@pytest.mark.parametrize(
    ("place", "code"),
    [
        ("/", "mountpoint.state"),
        ("/var/lib", "mountpoint.state"),
        ("data", "mountpoint.path"),
        ("/a/../b", "mountpoint.path"),
    ],
)
def test_some_places_are_never_mounted_over(
    place: str, code: str, machine: BlankMachine, elastio: Shell, tmp_path: Path
) -> None:
    with refused(ConfigError, code):
        survey(Wanted(machine.device, Path(place), tmp_path / "elastio.toml"), elastio.app.sysfs(), machine)


@pytest.mark.parametrize("change", [raw_data, raw_data_on_the_device])
def test_data_is_only_formatted_by_force_and_the_question_says_so(
    change: Change, simulated: Shell, machine: BlankMachine
) -> None:
    change(machine)
    machine.ran.clear()
    assert (simulated(*options(machine)).exit_code, machine.changes) == (Exit.FAILED, [])
    words = [word for word in options(machine, "--force") if word != "--yes"]
    asked = simulated(*words, stdin="n\n")
    assert (asked.exit_code, "NOT blank" in asked.stdout, machine.changes) == (Exit.FAILED, True, [])
    assert "NOT blank" in simulated(*options(machine, "--force", "--dry-run")).stdout
    assert simulated(*options(machine, "--force")).exit_code == Exit.OK
    assert "mkfs.ext4" in machine.changes


def test_what_is_written_after_the_first_look_is_not_formatted_even_by_force(
    simulated: Shell, machine: BlankMachine
) -> None:
    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        if argv[0] == "wipefs" and "wipefs" in machine.ran:
            raw_data(machine)
        return machine(argv, timeout_s=timeout_s)

    result = Shell(replace(simulated.app, run=run))(*options(machine, "--force"))
    assert (result.exit_code, machine.changes) == (Exit.FAILED, [])


def test_what_is_not_installed_is_named(simulated: Shell, machine: BlankMachine) -> None:
    (machine.root / "usr/sbin/mkfs.xfs").unlink()
    result = simulated(*options(machine, "--filesystem", "xfs"))
    assert (result.exit_code, machine.changes) == (Exit.FAILED, [])
    assert "xfsprogs" in result.stderr


def test_the_unit_is_that_of_the_configuration(simulated: Shell, machine: BlankMachine) -> None:
    named = Shell(replace(simulated.app, config_path=DEFAULT_PATH.with_name("scratch.toml")))
    lacking = named(*options(machine, "--dry-run"))
    assert (lacking.exit_code, "elastiod@.service" in lacking.stderr) == (Exit.FAILED, True)
    (template,) = machine.root.rglob("elastiod.service")
    template.with_name("elastiod@.service").touch()
    assert "elastiod@scratch.service" in named(*options(machine, "--dry-run")).stdout
    assert "elastiod.service" in simulated(*options(machine, "--dry-run")).stdout


@pytest.mark.parametrize("missing", ["usr/sbin/make-bcache", "usr/lib/udev/rules.d/69-bcache.rules"])
def test_what_doctor_fails_is_refused(missing: str, simulated: Shell, machine: BlankMachine) -> None:
    (machine.root / missing).unlink()
    result = simulated(*options(machine))
    assert (result.exit_code, result.stderr.count("\n"), machine.ran.count("make-bcache")) == (Exit.FAILED, 1, 0)
