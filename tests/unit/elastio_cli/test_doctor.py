"""`elastio doctor` on a healthy machine, and with one fault at a time."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from elastio import __version__
from elastio.control.exit_codes import Exit
from elastio.core.state import Phase
from elastio.units import GIB
from elastio_cli.doctor import examine
from elastio_setup import agent_checks
from elastio_setup.check_result import CheckResult

from .conftest import FakeAgent, Golden, Shell, published, standing
from .machine import GIVEN, UUID, backing, lay
from .test_status import COLD

GUARD = "etc__udev__rules.d__61-elastio-guard.rules"
SHIPPED_GUARD = (Path(__file__).parents[3] / "systemd/61-elastio-guard.rules").read_text()

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
        proc__self__mountinfo="20 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 20 250:99 / /data rw - ext4 /dev/bcache0 rw\n",
        **{"usr__lib__udev__rules.d__69-bcache.rules": "", "usr__lib__udev__rules.d__60-elastio.rules": ""},
        **{GUARD: SHIPPED_GUARD, "etc__systemd__system__elastio-shutdown.service": ""},
        **tools,
    )
    (root / "sys/fs/bcache").mkdir(parents=True)


@pytest.fixture
def root(elastio: Shell, tmp_path: Path) -> Path:
    """The root of a healthy machine with a configuration."""
    healthy(tmp_path / "root")
    elastio("init", *GIVEN)
    return tmp_path / "root"


def results(elastio: Shell) -> dict[str, CheckResult]:
    return {result.name: result for result in examine(elastio.app)}


def found(elastio: Shell, name: str) -> tuple[str, str]:
    """Verdict and code of one check."""
    result = results(elastio)[name]
    return result.verdict, result.code


def test_doctor_accepts_a_healthy_machine(elastio: Shell, root: Path, golden: Golden) -> None:
    result = elastio("doctor")
    assert result.exit_code == Exit.OK, result.stdout
    golden("doctor_healthy.txt", result.stdout)


def test_doctor_fails_without_a_configuration(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    healthy(tmp_path / "root")
    result = elastio("doctor")
    assert result.exit_code == Exit.FAILED
    golden("doctor_no_configuration.txt", result.stdout)


def test_doctor_prints_its_results_as_json(elastio: Shell, root: Path) -> None:
    listed = json.loads(elastio("doctor", "--json").stdout)
    assert listed == [result.to_json() for result in results(elastio).values()]
    assert {tuple(each) for each in listed} == {("name", "verdict", "sentence", "way_out")}


@pytest.mark.parametrize(
    ("name", "file", "text", "verdict", "code"),
    [
        ("serial", "sys/block/vdb/serial", "", "warn", ""),
        ("bypass", "sys/block/vdb/bcache/sequential_cutoff", "4.0M", "warn", "nonzero"),
        ("scheduler", "sys/block/vdb/queue/scheduler", "[none] mq-deadline", "warn", "other"),
        ("scheduler", "sys/block/vdb/queue/scheduler", "[none]", "warn", "unsupported"),
        ("block size", "sys/block/bcache0/queue/logical_block_size", "4096", "warn", ""),
        ("mount", "proc/self/mountinfo", "", "warn", ""),
        ("backing device", "sys/block/vdb/bcache/backing_dev_uuid", UUID.replace("0", "f"), "fail", "unregistered"),
    ],
)
def test_doctor_sees_what_is_wrong_with_the_device(
    name: str, file: str, text: str, verdict: str, code: str, elastio: Shell, root: Path
) -> None:
    (root / file).write_text(text)
    assert found(elastio, name) == (verdict, code)


def test_doctor_names_a_weight_that_has_no_effect(elastio: Shell, root: Path) -> None:
    assert "shares" not in results(elastio)
    group = "sys__fs__cgroup__system.slice"
    lay(root, **{f"{group}__io.stat": "", f"{group}__io.weight": "default 300\n"})
    assert found(elastio, "shares") == ("warn", "weight")


def test_doctor_names_two_devices_with_one_uuid(elastio: Shell, root: Path) -> None:
    lay(root, sys__block__vdc__bcache__backing_dev_uuid=UUID)
    assert found(elastio, "backing device") == ("fail", "duplicate")
    assert "/dev/vdb, /dev/vdc" in results(elastio)["backing device"].sentence


@pytest.mark.parametrize(
    ("name", "uuid", "verdict"), [("dm-0", "CRYPT-LUKS2-0123", "ok"), ("dm-0", "LVM-0123", "ok"), ("md0", "", "warn")]
)
def test_doctor_names_what_lies_above_the_adaptive_device(
    name: str, uuid: str, verdict: str, elastio: Shell, root: Path
) -> None:
    lay(root, **{f"sys__block__bcache0__holders__{name}": "", f"sys__block__{name}__dev": "253:0"})
    lay(root, **{f"sys__block__{name}__dm__uuid": uuid} if uuid else {})
    above = results(elastio)["above"]
    assert (above.verdict, f"/dev/{name} ({uuid.partition('-')[0] or 'md'})" in above.sentence) == (verdict, True)


@pytest.mark.parametrize(("shown", "warned"), [("30", True), ("4294967295", False)])
def test_doctor_warns_of_nvme_requests_that_give_up_early(shown: str, warned: bool, elastio: Shell, root: Path) -> None:
    lay(root, sys__module__nvme_core__parameters__io_timeout=shown)
    assert "timeout" not in results(elastio), "the disk is not an NVMe disk"
    for folder in ("sys/block", "sys/class/block"):
        (root / folder / "vdb").rename(root / folder / "nvme1n1")
    assert ("timeout" in results(elastio)) is warned


@pytest.mark.parametrize("mount", ["/var", "/var/lib", "/var/lib/elastio"])
def test_doctor_warns_of_a_mount_guard_that_is_mounted_too_late(mount: str, elastio: Shell, root: Path) -> None:
    with (root / "proc/self/mountinfo").open("a") as mounts:
        mounts.write(f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n37 20 8:2 / {mount} rw - ext4 /dev/sda2 rw\n")
    assert found(elastio, "guard") == ("warn", "late")
    assert f" {mount}," in results(elastio)["guard"].sentence


def test_doctor_warns_of_a_rule_with_another_path(elastio: Shell, root: Path, tmp_path: Path) -> None:
    lay(tmp_path, **{"elastio.toml.d__a.toml": '[agent]\nstate_dir = "/srv/elastio"\n'})
    assert found(elastio, "guard") == ("warn", "path")
    assert "/srv/elastio/attached" in results(elastio)["guard"].sentence
    lay(root, **{GUARD: SHIPPED_GUARD.replace("/var/lib/elastio/", "/srv/elastio/")})
    assert found(elastio, "guard") == ("ok", "")


def test_doctor_fails_when_the_cache_is_missing(elastio: Shell, root: Path) -> None:
    (root / "sys/block/vdb/bcache/dev").unlink()
    (root / "sys/block/vdb/bcache/state").write_text("dirty")
    assert found(elastio, "backing device") == ("fail", "cache_missing")


def test_doctor_fails_when_the_journal_is_on_the_adaptive_device(elastio: Shell, root: Path, tmp_path: Path) -> None:
    lay(tmp_path, **{"elastio.toml.d__a.toml": f'[agent]\nstate_dir = "{tmp_path}/state"\n'})
    assert found(elastio, "state") == ("ok", "")
    here = tmp_path.stat().st_dev
    (root / "sys/block/bcache0/dev").write_text(f"{os.major(here)}:{os.minor(here)}")
    assert found(elastio, "state") == ("fail", "on_adaptive")


@pytest.mark.parametrize(
    ("version", "fault", "cloud_error", "verdict", "code"),
    [
        (__version__, "", "", "ok", ""),
        ("0.0.9", "", "", "warn", "version"),
        (__version__, "the cache is missing", "", "fail", "fault"),
        (__version__, "", "install elastio[aws]", "fail", "cloud"),
    ],
)
def test_doctor_asks_the_agent(
    version: str,
    fault: str,
    cloud_error: str,
    verdict: str,
    code: str,
    agent: FakeAgent,
    elastio: Shell,
    root: Path,
) -> None:
    seen = published(standing(Phase.IDLE, fault=fault), cloud_error=cloud_error)
    agent.statuses = [replace(seen, agent=replace(seen.agent, version=version))]
    assert found(elastio, "agent") == (verdict, code)


def test_doctor_includes_the_checks_of_the_provider(elastio: Shell, root: Path, tmp_path: Path) -> None:
    package = tmp_path / "site" / "grown"
    package.mkdir()
    (package / "provider.py").write_text("from toycloud import open_provider\n")
    (package / "checks.py").write_text(
        "def run(provider, wanted):\n"
        "    return [('quota', False, f'{wanted.size_bytes} bytes are too many'), ('login', True, 'it works')]\n"
    )
    entry = tmp_path / "site" / "toy-1.0.dist-info" / "entry_points.txt"
    entry.write_text("[elastio.providers]\ntoy = grown.provider:open_provider\n")
    checked = {name: (result.verdict, result.sentence) for name, result in results(elastio).items()}
    assert checked["quota"] == ("fail", f"{100 * GIB} bytes are too many")
    assert checked["login"] == ("ok", "it works")


@pytest.mark.parametrize(("balance_gib", "verdict"), [(60, "ok"), (40, "warn")])
def test_doctor_warns_where_a_cold_volume_has_few_credits(
    balance_gib: float, verdict: str, agent: FakeAgent, elastio: Shell
) -> None:
    assert agent_checks.credits(elastio.app.client()) == []
    agent.statuses = [replace(agent.statuses[0], credits=replace(COLD, balance_bytes=balance_gib * GIB))]
    assert [r.verdict for r in agent_checks.credits(elastio.app.client())] == [verdict]


def test_doctor_says_nothing_of_credits_without_an_agent(elastio: Shell) -> None:
    assert agent_checks.credits(elastio.app.client()) == []
