"""`elastio init`: what it finds out, what it names as missing, what it never overwrites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from elastio.config.schema import load
from elastio.config.text import render

from .conftest import Shell
from .machine import GIVEN, UUID, backing

pytestmark = pytest.mark.usefixtures("toy")


def test_writes_a_configuration_that_the_agent_reads(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    result = elastio("init", *GIVEN)
    assert result.exit_code == 0, result.output
    config = load(tmp_path / "elastio.toml")
    assert (config.device.backing_uuid, config.device.bandwidth_mb_s) == (UUID, 60)
    assert (config.cache.bandwidth_mb_s, config.provider.name) == (128.5, "toy")
    text = (tmp_path / "elastio.toml").read_text()
    assert "# Instance: i-1 (t.small) in z, toy." in text
    assert "# utilization_threshold = 0.3\n" in text
    assert "elastio doctor" in result.stdout


def test_says_when_the_instance_is_too_slow_for_the_cache(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    assert "this instance carries 100 MB/s to all its volumes: a cache of 128.5 MB/s" in elastio("init", *GIVEN).stderr


def test_every_commented_default_can_be_uncommented() -> None:
    import tomllib

    text = render({"device.backing_uuid": UUID, "device.bandwidth_mb_s": 60.0, "cache.bandwidth_mb_s": 128.0})
    live = [line.removeprefix("# ") if " = " in line and "`" not in line else line for line in text.splitlines()]
    document = tomllib.loads("\n".join(live))
    assert document["agent"]["socket"] == "/run/elastio/elastio.sock"
    assert document["device"]["bandwidth_mb_s"] == 60


def test_writes_a_cap_on_the_boosts_of_a_day(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    assert elastio("init", *GIVEN).exit_code == 0
    assert load(tmp_path / "elastio.toml").policy().caps.max_boosts_per_day == 288


def test_names_everything_it_could_not_find_out(elastio: Shell, tmp_path: Path) -> None:
    result = elastio("init")
    assert result.exit_code == 3
    assert "no backing device is registered with bcache: make one with `elastio device create`" in result.stderr
    assert "give --bandwidth" in result.stderr
    assert "give --cache-bandwidth" in result.stderr
    assert "name one with --provider (" in result.stderr
    assert not (tmp_path / "elastio.toml").exists()


def test_does_not_choose_between_two_backing_devices(elastio: Shell, tmp_path: Path) -> None:
    other = UUID.replace("0123", "9999")
    backing(tmp_path / "root")
    backing(tmp_path / "root", "vdc", other, "bcache1")
    result = elastio("init", *GIVEN)
    assert result.exit_code == 3
    assert f"name one with --device: {UUID} (/dev/vdb, /dev/bcache0); {other} (/dev/vdc, /dev/bcache1)" in result.stderr
    for named in (other, "/dev/vdc", "/dev/bcache1"):
        assert f'backing_uuid = "{other}"' in elastio("init", "--print", "--device", named, *GIVEN).stdout
    assert "/dev/vdx is not a registered backing device" in elastio("init", "--device", "/dev/vdx", *GIVEN).stderr


def test_does_not_overwrite_a_configuration_unasked(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    (tmp_path / "elastio.toml").write_text("# mine\n")
    result = elastio("init", *GIVEN)
    assert result.exit_code == 3
    assert "is there already: use --force to replace it, or --print" in result.stderr
    assert (tmp_path / "elastio.toml").read_text() == "# mine\n"
    assert elastio("init", "--print", *GIVEN).stdout.startswith("# Written by")
    assert (tmp_path / "elastio.toml").read_text() == "# mine\n"
    assert elastio("init", "--force", *GIVEN).exit_code == 0
    assert load(tmp_path / "elastio.toml").provider.name == "toy"
    assert list(tmp_path.glob(".elastio.toml*")) == []


def test_asks_on_a_terminal_for_what_is_missing(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    on_terminal = Shell(replace(elastio.app, is_terminal=lambda: True))
    result = on_terminal("init", "--provider", "toy", stdin="60\n-5\n90\n")
    assert result.exit_code == 0, result.output
    assert "Bandwidth to buy for a cache (MB/s)" in result.output
    config = load(tmp_path / "elastio.toml")
    assert (config.device.bandwidth_mb_s, config.cache.bandwidth_mb_s) == (60, 90)


def test_an_instance_that_cannot_be_identified_is_said_and_does_not_stop_it(elastio: Shell, tmp_path: Path) -> None:
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
    assert result.exit_code == 0
    assert result.stderr == "not found out, which instance this is: the metadata service does not answer\n"
    assert load(tmp_path / "elastio.toml").provider.name == "toy"


def test_a_place_that_cannot_be_written_is_one_sentence(elastio: Shell, tmp_path: Path) -> None:
    backing(tmp_path / "root")
    (tmp_path / "file").write_text("")
    inside = Shell(replace(elastio.app, config_path=tmp_path / "file" / "elastio.toml"))
    result = inside("init", *GIVEN)
    assert result.exit_code == 3
    assert result.stderr.splitlines()[-1].startswith(f"elastio: {tmp_path}/file/elastio.toml cannot be written: ")
