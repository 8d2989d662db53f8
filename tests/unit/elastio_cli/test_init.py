"""`elastio init`: what it detects, what it names as missing, what it never overwrites."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.config.text import render
from elastio.control.exit_codes import Exit

from .conftest import Golden, Shell
from .machine import GIVEN, UUID, backing

pytestmark = pytest.mark.usefixtures("toy")


def test_writes_a_configuration_that_the_agent_reads(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    backing(tmp_path / "root")
    result = elastio("init", *GIVEN)
    assert result.exit_code == Exit.OK, result.output
    config = load(tmp_path / "elastio.toml")
    assert (config.device.backing_uuid, config.device.bandwidth_mb_s) == (UUID, 60)
    assert (config.cache.bandwidth_mb_s, config.provider.name) == (128.5, "toy")
    assert config.policy().caps.max_boosts_per_day == 288
    golden("init.txt", result.stdout)
    golden("init_slow_instance.txt", result.stderr)
    golden("init_toml.txt", (tmp_path / "elastio.toml").read_text())


def test_every_commented_default_can_be_uncommented() -> None:
    text = render({"device.backing_uuid": UUID, "device.bandwidth_mb_s": 60.0, "cache.bandwidth_mb_s": 128.0})
    live = [line.removeprefix("# ") if " = " in line and "`" not in line else line for line in text.splitlines()]
    document = tomllib.loads("\n".join(live))
    assert document["agent"]["socket"] == "/run/elastio/elastio.sock"
    assert document["device"]["bandwidth_mb_s"] == 60


def test_names_everything_it_could_not_detect(elastio: Shell, tmp_path: Path) -> None:
    result = elastio("init")
    assert result.exit_code == Exit.CONFIG
    named = ("`elastio device create`", "--bandwidth", "--cache-bandwidth", "--provider")
    assert [name for name in named if name not in result.stderr] == []
    assert not (tmp_path / "elastio.toml").exists()


def test_does_not_choose_between_two_backing_devices(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    other = UUID.replace("0123", "9999")
    backing(tmp_path / "root")
    backing(tmp_path / "root", "vdc", other, "bcache1")
    result = elastio("init", *GIVEN)
    assert result.exit_code == Exit.CONFIG
    golden("init_two_devices.txt", result.stderr)
    for named in (other, "/dev/vdc", "/dev/bcache1"):
        assert f'backing_uuid = "{other}"' in elastio("init", "--print", "--device", named, *GIVEN).stdout
    assert elastio("init", "--device", "/dev/vdx", *GIVEN).exit_code == Exit.CONFIG


def test_does_not_overwrite_a_configuration_unasked(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    backing(tmp_path / "root")
    (tmp_path / "elastio.toml").write_text("# mine\n")
    result = elastio("init", *GIVEN)
    assert result.exit_code == Exit.CONFIG
    golden("init_exists.txt", result.stderr)
    assert (tmp_path / "elastio.toml").read_text() == "# mine\n"
    assert tomllib.loads(elastio("init", "--print", *GIVEN).stdout)["provider"] == {"name": "toy"}
    assert (tmp_path / "elastio.toml").read_text() == "# mine\n"
    assert elastio("init", "--force", *GIVEN).exit_code == Exit.OK
    assert load(tmp_path / "elastio.toml").provider.name == "toy"
    assert list(tmp_path.glob(".elastio.toml*")) == []


def test_a_further_device_has_a_file_and_units_of_its_own(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    other = UUID.replace("0123", "9999")
    backing(tmp_path / "root")
    backing(tmp_path / "root", "vdc", other, "bcache1")
    (tmp_path / "elastio.toml").write_text("# the first one's\n")
    result = elastio("init", "--name", "scratch", "--device", "/dev/bcache1", *GIVEN)
    assert result.exit_code == Exit.OK, result.output
    assert load(tmp_path / "scratch.toml").device.backing_uuid == other
    assert (tmp_path / "elastio.toml").read_text() == "# the first one's\n"
    golden("init_named.txt", result.stdout)


@pytest.mark.parametrize("name", ["", "a/b", "../a", "a.b", "-a", "a" * 65])
def test_what_cannot_be_a_unit_is_no_name(elastio: Shell, tmp_path: Path, name: str) -> None:
    backing(tmp_path / "root")
    before = list(tmp_path.rglob("*"))
    assert elastio("init", "--name", name, *GIVEN).exit_code == Exit.CONFIG
    assert list(tmp_path.rglob("*")) == before


def test_asks_on_a_terminal_for_what_is_missing(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    on_terminal = Shell(replace(elastio.app, is_terminal=lambda: True))
    result = on_terminal("init", "--provider", "toy", stdin="60\n-5\n90\n")
    assert result.exit_code == Exit.OK, result.output
    config = load(tmp_path / "elastio.toml")
    assert (config.device.bandwidth_mb_s, config.cache.bandwidth_mb_s) == (60, 90)


def test_an_instance_that_cannot_be_identified_is_a_warning(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    backing(tmp_path / "root")
    (tmp_path / "site" / "toycloud.py").write_text(
        "from elastio.errors import TransientError\n"
        "class Toy:\n"
        "    def identify(self):\n"
        "        raise TransientError('the metadata service does not answer')\n"
        "def open_provider(settings, uuid):\n"
        "    return Toy()\n"
    )
    result = elastio("init", *GIVEN)
    assert result.exit_code == Exit.OK
    golden("init_no_identity.txt", result.stderr)
    assert load(tmp_path / "elastio.toml").provider.name == "toy"


def test_a_file_that_cannot_be_written_is_an_error_of_the_configuration(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    (tmp_path / "file").write_text("")
    inside = Shell(replace(elastio.app, config_path=tmp_path / "file" / "elastio.toml"))
    result = inside("init", *GIVEN)
    assert (result.exit_code, result.stdout) == (Exit.CONFIG, "")


def test_a_drop_in_that_is_there_before_counts(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    (tmp_path / "elastio.toml.d").mkdir()
    (tmp_path / "elastio.toml.d/a.toml").write_text("[cache]\nbandwith_mb_s = 5\n")
    assert elastio("init", *GIVEN).exit_code == Exit.CONFIG
    assert not (tmp_path / "elastio.toml").exists()
