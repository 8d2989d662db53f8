"""What an operator does on a new machine, by the pages of the documentation: one command, a drill, a second device.

The tests of this file build on each other, in their order: booting takes a minute under emulation.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from elastio.units import MB
from elastio_testbed.machine import DATA, MAKE_FILESYSTEM, config_text
from elastio_testbed.polling import until
from tests.e2e.conftest import BOOT_S, DD, NOISE, SECOND, Lab, content

pytestmark = pytest.mark.guest

WAIT_S = 150.0
SETTINGS = "/etc/elastio"
PLACES = {"elastio": DATA, "b": "/scratch"}
UNITS = {"elastio": "elastiod", "b": "elastiod@b"}
# More than can be flushed within the inactivity delay, and long enough for two purchases on a busy machine.
MIB = 280
# Long enough for a purchase to begin.
SHORT_MIB = 120
LEFT_OUT = ("/usr/share/doc", "/usr/share/man")
PROBE = """import json, socket, sys
for name in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(20)
        sock.connect(f"/run/elastio/{name}.sock")
        sock.sendall(b'{"version":1,"command":"status"}\\n')
        print(json.dumps(json.loads(sock.makefile().readline())["status"]))
"""


def succeed(lab: Lab, *argv: str, timeout_s: float = 120) -> str:
    """Standard output and errors of a command that has to succeed."""
    code, output = lab.run(*argv, timeout_s=timeout_s)
    assert code == 0, f"{' '.join(argv)}: exit code {code}: {output}"
    return output


def shell(lab: Lab, script: str, timeout_s: float = 120) -> str:
    return succeed(lab, "sh", "-c", script, timeout_s=timeout_s)


def write_drop_in(lab: Lab, name: str) -> None:
    """What differs from a machine in the cloud: the addresses, and a scale of sizes and times."""
    tables = {table: dict(keys) for table, keys in lab.guest.config_tables(lab.cloud).items() if table != "device"}
    del tables["cache"]["bandwidth_mb_s"]
    lab.guest.vm.agent.write_file(f"{SETTINGS}/{name}.toml.d/lab.toml", config_text(tables).encode(), 0o640)


def bandwidths(lab: Lab) -> list[str]:
    scaled = lab.guest.scaled
    return [f"--bandwidth={scaled.backing_bytes_s / MB:g}", f"--cache-bandwidth={scaled.cache_bytes_s / MB:g}"]


def setup(lab: Lab) -> str:
    device = f"/dev/{lab.guest.disk_name()}"
    options = ["--max-cost-per-day", "1", "--yes", "--timeout", "240", *bandwidths(lab)]
    return succeed(lab, "elastio", "setup", device, DATA, *options, timeout_s=400)


@pytest.fixture(scope="module")
def first(blank: Lab) -> Lab:
    """A machine on which `elastio setup` was run once."""
    write_drop_in(blank, "elastio")
    setup(blank)
    blank.guest.vm.set_limit(blank.guest.serial, blank.guest.cap_bytes_s)
    return blank


@pytest.fixture(scope="module")
def both(first: Lab) -> Lab:
    """The machine with a second device, and caps that both share."""
    device = f"/dev/{first.guest.disk_name(SECOND)}"
    write_drop_in(first, "b")
    share_caps(first, "max_cost_per_day = 1")
    succeed(first, "elastio", "device", "create", device, "--yes")
    adaptive = shell(first, f"echo /dev/$(basename $(readlink /sys/block/{device.removeprefix('/dev/')}/bcache/dev))")
    shell(
        first,
        f"{' '.join(MAKE_FILESYSTEM['ext4'])} {adaptive} && mkdir -p {PLACES['b']} && mount {adaptive} {PLACES['b']}",
    )
    succeed(first, "elastio", "init", "--name", "b", f"--device={adaptive}", *bandwidths(first))
    succeed(first, "systemctl", "enable", "--now", UNITS["b"])
    succeed(first, "systemctl", "reload", UNITS["elastio"])
    first.guest.vm.set_limit(SECOND, first.guest.cap_bytes_s)
    wait_until(first, is_at_rest)
    return first


def share_caps(lab: Lab, *caps: str) -> None:
    """One drop-in for all devices. The agents are still to be told."""
    text = "\n".join(["[caps]", "shared = true", *caps, ""])
    lab.guest.vm.agent.write_file(f"{SETTINGS}/shared/caps.toml", text.encode(), 0o640)
    for name in PLACES:
        folder = f"{SETTINGS}/{name}.toml.d"
        shell(lab, f"mkdir -p {folder} && ln -sf {SETTINGS}/shared/caps.toml {folder}/50-caps.toml")


# --- what the agents do --------------------------------------------------------------------------------------


def wait_until(lab: Lab, condition: Callable[[dict[str, Any]], bool], *names: str) -> None:
    """Wait until it is true of the status of every device (or of those with these names) at once."""
    seen = ""

    def is_so() -> bool:
        nonlocal seen
        code, seen = lab.run("python3", "-S", "-c", PROBE, *(names or PLACES))
        return code == 0 and all(condition(json.loads(line)) for line in seen.splitlines())

    if not until(is_so, WAIT_S):
        logs = shell(lab, "journalctl --no-pager -n 40 -o cat -u elastiod -u 'elastiod@*'")
        pytest.fail(f"waited {WAIT_S:.0f} s: {seen}\n{logs}")


def is_at_rest(status: dict[str, Any]) -> bool:
    """No boost is under way, and the cloud lists no volume of this device."""
    is_mine = [volume for volume in status["owned"] or () if not volume["backing_uuid"]]
    return status["phase"] == "idle" and status["cycle"] is None and status["owned"] is not None and not is_mine


def is_boosting(status: dict[str, Any]) -> bool:
    return bool(status["phase"] == "boosting")


def load(lab: Lab, file: str, mib: int, *, until_told: bool = False) -> None:
    """Write a file on each device in the background, at the same time; again and again until /run/FILE exists."""
    for name, place in PLACES.items():
        script = f"{content(name, mib)} | dd of={place}/{file} {DD}"
        if until_told:
            script = f"while {script}; do [ -e /run/{file} ] && exit 0; done; exit 1"
        lab.guest.check(["systemd-run", f"--unit=load-{file}-{name}", "sh", "-c", script])


def wait_for_writes(lab: Lab, file: str) -> None:
    for name in PLACES:
        shell(lab, f"while systemctl -q is-active load-{file}-{name}; do sleep 0.3; done", WAIT_S)
        shell(lab, f"! systemctl -q is-failed load-{file}-{name}")


def wait_for_rest(lab: Lab) -> None:
    wait_until(lab, is_at_rest)
    lab.cloud.settle(60)
    assert left(lab) == ([], set())


def left(lab: Lab) -> tuple[list[str], set[str]]:
    """Volumes at the API, and disks in the machine beside its own."""
    return [v.id for v in lab.cloud.live_volumes()], set(lab.guest.vm.disks()) - {lab.guest.serial, SECOND}


def compare(lab: Lab, file: str, mib: int) -> None:
    """Read the files back from the devices, with the agents paused, as reads are a load."""
    for name in PLACES:
        succeed(lab, "elastio", "pause", "--device", name)
    shell(lab, "echo 3 > /proc/sys/vm/drop_caches")
    for serial in (lab.guest.serial, SECOND):
        lab.guest.vm.set_limit(serial, None)
    for name, place in PLACES.items():
        shell(lab, f"{content(name, mib)} | cmp - {place}/{file}", timeout_s=WAIT_S)
    for serial in (lab.guest.serial, SECOND):
        lab.guest.vm.set_limit(serial, lab.guest.cap_bytes_s)
    wait_until(lab, lambda status: bool(status["load"]["utilization"] == 0))
    for name in PLACES:
        succeed(lab, "elastio", "resume", "--device", name)


# --- one device ----------------------------------------------------------------------------------------------


def test_a_drill_after_the_setup_of_a_blank_volume_leaves_nothing(first: Lab) -> None:
    """The new filesystem may start a boost before it, which the drill waits for, and after it, which ends by itself."""
    code, output = first.run("elastio", "boost", "--drill", "--json", timeout_s=400)
    assert code == 0, output
    found = json.loads(output[output.index("{") : output.rindex("}") + 1])
    assert (found["volumes_left"], found["is_compared"]) == (0, True)
    assert [v.deleted_at is not None for v in first.cloud.volumes() if v.id == found["volume_id"]] == [True]
    wait_until(first, is_at_rest, "elastio")
    first.cloud.settle(60)
    assert left(first) == ([], set())
    assert shell(first, f"find {DATA} -mindepth 1 -not -name lost+found") == ""


def test_the_setup_changes_no_file_of_the_package(first: Lab) -> None:
    # Pages and manuals are left out of the guest image.
    _, differing = first.run("dpkg", "-V", "elastio")
    assert [line for line in differing.splitlines() if not line.split()[-1].startswith(LEFT_OUT)] == []


def test_a_second_setup_changes_nothing(first: Lab) -> None:
    # Of its own disk only: a boost of the new filesystem may bring and take another one meanwhile.
    disks = f"/dev/{first.guest.disk_name()} $(findmnt -no SOURCE {DATA})"
    before = shell(
        first,
        made := f"cat /etc/fstab; blkid {disks}; find {SETTINGS} /etc/systemd/system | xargs ls -ld; "
        f"cat {SETTINGS}/elastio.toml; systemctl show -P MainPID elastiod; findmnt {DATA}",
    )
    setup(first)
    assert shell(first, made) == before


def test_after_a_reboot_the_filesystem_is_mounted_and_the_agent_runs(first: Lab) -> None:
    shell(first, f"echo kept > {DATA}/kept")
    assert first.guest.vm.shutdown(120), f"the guest did not power off: {first.guest.vm.console_tail()}"
    first.guest.vm.start(BOOT_S)
    shell(first, f"for i in $(seq 120); do findmnt -n {DATA} && exit; sleep 0.5; done; systemctl --failed; exit 1")
    assert shell(first, f"cat {DATA}/kept; rm {DATA}/kept") == "kept"
    wait_until(first, is_at_rest, "elastio")
    assert succeed(first, "systemctl", "is-active", "elastiod") == "active"


# --- two devices ---------------------------------------------------------------------------------------------


def test_two_devices_boost_at_once_and_both_are_flushed_and_released(both: Lab) -> None:
    bought = len(both.cloud.volumes())
    load(both, "at-once", MIB, until_told=True)
    wait_until(both, is_boosting)
    shell(both, "touch /run/at-once")
    shown = succeed(both, "elastio", "status")
    assert {f"{name}:" for name in PLACES} <= set(shown.splitlines()), "each under its name"
    wait_for_writes(both, "at-once")
    wait_for_rest(both)
    assert len(both.cloud.volumes()) >= bought + 2
    compare(both, "at-once", MIB)


def test_gc_for_one_device_leaves_the_volume_of_another(both: Lab) -> None:
    # Without a load, the boost would be over before the command has begun.
    write = f"while :; do dd if={NOISE} of={PLACES['b']}/gc bs=1M oflag=direct status=none; sleep 0.2; done"
    succeed(both, "systemd-run", "--unit=load-gc", "sh", "-c", write)
    wait_until(both, is_boosting, "b")
    wait_until(both, is_at_rest, "elastio")
    (volume,) = both.cloud.live_volumes()
    shown = succeed(both, "elastio", "gc", "--device", "elastio")
    assert volume.id in shown
    assert [v.id for v in both.cloud.live_volumes()] == [volume.id]
    wait_until(both, is_boosting, "b")
    succeed(both, "systemctl", "stop", "load-gc")
    wait_for_rest(both)
    shell(both, f"cmp -n $(stat -c %s {PLACES['b']}/gc) {NOISE} {PLACES['b']}/gc")


def test_a_shared_cap_with_room_for_one_boost_lets_one_of_two_devices_buy(both: Lab) -> None:
    bought = len(both.cloud.volumes())
    share_caps(both, f"max_boosts_per_day = {bought + 1}")
    succeed(both, "systemctl", "reload", *UNITS.values())
    load(both, "capped", SHORT_MIB)
    wait_for_writes(both, "capped")
    wait_for_rest(both)
    assert len(both.cloud.volumes()) == bought + 1
    wait_until(both, lambda status: status["purchases"]["failures"] == 0)
    assert succeed(both, "elastio", "status").count("others today") == len(PLACES)
    compare(both, "capped", SHORT_MIB)
