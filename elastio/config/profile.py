"""[profile]: whether the agent keeps an account of where the time of cgroups goes, and of which."""

from __future__ import annotations

from dataclasses import dataclass

from elastio.config.rules import Flag, Patterns, key

DEFAULT_CGROUPS = ("*.slice", "*.service", "system.slice/*.service")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSection:
    """[profile]: the account of bursts in the ledger, which `elastio profile --since` shows."""

    enabled: bool = key(
        Flag("during a load, look at the tasks of cgroups, and keep in the ledger what they wait for"), True
    )
    cgroups: tuple[str, ...] = key(
        Patterns("cgroups that are looked at, at most 50, by their paths below /sys/fs/cgroup"), DEFAULT_CGROUPS
    )
