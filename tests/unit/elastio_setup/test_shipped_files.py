"""The files under systemd/ and the code that relies on them say the same."""

from __future__ import annotations

import configparser
import re
import subprocess
from pathlib import Path

import pytest

from elastio.config.paths import (
    ADOPTED,
    AT_BOOT,
    DEFAULT_PATH,
    DEFAULT_SOCKET,
    DEFAULT_STATE_DIR,
    GUARDS,
    NOT_NOW,
    socket_of,
    state_dir_of,
)
from elastio.config.sections import AgentSection
from elastio.control.exit_codes import Exit
from elastio.host.composed import UUID_PREFIX
from elastio.host.tombstone import Tombstone, serialize
from elastio_setup.agent_checks import METADATA, METADATA_RULES
from elastio_setup.kernel_checks import CUTOFFS

V6_METADATA = "ip6 daddr fd00:ec2::254"
SHIPPED = Path(__file__).parents[3] / "systemd"


def unit(name: str = "elastiod.service") -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parsed.optionxform = str  # type: ignore[assignment,method-assign]  # keys of units are case-sensitive
    parsed.read(SHIPPED / name)
    return parsed


def test_the_module_is_loaded_with_the_cutoffs_that_doctor_expects() -> None:
    lines = (SHIPPED / "modprobe.d/elastio.conf").read_text().splitlines()
    options = next(line for line in lines if line.startswith("options bcache "))
    assert options.split()[2:] == [f"{name}={value}" for name, value in CUTOFFS.items()]


def test_udev_makes_a_bcache_device_safe_when_it_appears() -> None:
    rule = [r for r in (SHIPPED / "60-elastio.rules").read_text().splitlines() if r and not r.startswith("#")]
    assert len(rule) == 1
    assert 'KERNEL=="bcache*"' in rule[0]
    assert rule[0].endswith('ATTR{bcache/sequential_cutoff}="0"')
    marker = f"{DEFAULT_STATE_DIR / GUARDS}/$attr{{bcache/backing_dev_uuid}}"
    assert f'TEST=="{marker}"' in rule[0], "a device of somebody else is left as it is"


def test_only_root_reaches_the_metadata_service() -> None:
    rules = (SHIPPED / METADATA_RULES).read_text().splitlines()
    sent = [line.strip() for line in rules if "skuid" in line]
    assert sent == [f"meta skuid != 0 {service} counter drop" for service in (f"ip daddr {METADATA}", V6_METADATA)]
    assert not any("policy drop" in line for line in rules)


def test_the_service_is_not_started_again_over_what_starting_cannot_cure() -> None:
    assert unit()["Service"]["RestartPreventExitStatus"].split() == [str(int(Exit.USAGE)), str(int(Exit.CONFIG))]
    assert unit()["Unit"]["ConditionPathExists"] == str(DEFAULT_PATH)


def test_the_service_may_write_where_the_defaults_point() -> None:
    service = unit()["Service"]
    assert service["ProtectSystem"] == "strict"
    assert Path("/var/lib") / service["StateDirectory"] == DEFAULT_STATE_DIR
    assert Path("/run") / service["RuntimeDirectory"] == DEFAULT_SOCKET.parent
    assert service["RuntimeDirectoryPreserve"] == "yes"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ProtectHome", "read-only"),  # it sees every mount
        ("ProtectControlGroups", "no"),  # it may hold writes back for a moment
        ("IOAccounting", "yes"),
        # Requests are released before each start and after each end; a failure may keep no agent from starting.
        ("ExecStartPre", "-/usr/bin/elastio free"),
        ("ExecStopPost", "-/usr/bin/elastio free"),
        ("CapabilityBoundingSet", "CAP_SYS_ADMIN CAP_SYS_RESOURCE CAP_CHOWN"),
        ("SystemCallFilter", "~@resources"),
        ("UMask", "0077"),
        ("PrivateDevices", None),  # these two would hide disks and their settings
        ("ProtectKernelTunables", None),
    ],
)
def test_the_service_has_what_it_needs_and_gives_up_the_rest(key: str, value: str | None) -> None:
    assert unit()["Service"].get(key) == value


@pytest.mark.runs_programs
@pytest.mark.parametrize(
    ("name", "most"), [("elastiod.service", 3.1), ("elastiod@.service", 3.1), ("elastio-metrics.service", 1.5)]
)
def test_systemd_finds_the_service_little_exposed(name: str, most: float) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(SHIPPED / name)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = re.search(rf"Overall exposure level for {re.escape(name.replace('@.', '@i.'))}: ([0-9.]+)", said)
    assert found, said
    assert float(found[1]) <= most


