"""The steps of `elastio setup`, each with what is there already. Pure.

Theory of operation. Every step is recognised as done by what it leaves behind, never by a note of an earlier run: so
the same command goes on after a failure, and does nothing on a machine that is set up. What contradicts a step is an
error of the survey, before anything is changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from elastio.config.paths import name_of, unit_of
from elastio.units import format_size
from elastio_setup.candidates import Candidate
from elastio_setup.filesystem import Filesystem
from elastio_setup.first_config import FirstConfig
from elastio_setup.format_backing import shown_state


class StepName(StrEnum):
    """In the order in which they are carried out."""

    DEVICE = "device"
    FILESYSTEM = "filesystem"
    FSTAB = "fstab"
    MOUNT = "mount"
    CONFIGURATION = "configuration"
    AGENT = "agent"
    IDLE = "idle"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the operator asks for. None: not said."""

    device: Path
    place: Path
    config_path: Path
    filesystem: str | None = None
    bandwidth_mb_s: float | None = None
    cache_mb_s: float | None = None
    max_cost_per_day: float | None = None
    provider: str | None = None
    force: bool = False  # format what is not blank, too

    @property
    def unit(self) -> str:
        """The unit that runs the agent of this configuration."""
        return unit_of(name_of(self.config_path))


@dataclass(frozen=True, slots=True)
class Facts:
    """What is there. `backing` None: the volume is no backing device yet. `kind`: of the filesystem there, or to make.

    `is_blank`: what is to be formatted, the volume or the adaptive device, was read and has no data.
    """

    size_bytes: int
    kind: str
    backing: Candidate | None = None
    filesystem: Filesystem | None = None
    has_line: bool = False
    is_mounted: bool = False
    is_configured: bool = False
    runs: bool = False
    is_blank: bool = True


@dataclass(frozen=True, slots=True)
class Step:
    """`text`: what is there if `is_done`, else what is to do, as an imperative."""

    name: StepName
    is_done: bool
    text: str

    def __str__(self) -> str:
        return f"{'done' if self.is_done else 'to do':<7}{self.name:<15}{self.text}"


def plan(wanted: Wanted, facts: Facts, config: FirstConfig | None) -> tuple[Step, ...]:
    """All steps. `config`: what is to be written, None if there is a configuration."""
    return (_device(wanted, facts), *_filesystem(wanted, facts), _configuration(wanted, config), *_agent(wanted, facts))


def _device(wanted: Wanted, facts: Facts) -> Step:
    if facts.backing is not None:
        text = f"{wanted.device} is the backing device {facts.backing.uuid}, used as /dev/{facts.backing.adaptive}"
        return Step(StepName.DEVICE, True, text)
    size = format_size(facts.size_bytes)
    return Step(
        StepName.DEVICE, False, f"format {wanted.device} ({size}, {shown_state(facts.is_blank)}) as a backing device"
    )


def _filesystem(wanted: Wanted, facts: Facts) -> tuple[Step, ...]:
    adaptive = f"/dev/{facts.backing.adaptive}" if facts.backing else "the adaptive device"
    made = facts.filesystem
    there = made and f"{made.kind} with the UUID {made.uuid} is on {adaptive}"
    line = f"{wanted.place} with nofail"
    warned = "" if facts.is_blank or facts.backing is None else f", which is {shown_state(False)}"
    return (
        Step(StepName.FILESYSTEM, made is not None, there or f"make {facts.kind} on {adaptive}{warned}"),
        Step(
            StepName.FSTAB, facts.has_line, f"/etc/fstab has {line}" if facts.has_line else f"add {line} to /etc/fstab"
        ),
        Step(
            StepName.MOUNT,
            facts.is_mounted,
            f"{adaptive} is mounted at {wanted.place}" if facts.is_mounted else f"mount it at {wanted.place}",
        ),
    )


def _configuration(wanted: Wanted, config: FirstConfig | None) -> Step:
    path = wanted.config_path
    if config is None:
        return Step(StepName.CONFIGURATION, True, f"{path} is there")
    return Step(StepName.CONFIGURATION, False, f"write {path}: {described(config)}")


def described(config: FirstConfig) -> str:
    """What the configuration says, in a few words."""
    cap = config.max_cost_per_day
    return (
        f"volume of {config.bandwidth_mb_s:g} MB/s, caches of {config.cache_mb_s:g} MB/s from {config.provider}, "
        f"{'no cap on cost' if cap is None else f'at most {cap:g} a day'}"
    )


def _agent(wanted: Wanted, facts: Facts) -> tuple[Step, ...]:
    text = f"{wanted.unit} is enabled and runs" if facts.runs else f"enable and start {wanted.unit}"
    return Step(StepName.AGENT, facts.runs, text), Step(StepName.IDLE, False, "wait until the agent is idle")


def question(wanted: Wanted, facts: Facts) -> str:
    """What must be confirmed, because it writes to a device; empty if nothing does."""
    if facts.backing is None:
        size = format_size(facts.size_bytes)
        what = f"format {wanted.device} ({size}, {shown_state(facts.is_blank)}) as a backing device"
        return f"{what}, with {facts.kind} at {wanted.place}?"
    if facts.filesystem is None:
        return f"make {facts.kind} on /dev/{facts.backing.adaptive}, which is {shown_state(facts.is_blank)}?"
    return ""
