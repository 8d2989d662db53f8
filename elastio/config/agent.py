"""[agent]: the daemon, and where it keeps what it knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from elastio.config.paths import DEFAULT_SOCKET, DEFAULT_STATE_DIR
from elastio.config.rules import Number, Text, key, whole

LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSection:
    """[agent]: the daemon."""

    sample_interval_s: float = key(Number("interval between throughput samples, in seconds", least=0.2, most=60), 1.0)
    state_dir: Path = field(
        default=DEFAULT_STATE_DIR,
        metadata={"rule": Text("directory of journal and ledger; must not be on the adaptive device", "path")},
    )
    socket: Path = field(default=DEFAULT_SOCKET, metadata={"rule": Text("path of the control socket", "socket")})
    socket_group: str = key(
        Text("group whose members may use the control socket; empty: root only", "group"), "elastio"
    )
    history_days: float = key(Number("retention of throughput samples, in days", above=0, most=3650), 30.0)
    history_rows: int = key(
        whole("maximum number of samples kept; each sample under load is a row, a quiet hour is one row", least=1000),
        500_000,
    )
    log_level: str = key(Text("lowest severity of the messages that are logged", "choice", LOG_LEVELS), "info")