def test_the_units_of_a_named_device_differ_from_those_of_the_single_one_in_its_name_alone() -> None:
    one, named = unit(), unit("elastiod@.service")
    assert named["Unit"]["ConditionPathExists"] == str(DEFAULT_PATH.with_stem("%i"))
    assert named["Service"]["ExecStart"] == f"/usr/bin/elastiod --config {DEFAULT_PATH.with_stem('%i')}"
    folders = [Path("/var/lib") / folder for folder in named["Service"]["StateDirectory"].split()]
    assert folders == [DEFAULT_STATE_DIR, state_dir_of("%i")]
    assert Path("/run") / named["Service"]["RuntimeDirectory"] == socket_of("%i").parent
    for key in ("ExecStartPre", "ExecStopPost"):
        assert named["Service"][key] == "-/usr/bin/elastio free --device %i", "not the limits of other devices"
    own = {"ExecStart", "ExecStartPre", "ExecStopPost", "StateDirectory"}
    keys = {*one["Service"], *named["Service"]} - own
    assert [key for key in keys if one["Service"].get(key) != named["Service"].get(key)] == [], (
        "a change of one unit is one of both"
    )


def test_at_a_shutdown_each_device_is_asked_by_its_name() -> None:
    one, named = unit("elastio-shutdown.service"), unit("elastio-shutdown@.service")
    assert one["Service"]["ExecStop"] == f"-/usr/bin/elastio --device {DEFAULT_PATH.stem} shutdown"
    assert named["Service"]["ExecStop"] == "-/usr/bin/elastio --device %i shutdown"
    assert named["Unit"]["After"] == "elastiod@%i.service"
    assert unit("elastiod@.service")["Install"]["Also"] == "elastio-shutdown@%i.service"


def test_the_group_of_the_socket_is_made_at_installation() -> None:
    lines = (SHIPPED / "sysusers.d/elastio.conf").read_text().splitlines()
    default = next(f.default for f in AgentSection.__dataclass_fields__.values() if f.name == "socket_group")
    assert f"g {default} -" in lines


def guard() -> list[str]:
    return [r for r in (SHIPPED / "61-elastio-guard.rules").read_text().splitlines() if r and not r.startswith("#")]


def test_udev_hides_a_device_only_while_the_marker_is_there_and_never_one_that_was_shown() -> None:
    hiding = [n for n, rule in enumerate(guard()) if 'ENV{SYSTEMD_READY}="0"' in rule]
    shown = [n for n, rule in enumerate(guard()) if rule.startswith('ENV{ELASTIO_SHOWN}=="1", GOTO=')]
    assert len(hiding) == len(shown) == 1
    assert shown[0] < hiding[0]
    folder = DEFAULT_STATE_DIR / GUARDS
    assert f'TEST=="{folder}/$attr{{bcache/backing_dev_uuid}}"' in guard()[hiding[0]]
    assert 'ATTRS{bcache/state}=="no cache"' in guard()[hiding[0]], "ATTRS: a partition is hidden by its disk's state"
    assert 'ENV{ID_FS_TYPE}="elastio_guarded"' in guard()[hiding[0]], "LVM asks for nothing else"
    assert not any("DEVTYPE" in rule and "GOTO" in rule for rule in guard())


def test_udev_waits_for_the_attributes_and_hides_nothing_because_they_are_late() -> None:
    waits = [n for n, rule in enumerate(guard()) if "PROGRAM=" in rule]
    hides = next(n for n, rule in enumerate(guard()) if "SYSTEMD_READY" in rule)
    assert [n + len(waits) for n in waits] == [hides, hides + 1]
    for rule, link in zip((guard()[n] for n in waits), ("bcache", "../bcache"), strict=True):
        assert f'TEST!="{link}"' in rule
        assert f"test -e /sys%p/{link} && break; sleep 0.1" in rule
        assert "SYSTEMD_READY" not in rule


def test_the_shutdown_unit_is_stopped_before_the_agent_and_not_by_its_stop() -> None:
    parsed = unit("elastio-shutdown.service")
    assert "elastiod.service" in parsed["Unit"]["After"].split()
    assert not {"Requires", "PartOf", "BindsTo", "StopPropagatedFrom"} & set(parsed["Unit"])
    assert parsed["Service"]["ExecStop"].endswith("elastio shutdown")
    assert unit()["Install"]["Also"] == "elastio-shutdown.service"


def test_the_shutdown_unit_is_started_where_the_agent_was_enabled_before_it_was_shipped() -> None:
    assert unit()["Unit"]["Wants"].split() == ["elastio-shutdown.service"]


def test_the_guide_names_every_file_that_it_lets_copy() -> None:
    guide = (SHIPPED.parent / "docs/how-to/install.md").read_text()
    table = [line for line in guide.splitlines() if line.startswith("| `")]
    for file in (*SHIPPED.glob("*.rules"), *SHIPPED.glob("*.service"), *SHIPPED.glob("*.timer")):
        assert any(f"`{file.name}`" in line for line in table), file.name


