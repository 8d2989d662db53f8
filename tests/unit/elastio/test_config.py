"""The configuration: every key, every refusal, drop-ins, and the way to a Policy."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from dataclasses import MISSING, Field, replace
from pathlib import Path
from typing import Any

import pytest

from elastio.config.paths import common_dir, name_of
from elastio.config.schema import SECTIONS, keys_of, load, parse
from elastio.config.text import toml
from elastio.core.policy import Ahead, Policy, StopPolicy
from elastio.errors import ConfigError
from elastio.units import GIB
from tests.fixtures.least_configuration import LEAST_TOML, UUID, least

LEAST = least("aws", bandwidth_mb_s=60)


def test_a_file_of_another_name_in_etc_has_directories_of_that_name() -> None:
    named = parse(LEAST, name_of(Path("/etc/elastio/data.toml"))).agent
    assert (named.state_dir, named.socket) == (Path("/var/lib/elastio/devices/data"), Path("/run/elastio/data.sock"))
    assert common_dir(named.state_dir) == common_dir(parse(LEAST).agent.state_dir)
    chosen = {**LEAST, "agent": {"socket": "/run/x.sock"}}
    assert parse(chosen, "data").agent.socket == Path("/run/x.sock")


@pytest.mark.parametrize("path", ["/etc/elastio/elastio.toml", "/srv/data.toml", "/etc/elastio/a.b.toml"])
def test_every_other_file_has_those_of_the_single_device(path: str) -> None:
    assert parse(LEAST, name_of(Path(path))) == parse(LEAST)


def with_key(key: str, value: object) -> dict[str, dict[str, Any]]:
    document = copy.deepcopy(LEAST)
    section, name = key.split(".")
    document.setdefault(section, {})[name] = value
    return document


def refused_key(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(document)
    return caught.value.code


def test_the_least_configuration_gives_the_defaults_of_the_policy() -> None:
    plain = Policy(60.0, 128.0, drain_bandwidth_mb_s=60.0, backing_uuid=UUID, notice_poll_s=5.0, tags_volumes=True)
    assert parse(LEAST).policy() == replace(plain, on_shutdown=StopPolicy(True, 300.0))


@pytest.mark.parametrize(
    ("end", "power_off", "reboot"),
    [
        ("auto", StopPolicy(True, 40.0), StopPolicy()),
        ("flush", StopPolicy(True, 40.0), StopPolicy(True, 40.0)),
        ("leave", StopPolicy(), StopPolicy()),
    ],
)
def test_what_is_done_before_a_power_off_and_before_a_reboot(
    end: str, power_off: StopPolicy, reboot: StopPolicy
) -> None:
    policy = parse({**LEAST, "shutdown": {"on_shutdown": end, "flush_limit_s": 40}}).policy()
    assert (policy.on_shutdown, policy.on_reboot) == (power_off, reboot)


def test_the_end_of_the_agent_and_of_the_machine_reach_the_policy() -> None:
    ends = {"on_stop": "flush", "flush_limit_s": 40, "notice_flush": False, "notice_poll_s": 0}
    policy = parse({**LEAST, "shutdown": ends, "policy": {"detach_throttle_after_s": 10}}).policy()
    assert policy.on_stop == StopPolicy(True, 40.0)
    assert (policy.notice_flush, policy.notice_poll_s, policy.detach_throttle_after_s) == (False, None, 10.0)


def test_every_key_reaches_the_policy() -> None:
    config = parse(
        {
            **LEAST,
            "cache": {
                "bandwidth_mb_s": 250.5,
                "initial_size_gib": 2.5,
                "min_size_gib": 0.5,
                "max_size_gib": 40,
                "size_step_gib": 0.25,
                "headroom": 1.5,
                "iops": 9000,
            },
            "policy": {
                "utilization_threshold": 0.5,
                "release_threshold": 0.4,
                "trigger_delay_s": 3,
                "inactivity_delay_s": 12,
                "cool_down_s": 7,
                "attach_timeout_s": 90,
                "start_jitter_s": 20,
                "reconcile_interval_s": 300,
                "ahead": "learned",
                "lead_s": 9,
            },
        }
    )
    policy = config.policy()
    assert (policy.cache_bandwidth_mb_s, policy.cache_iops) == (250.5, 9000)
    assert (policy.headroom, policy.cutoff) == (1.5, 0.4)
    assert (policy.initial_size_bytes, policy.min_size_bytes) == (5 * GIB // 2, GIB // 2)
    assert (policy.caps.max_size_bytes, policy.size_step_bytes) == (40 * GIB, GIB // 4)
    assert (policy.utilization_threshold, policy.release_threshold) == (0.5, 0.4)
    assert (policy.trigger_delay_s, policy.inactivity_delay_s, policy.cool_down_s) == (3, 12, 7)
    assert (policy.attach_timeout_s, policy.start_jitter_s, policy.reconcile_interval_s) == (90, 20, 300)
    assert (policy.ahead, policy.lead_s) == (Ahead.LEARNED, 9)


def test_every_cap_reaches_the_policy() -> None:
    day = {"max_boosts_per_day": 4, "max_agbs_per_day": 1e6, "max_cost_per_day": 2.5}
    month = {"max_boosts_per_month": 40, "max_agbs_per_month": 1e7, "max_cost_per_month": 25}
    caps = parse({**LEAST, "caps": {**day, **month}}).policy().caps
    assert (caps.day, caps.month) == ((4, 1e6, 2.5), (40, 1e7, 25.0))


def test_what_an_hour_is_worth_is_optional() -> None:
    assert parse(LEAST).value.hour is None
    assert parse(with_key("value.hour", 0.81)).value.hour == 0.81
    assert refused_key(with_key("value.hour", -1)) == "value.hour"


def test_release_threshold_follows_a_lower_utilization_threshold() -> None:
    assert parse(with_key("policy.utilization_threshold", 0.1)).policy().release_threshold == 0.1


def test_a_uuid_is_compared_in_small_letters() -> None:
    assert parse(with_key("device.backing_uuid", UUID.upper())).device.backing_uuid == UUID


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("device.bandwidth_mb_s", 0),
        ("device.bandwidth_mb_s", "60"),
        ("device.bandwidth_mb_s", True),
        ("device.bandwidth_mb_s", float("nan")),
        ("device.bandwidth_mb_s", float("inf")),
        ("policy.utilization_threshold", 1.5),
        ("policy.trigger_delay_s", -1),
        ("agent.sample_interval_s", 0.1),
        ("agent.sample_interval_s", 61),
        ("caps.max_boosts_per_day", 2.5),
        ("caps.max_boosts_per_day", -1),
        ("caps.max_cost_per_day", []),
        ("agent.state_dir", "var"),
        ("agent.state_dir", f"/{'n' * 256}"),
        ("agent.state_dir", "/n" * 2000),
        ("agent.socket", f"/{'n' * 107}"),
        ("agent.socket", f"/{'ö' * 54}"),
        ("agent.log_level", "loud"),
        ("agent.socket_group", "a b"),
        ("device.backing_uuid", "/dev/vdb"),
        ("provider.name", "AWS"),
        ("provider.name", {}),
        ("policy.release_threshold", 0.31),
        ("cache.min_size_gib", 101),
        ("cache.initial_size_gib", 0.5),
        ("cache.max_size_gib", 0.25),
        ("shutdown.notice_flush", 1),
        ("policy.utilisation_threshold", 1),
        ("device.zzz", 1),
        ("provider.region", 1),
    ],
)
def test_refuses_a_wrong_value_or_an_unknown_key_by_its_key(key: str, value: object) -> None:
    assert refused_key(with_key(key, value)) == key


@pytest.mark.parametrize(
    ("keys", "refused"),
    [
        ({"base_bandwidth_mb_s": 6}, "device.credits_gib"),
        ({"credits_gib": 500}, "device.base_bandwidth_mb_s"),
        ({"volume_type": "sc1"}, "device.volume_size_gib"),
        ({"volume_size_gib": 500}, "device.volume_type"),
        (
            {"base_bandwidth_mb_s": 6, "credits_gib": 500, "volume_type": "sc1", "volume_size_gib": 500},
            "device.volume_type",
        ),
        ({"base_bandwidth_mb_s": 1e6, "credits_gib": 500}, "device.base_bandwidth_mb_s"),
        ({"first_credits_gib": 1}, "device.first_credits_gib"),
    ],
)
def test_refuses_keys_about_credits_that_do_not_fit_one_another(keys: dict[str, Any], refused: str) -> None:
    document = copy.deepcopy(LEAST)
    document["device"].update(keys)
    assert refused_key(document) == refused


def test_refuses_by_its_key_what_is_no_section_and_what_does_not_fit_another_key() -> None:
    assert refused_key(with_key("polcy.trigger_delay_s", 1)) == "polcy"
    assert refused_key({**LEAST, "agent": 3}) == "agent"
    assert refused_key(with_key("provider.asw", {"region": "x"})) == "provider.asw"
    assert refused_key(with_key("cache.max_size_gib", 5)) == "cache.initial_size_gib"


def test_a_refusal_names_key_value_and_what_is_allowed(golden: Callable[[str, str], None]) -> None:
    wrong = [
        ("device.bandwidth_mb_s", 0),
        ("agent.log_level", "loud"),
        ("policy.utilisation_threshold", 1),
        ("zzz.a", 1),
    ]
    lines = []
    for key, value in wrong:
        with pytest.raises(ConfigError) as caught:
            parse(with_key(key, value))
        lines.append(f"{caught.value}\n")
    golden("config_refusals.txt", "".join(lines))


@pytest.mark.parametrize(
    "key", ["device.backing_uuid", "device.bandwidth_mb_s", "cache.bandwidth_mb_s", "provider.name"]
)
def test_refuses_a_configuration_without_a_required_key(key: str) -> None:
    document = copy.deepcopy(LEAST)
    section, name = key.split(".")
    del document[section][name]
    assert refused_key(document) == key


# --- files --------------------------------------------------------------------------------------------------


def written(folder: Path, **drop_ins: str) -> Path:
    path = folder / "elastio.toml"
    path.write_text(LEAST_TOML)
    (folder / "elastio.toml.d").mkdir()
    for name, text in drop_ins.items():
        (folder / "elastio.toml.d" / f"{name}.toml").write_text(text)
    return path


def test_later_drop_ins_win_key_by_key(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        b="[cache]\nbandwidth_mb_s = 500\n[provider.aws]\nregion = 'r2'\n",
        a="[cache]\nbandwidth_mb_s = 250\nheadroom = 2\n[provider.aws]\nregion = 'r1'\niops = 9000\n",
    )
    config = load(path)
    assert (config.cache.bandwidth_mb_s, config.cache.headroom) == (500, 2)
    assert config.provider.settings == {"region": "r2", "iops": 9000}


def refused_file(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return caught.value.code


def test_a_configuration_that_is_missing_is_refused(tmp_path: Path) -> None:
    assert refused_file(tmp_path / "elastio.toml") == "file.missing"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"[device\n", "file.syntax"),
        (b"\xef\xbb\xbf[device\n", "file.syntax"),
        (b"\xff", "file.encoding"),
        (b"\xff\xfe", "file.encoding"),
        (b"\xff\xfeabc\xe4", "file.encoding"),
        (b"\0\0", "file.encoding"),
        ("[device\n".encode("utf-16"), "file.encoding"),
        (b"#" * (1024 * 1024 + 1), "file.too_large"),
    ],
)
def test_a_drop_in_that_cannot_be_read_is_refused(content: bytes, code: str, tmp_path: Path) -> None:
    path = written(tmp_path, a="")
    (tmp_path / "elastio.toml.d" / "a.toml").write_bytes(content)
    assert refused_file(path) == code


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"])
def test_an_empty_drop_in_sets_nothing(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, a="")
    before = load(path)
    (tmp_path / "elastio.toml.d" / "a.toml").write_bytes(content)
    assert load(path) == before


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_a_file_and_a_drop_in_are_read_in_each_encoding_of_unicode(encoding: str, tmp_path: Path) -> None:
    path = written(tmp_path, a="")
    path.write_bytes(path.read_text().encode(encoding))
    (tmp_path / "elastio.toml.d" / "a.toml").write_bytes("[caps]\nmax_boosts_per_day = 1\n".encode(encoding))
    assert load(path).caps.max_boosts_per_day == 1


def test_the_longest_path_of_a_socket_is_accepted(tmp_path: Path) -> None:
    path = written(tmp_path, a=f'[agent]\nsocket = "/{"ö" * 53}"\n')
    assert len(str(load(path).agent.socket).encode()) == 107


def test_a_folder_in_the_files_place_is_refused(tmp_path: Path) -> None:
    assert refused_file(tmp_path) == "file.unreadable"


@pytest.mark.parametrize("mode", [0o646, 0o664])
@pytest.mark.parametrize("name", ["elastio.toml", "elastio.toml.d/a.toml"])
def test_a_file_that_other_users_can_change_is_not_used(
    name: str, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its group is neither root's nor the caller's own."""
    path = written(tmp_path, a="[caps]\nmax_boosts_per_day = 1\n")
    os.chown(tmp_path / name, -1, os.getegid() or 65534)
    monkeypatch.setattr(os, "getegid", lambda: 12345)
    (tmp_path / name).chmod(mode)
    assert refused_file(path) == "file.mode"
    (tmp_path / name).chmod(0o644)
    assert load(path).caps.max_boosts_per_day == 1


