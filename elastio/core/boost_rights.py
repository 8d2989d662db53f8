"""Whose load counts towards a boost: the cgroups that may cause one. Pure.

A pattern of `[share] may_boost` or `no_boost` is that of a shell. It names a cgroup if it matches its path below the
root (`system.slice/backup.service`) or the last part of that (`backup.service`), and everything below the cgroup with
it. What `no_boost` names has no right, whatever `may_boost` says.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from elastio.core.shares import path

EVERYBODY = ("*",)


@dataclass(frozen=True, slots=True)
class Counted:
    """Cgroups whose bytes are added, and those whose bytes are subtracted, each with all that is below it.

    None of the first is above another of them, and so for the second. `everybody`: the first are the whole device,
    with what the kernel attributes to no cgroup.
    """

    everybody: bool
    added: tuple[str, ...]
    subtracted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BoostRights:
    """Who may cause a boost."""

    may: tuple[str, ...] = EVERYBODY
    no: tuple[str, ...] = ()

    @property
    def is_everybody(self) -> bool:
        """Nobody is left out, so no cgroup has to be read."""
        return self.may == EVERYBODY and not self.no

    def includes(self, group: str) -> bool:
        """Whether what this cgroup moves counts."""
        nodes = path(group)
        return any(_is_named(n, self.may) for n in nodes) and not any(_is_named(n, self.no) for n in nodes)

    def counted(self, groups: Sequence[str]) -> Counted:
        """Whose bytes count, of cgroups that are given by their paths, parents first."""
        everybody = EVERYBODY[0] in self.may
        added = () if everybody else _topmost([group for group in groups if _is_named(group, self.may)])
        refused = dict.fromkeys(_topmost([group for group in groups if _is_named(group, self.no)]))
        # One that is refused as a whole is not added in part.
        kept = dict.fromkeys(group for group in added if not _is_in(group, refused))
        return Counted(everybody, tuple(kept), tuple(group for group in refused if everybody or _is_in(group, kept)))


ALL_MAY = BoostRights()


def _is_named(group: str, patterns: Sequence[str]) -> bool:
    name = group.rpartition("/")[2]
    return any(fnmatchcase(group, pattern) or fnmatchcase(name, pattern) for pattern in patterns)


def _topmost(groups: Sequence[str]) -> tuple[str, ...]:
    """Those that are in no other of them; parents come first."""
    found: dict[str, None] = {}
    for group in groups:
        if not _is_in(group, found):
            found[group] = None
    return tuple(found)


def _is_in(group: str, above: Container[str]) -> bool:
    """Whether the cgroup is one of these, or below one."""
    return any(node in above for node in path(group))
