"""`elastio doctor` on a healthy machine, and with one thing wrong at a time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elastio import __version__
from elastio.core.state import Phase
from elastio.units import GIB

from .conftest import FakeAgent, Shell, published, standing
from .machine import GIVEN, UUID, backing, lay

GUARD = "etc__udev__rules.d__61-elastio-guard.rules"
SHIPPED_GUARD = (Path(__file__).parents[4] / "systemd/61-elastio-guard.rules").read_text()

pytestmark = pytest.mark.usefixtures("toy")


def healthy(root: Path) -> None:
    backing(root)
    tools = {f"usr__sbin__{t}": "" for t in ("make-bcache", "wipefs", "blkid", "modprobe")}
    lay(
        root,
        proc__sys__kernel__osrelease="6.1.0-42-amd64",
        proc__sys__kernel__version="#1 SMP Debian 6.1.192-2 (2026-08-01)",
        sys__block__vdb__serial="0b6f4c1e-5d0c-4a57-9",
        sys__module__bcache__parameters__bch_cutoff_writeback="70",
        sys__module__bcache__parameters__bch_cutoff_writeback_sync="70",
        proc__self__mountinfo="36 35 250:99 / /data rw - ext4 /dev/bcache0 rw\n",
        **{"usr__lib__udev__rules.d__69-bcache.rules": "", "usr__lib__udev__rules.d__60-elastio.rules": ""},
        **{GUARD: SHIPPED_GUARD, "etc__systemd__system__elastio-shutdown.service": ""},
        **tools,
    )
    (root / "sys/fs/bcache").mkdir(parents=True)


def findings(elastio: Shell) -> dict[str, tuple[str, str]]:
    listed = json.loads(elastio("doctor", "--json").stdout)
    return {f["name"]: (f["verdict"], f["sentence"]) for f in listed}


def test_doctor_finds_nothing_wrong_with_a_healthy_machine(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    result = elastio("doctor")
    assert result.exit_code == 0, result.stdout
    assert "ok   backing device: /dev/vdb runs as /dev/bcache0, state no cache\n" in result.stdout
    assert "ok   mount: /dev/bcache0 is mounted at /data\n" in result.stdout
    assert "warn agent: the agent is not running" in result.stdout
    assert "     -> systemctl enable --now elastiod\n" in result.stdout
    assert result.stdout.endswith(" 0 fail\n")


def test_doctor_fails_without_a_configuration_and_says_the_way_out(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    result = elastio("doctor")
    assert result.exit_code == 1
    assert "fail configuration: there is no configuration at" in result.stdout
    assert "write one with `elastio init`" in result.stdout


@pytest.mark.parametrize(
    ("name", "file", "text", "verdict", "words"),
    [
        ("serial", "sys/block/vdb/serial", "", "warn", "shows no serial"),
        ("bypass", "sys/block/vdb/bcache/sequential_cutoff", "4.0M", "warn", "reads can stay stale"),
        ("scheduler", "sys/block/vdb/queue/scheduler", "[none] mq-deadline", "warn", "uses [none] mq-deadline"),
        ("scheduler", "sys/block/vdb/queue/scheduler", "[none]", "warn", "and not mq-deadline"),
        ("block size", "sys/block/bcache0/queue/logical_block_size", "4096", "warn", "blocks of 4096 bytes"),
        ("mount", "proc/self/mountinfo", "", "warn", "/dev/bcache0 is not mounted"),
        ("backing device", "sys/block/vdb/bcache/backing_dev_uuid", UUID.replace("0", "f"), "fail", "not registered"),
    ],
)
def test_doctor_sees_what_is_wrong_with_the_device(
    name: str, file: str, text: str, verdict: str, words: str, elastio: Shell, tmp_path: Path
) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    (tmp_path / "root" / file).write_text(text)
    found = findings(elastio)[name]
    assert (found[0], words in found[1]) == (verdict, True)


def test_doctor_names_two_devices_with_one_uuid(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path / "root", sys__block__vdc__bcache__backing_dev_uuid=UUID)
    verdict, sentence = findings(elastio)["backing device"]
    assert (verdict, "/dev/vdb, /dev/vdc" in sentence) == ("fail", True)


@pytest.mark.parametrize(
    ("name", "uuid", "verdict"), [("dm-0", "CRYPT-LUKS2-0123", "ok"), ("dm-0", "LVM-0123", "ok"), ("md0", "", "warn")]
)
def test_doctor_names_what_lies_above_the_adaptive_device(
    name: str, uuid: str, verdict: str, elastio: Shell, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    healthy(root)
    elastio("init", *GIVEN)
    lay(root, **{f"sys__block__bcache0__holders__{name}": "", f"sys__block__{name}__dev": "253:0"})
    lay(root, **{f"sys__block__{name}__dm__uuid": uuid} if uuid else {})
    found = findings(elastio)["above"]
    assert (found[0], f"/dev/{name} ({uuid.partition('-')[0] or 'md'})" in found[1]) == (verdict, True)


@pytest.mark.parametrize(("disk", "shown", "warned"), [("nvme1n1", "30", True), ("nvme1n1", "4294967295", False)])
def test_doctor_warns_of_nvme_requests_that_give_up_early(
    disk: str, shown: str, warned: bool, elastio: Shell, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    healthy(root)
    elastio("init", *GIVEN)
    lay(root, sys__module__nvme_core__parameters__io_timeout=shown)
    assert "timeout" not in findings(elastio), "the disk is no NVMe disk"
    for folder in ("sys/block", "sys/class/block"):
        (root / folder / "vdb").rename(root / folder / disk)
    assert ("timeout" in findings(elastio)) is warned


def test_doctor_says_that_the_guard_at_boot_works_with_the_defaults(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    assert findings(elastio)["guard"][0] == "ok"


@pytest.mark.parametrize("mount", ["/var", "/var/lib", "/var/lib/elastio"])
def test_doctor_warns_of_a_marker_that_is_mounted_too_late(mount: str, elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    with (tmp_path / "root/proc/self/mountinfo").open("a") as mounts:
        mounts.write(f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n37 20 8:2 / {mount} rw - ext4 /dev/sda2 rw\n")
    verdict, sentence = findings(elastio)["guard"]
    assert (verdict, f"lies on {mount}, mounted after udev" in sentence) == ("warn", True)


def test_doctor_warns_of_a_guard_that_looks_elsewhere(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path, **{"elastio.toml.d__a.toml": '[agent]\nstate_dir = "/srv/elastio"\n'})
    verdict, sentence = findings(elastio)["guard"]
    assert (verdict, "elsewhere than in /srv/elastio/attached" in sentence) == ("warn", True)
    lay(tmp_path / "root", **{GUARD: SHIPPED_GUARD.replace("/var/lib/elastio/", "/srv/elastio/")})
    assert findings(elastio)["guard"][0] == "ok"


def test_doctor_says_that_the_cache_is_missing(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    (tmp_path / "root/sys/block/vdb/bcache/dev").unlink()
    (tmp_path / "root/sys/block/vdb/bcache/state").write_text("dirty")
    assert findings(elastio)["backing device"] == (
        "fail",
        "/dev/vdb is registered and does not run, its state is dirty: its cache is missing",
    )


def test_doctor_fails_when_the_journal_lies_on_the_data(elastio: Shell, tmp_path: Path) -> None:
    import os

    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path, **{"elastio.toml.d__a.toml": f'[agent]\nstate_dir = "{tmp_path}/state"\n'})
    assert findings(elastio)["state"][0] == "ok"
    here = tmp_path.stat().st_dev
    (tmp_path / "root/sys/block/bcache0/dev").write_text(f"{os.major(here)}:{os.minor(here)}")
    assert findings(elastio)["state"][0] == "fail"


@pytest.mark.parametrize(
    ("version", "fault", "verdict", "words"),
    [
        (__version__, "", "ok", "it runs and is idle"),
        ("0.0.9", "", "warn", f"it is still release 0.0.9, installed is {__version__}"),
        (__version__, "the cache is missing", "fail", "it is faulted: the cache is missing"),
    ],
)
def test_doctor_asks_the_agent(
    version: str, fault: str, verdict: str, words: str, agent: FakeAgent, elastio: Shell, tmp_path: Path
) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    seen = published(standing(Phase.IDLE, fault=fault))
    agent.statuses = [replace(seen, agent=replace(seen.agent, version=version))]
    assert findings(elastio)["agent"] == (verdict, words)


def test_doctor_tells_that_the_agent_cannot_use_its_cloud(agent: FakeAgent, elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    seen = published(standing(Phase.IDLE), cloud_error="install elastio[aws]")
    agent.statuses = [replace(seen, agent=replace(seen.agent, version=__version__))]
    assert findings(elastio)["agent"] == ("fail", "it cannot use its cloud: install elastio[aws]")


def test_doctor_passes_on_what_the_provider_checked(elastio: Shell, tmp_path: Path) -> None:
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    package = tmp_path / "site" / "grown"
    package.mkdir()
    (package / "provider.py").write_text("from toycloud import open_provider\n")
    (package / "checks.py").write_text(
        "def run(provider, wanted):\n"
        "    return [('quota', False, f'{wanted.size_bytes} bytes are too many'), ('login', True, 'it works')]\n"
    )
    entry = tmp_path / "site" / "toy-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[elastio.providers]\ntoy = grown.provider:open_provider\n")
    found = findings(elastio)
    assert found["quota"] == ("fail", f"{100 * GIB} bytes are too many")
    assert found["login"] == ("ok", "it works")
