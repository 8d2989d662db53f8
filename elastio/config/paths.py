"""Where a device's configuration, state and socket are, by its name.

A VM with one device has `/etc/elastio/elastio.toml`, `/var/lib/elastio` and `/run/elastio/elastio.sock`. Each further
one has a name, NAME of `elastiod@NAME.service`: `/etc/elastio/NAME.toml`, `/var/lib/elastio/devices/NAME` and
`/run/elastio/NAME.sock`. What all devices share lies in the common directory, which is `/var/lib/elastio` for both
kinds: the mount guards, where a udev rule looks for them, and the statements of shared caps.
"""

from __future__ import annotations

import re
from pathlib import Path

JOURNAL = "journal.jsonl"
LEDGER = "ledger.sqlite"
GUARDS = "attached"  # one file for each backing device whose cache may hold what the device does not
STATEMENTS = "caps"  # one file for each backing device whose agent shares its caps
DEVICES = "devices"  # the state directories of devices with a name

# The records of adopted volumes, below the root. Also in 59-elastio-adopted.rules, elastio-compose@.service and
# debian/elastio.prerm.
ADOPTED = "etc/elastio/adopted"
# Pending adoptions, and the flag files that say that this boot is not meant. Also in the first two of these.
AT_BOOT = "etc/elastio/at-boot"
NOT_NOW = "run/elastio/at-boot"
DEFAULT_PATH = Path("/etc/elastio/elastio.toml")
DEFAULT_STATE_DIR = Path("/var/lib/elastio")
DEFAULT_SOCKET = Path("/run/elastio/elastio.sock")
RUNTIME_DIR = DEFAULT_SOCKET.parent

MAIN = DEFAULT_PATH.stem
# What systemd leaves as it is in the name of an instance, without dots: NAME.toml.d holds the drop-ins of NAME.toml.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")


def name_of(path: Path) -> str:
    """The name of the device that is configured by this file; empty: it is `elastio.toml`, or lies elsewhere."""
    named = path.parent == DEFAULT_PATH.parent and path.suffix == DEFAULT_PATH.suffix and path.stem != MAIN
    return path.stem if named and NAME.fullmatch(path.stem) else ""


def unit_of(name: str) -> str:
    """The unit of the agent."""
    return f"elastiod@{name}.service" if name else "elastiod.service"


def state_dir_of(name: str) -> Path:
    """The default of `agent.state_dir`."""
    return DEFAULT_STATE_DIR / DEVICES / name if name else DEFAULT_STATE_DIR


def socket_of(name: str) -> Path:
    """The default of `agent.socket`."""
    return RUNTIME_DIR / f"{name}.sock" if name else DEFAULT_SOCKET


def common_dir(state_dir: Path) -> Path:
    """The directory that the agents of a VM share, for the agent with this state directory."""
    return state_dir.parent.parent if state_dir.parent.name == DEVICES else state_dir