def test_the_metrics_unit_may_write_its_file_and_what_sqlite_needs_beside_the_ledger_and_nothing_else() -> None:
    text = (SHIPPED / "elastio-metrics.service").read_text()
    command = unit("elastio-metrics.service")["Service"]["ExecStart"].split()
    assert command[:3] == ["/usr/bin/elastio", "metrics", "--output"]
    output = Path(command[3])
    assert output.suffix == ".prom", "node_exporter reads no other files"
    assert re.findall(r"^ReadWritePaths=(.*)$", text, re.MULTILINE) == [str(output.parent), f"-{DEFAULT_STATE_DIR}"]
    assert unit("elastio-metrics.service")["Unit"]["ConditionPathIsDirectory"] == str(output.parent)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "oneshot"),
        ("CapabilityBoundingSet", ""),
        ("RestrictAddressFamilies", "AF_UNIX"),
        ("PrivateNetwork", "yes"),
        ("PrivateDevices", "yes"),
        ("ProtectSystem", "strict"),
        ("NoNewPrivileges", "yes"),
    ],
)
def test_the_metrics_unit_gives_up_what_it_does_not_need(key: str, value: str) -> None:
    assert unit("elastio-metrics.service")["Service"][key] == value


def test_metrics_are_written_every_half_a_minute_and_only_where_the_timer_was_enabled() -> None:
    timer = unit("elastio-metrics.timer")
    assert timer["Timer"]["OnCalendar"] == "*:*:0/30"
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert "Install" not in unit("elastio-metrics.service")
    enabled = " ".join(p.read_text() for p in SHIPPED.glob("*.service"))
    assert "elastio-metrics" not in enabled


def test_a_named_timer_is_announced_again_and_again() -> None:
    service, timer = unit("elastio-expect@.service"), unit("elastio-expect@.timer")
    command = service["Service"]["ExecStart"].split()
    assert command == ["/usr/bin/elastio", "expect", "--timer", "%i.timer", "$ELASTIO_EXPECT"]
    assert service["Service"]["SuccessExitStatus"] == str(int(Exit.UNREACHABLE))
    assert {"OnBootSec", "OnUnitInactiveSec"} <= set(timer["Timer"])
    assert timer["Install"]["WantedBy"] == "timers.target"


@pytest.mark.parametrize(
    ("name", "access"), [("elastiod.service", "rw"), ("elastiod@.service", "rw"), ("elastio-compose@.service", "rwm")]
)
def test_the_service_may_open_block_devices_and_the_control_node_of_device_mapper(name: str, access: str) -> None:
    """And the unit that composes may make a node before udev does."""
    lines = (SHIPPED / name).read_text().splitlines()
    assert unit(name)["Service"]["DevicePolicy"] == "closed"
    assert [line for line in lines if line.startswith("DeviceAllow=")] == [
        f"DeviceAllow=block-* {access}",
        f"DeviceAllow=char-misc {access}",
    ]


def test_udev_and_the_unit_look_for_the_record_where_it_is_written() -> None:
    rules = (SHIPPED / "59-elastio-adopted.rules").read_text()
    assert f'TEST!="/{ADOPTED}/$env{{ELASTIO_ADOPTED}}"' in rules
    assert "ELASTIO_ADOPTED=[" in rules, "the line of the tombstone"
    assert "ID_FS_TYPE}!=" not in rules, "whatever is recognized behind it"
    assert b"\nELASTIO_ADOPTED=a-volume\n" in serialize(Tombstone("a-volume", "ext4", "a-head", 1))
    assert f'ENV{{DM_UUID}}=="{UUID_PREFIX}*"' in rules
    assert "start elastio-compose@$env{ELASTIO_ADOPTED}.service" in rules
    named = "$env{ID_FS_UUID_ENC}"
    assert f'TEST=="/{AT_BOOT}/{named}", TEST!="/{NOT_NOW}/{named}", TEST=="/usr/bin/elastio"' in rules
    assert f'TEST!="/{ADOPTED}", TEST!="/{AT_BOOT}", GOTO="elastio_adopted_end"' in rules, "either of the two will do"
    composing = unit("elastio-compose@.service")
    lines = (SHIPPED / "elastio-compose@.service").read_text().splitlines()
    conditions = [line for line in lines if line.startswith("Condition")]
    assert conditions == [f"ConditionPathExists=|/{name}/%i" for name in (ADOPTED, AT_BOOT)]
    assert composing["Service"]["ExecStart"] == "/usr/bin/elastio device compose %i"
    assert composing["Unit"]["DefaultDependencies"] == "no", "it runs before file systems are mounted"
    assert composing["Unit"]["StartLimitIntervalSec"] == "0", "many events do not keep it from starting"
    assert f"$(ls /{ADOPTED} " in (SHIPPED.parent / "debian/elastio.prerm").read_text()