def test_a_file_that_the_own_group_can_change_is_used(tmp_path: Path) -> None:
    path = written(tmp_path)
    os.chown(path, -1, os.getegid())
    path.chmod(0o664)
    assert load(path).device.backing_uuid


def test_a_configuration_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen from a user who is neither root nor its owner, because only root can give a file away."""
    path = written(tmp_path)
    os.chown(path, os.geteuid() or 65534, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert refused_file(path) == "file.owner"


def test_every_key_has_a_meaning_and_says_what_is_allowed() -> None:
    rules = [f.metadata["rule"] for section in SECTIONS for f in keys_of(section)]
    assert len(rules) == 61
    assert all(rule.meaning and rule.allowed for rule in rules)


def test_the_reference_page_has_every_key_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "configuration.md").read_text()
    for section in SECTIONS:
        listed = page.partition(f"## [{section}]\n")[2].partition("\n## ")[0]
        rows = [line for line in listed.splitlines() if line.startswith("| `")]
        assert rows == [row_of(key) for key in keys_of(section)]


def row_of(key: Field[Any]) -> str:
    rule = key.metadata["rule"]
    default = {MISSING: "required", None: "none"}.get(key.default) or f"`{toml(key.default)}`"
    return f"| `{key.name}` | {default} | {rule.allowed} | {rule.meaning} |"
