"""`elastio config`: what was read, what is wrong, and where each setting comes from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from elastio.config.schema import RENAMED, SECTIONS, keys_of, load
from elastio.config.text import render
from elastio.control.exit_codes import Exit

from .conftest import Golden, Shell
from .machine import GIVEN, LEAST, UUID, backing, lay

pytestmark = pytest.mark.usefixtures("toy")


def test_config_check_prints_what_was_read(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    backing(tmp_path / "root")
    elastio("init", *GIVEN)
    lay(tmp_path, **{"elastio.toml.d__a.toml": "[cache]\nmax_size_gib = 20\n"})
    result = elastio("config", "check")
    assert result.exit_code == Exit.OK
    golden("config_check.txt", result.stdout)


@pytest.mark.parametrize(
    "text",
    [
        "[device]\nbandwith_mb_s = 1\n",
        render({"device.backing_uuid": UUID, "device.bandwidth_mb_s": 60, "cache.bandwidth_mb_s": 128,
                "provider.name": "azure"}),
    ],
)  # fmt: skip
def test_config_check_refuses_in_one_sentence(text: str, elastio: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(text)
    result = elastio("config", "check", str(other))
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.CONFIG, "", 1)


@pytest.mark.parametrize(("cache_mb_s", "is_said"), [(20, True), (60, True), (61, False)])
def test_cache_that_is_no_faster_than_the_backing_volume_is_said_everywhere_in_the_same_words(
    cache_mb_s: int, is_said: bool, elastio: Shell, tmp_path: Path
) -> None:
    backing(tmp_path / "root")
    given = ("--bandwidth", "60", "--cache-bandwidth", f"{cache_mb_s}", "--provider", "toy")
    at_init = elastio("init", *given)
    doubts = load(tmp_path / "elastio.toml").doubts
    assert len(doubts) == is_said
    doubt = "".join(doubts)
    checked = elastio("config", "check")
    assert (at_init.exit_code, checked.exit_code) == (Exit.OK, Exit.OK)
    assert (doubt in at_init.stderr, checked.stderr) == (True, f"elastio: {doubt}\n" if doubt else "")
    results = [r for r in json.loads(elastio("doctor", "--json").stdout) if r["name"] == "configuration"]
    assert [(r["verdict"], doubt in r["sentence"]) for r in results] == [("warn" if is_said else "ok", True)]


def test_speed_that_money_chooses_is_not_in_doubt(elastio: Shell, tmp_path: Path) -> None:
    text = LEAST.replace("128", "20") + '[policy]\nmodel = "money"\n[value]\nhour = 1.0\n'
    (tmp_path / "elastio.toml").write_text(text)
    assert load(tmp_path / "elastio.toml").doubts == ()


# --- config show -------------------------------------------------------------------------------------------------

# A name of the first release, and its name now.
OLD_NAME, NAME = next(iter(RENAMED.items()))
FILE = f"""
[device]
backing_uuid = "{UUID}"
bandwidth_mb_s = 60
[cache]
bandwidth_mb_s = 128
max_size_gib = 50
[policy]
{OLD_NAME} = 3
[provider]
name = "aws"
[provider.aws]
region = "eu-west-1"
kms_key_id = "alias/hidden-1"
endpoint_url = "https://user:hidden-2@proxy.example/ec2?token=hidden-3"
metadata_url = "http://169.254.169.254"
[provider.aws.prices]
gb_month = 0.08
"""


def layered(tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(FILE)
    lay(tmp_path, **{"elastio.toml.d__10-size.toml": "[cache]\nmax_size_gib = 20\n"})
    more = '[cache]\nmin_size_gib = 2\n[provider.aws]\napi_password = "hidden-4"\n'
    lay(tmp_path, **{"elastio.toml.d__20-more.toml": more})


def test_config_show_has_every_setting_with_its_source(elastio: Shell, tmp_path: Path, golden: Golden) -> None:
    layered(tmp_path)
    result = elastio("config", "show")
    assert result.exit_code == Exit.OK
    golden("config_show.txt", result.stdout)


def test_config_show_names_the_last_layer_that_sets_a_key(elastio: Shell, tmp_path: Path) -> None:
    layered(tmp_path)
    rows = {row["key"]: row for row in json.loads(elastio("config", "show", "--json").stdout)}
    sources = {key: Path(row["source"]).name for key, row in rows.items()}
    assert (rows["cache.max_size_gib"]["value"], sources["cache.max_size_gib"]) == (20, "10-size.toml")
    assert (rows["cache.min_size_gib"]["value"], sources["cache.min_size_gib"]) == (2, "20-more.toml")
    assert (rows[f"policy.{NAME}"]["value"], sources[f"policy.{NAME}"]) == (3, "elastio.toml")
    assert (rows["cache.iops"]["value"], sources["cache.iops"]) == (None, "default")
    assert set(rows) >= {f"{section}.{spec.name}" for section in SECTIONS for spec in keys_of(section)}


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_config_show_tells_no_secret(form: tuple[str, ...], elastio: Shell, tmp_path: Path) -> None:
    layered(tmp_path)
    shown = elastio("config", "show", *form).stdout
    assert "eu-west-1" in shown
    assert "proxy.example" in shown
    assert "kms_key_id" in shown
    assert "hidden-" not in shown


def test_config_show_refuses_what_the_agent_refuses(elastio: Shell, tmp_path: Path) -> None:
    (tmp_path / "elastio.toml").write_text(FILE.replace("max_size_gib", "max_size"))
    result = elastio("config", "show")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (Exit.CONFIG, "", 1)
