"""What `elastio setup` finds before it changes anything: the machine, the device, and what earlier runs left behind.

Everything that would stop a later step is an error here, so that nothing is half done for a reason that was known.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from elastio.config.paths import DEFAULT_STATE_DIR
from elastio.config.schema import Config, load
from elastio.errors import ConfigError, HostError, NotOursError
from elastio.host.commands import Run, is_installed
from elastio.host.sysfs import Sysfs
from elastio_setup import filesystem, fstab, kernel_checks
from elastio_setup.candidates import Candidate, all_candidates
from elastio_setup.check_result import CheckResult, Machine, Verdict
from elastio_setup.filesystem import Filesystem
from elastio_setup.format_backing import verify
from elastio_setup.plan import Facts, Wanted
from elastio_setup.subprocess_timeout import call_with_timeout

KERNEL_S = 15.0
SYSTEMCTL_S = 30.0
DEFAULT_KIND = "ext4"
FSTAB = "etc/fstab"


def require_ready(machine: Machine, unit: str) -> tuple[CheckResult, ...]:
    """Those of doctor's checks on which setup depends, and the agent's unit. Returns the warnings.

    Raises HostError for a failure.
    """
    if os.geteuid() != 0:
        raise HostError("only root can set a device up: use sudo", code="setup.root")
    needed = (kernel_checks.kernel, kernel_checks.module, kernel_checks.cutoffs, kernel_checks.memory)
    checks = (*needed, kernel_checks.tools, kernel_checks.throttling, kernel_checks.rules)
    found = tuple(check(machine) for check in checks)
    failed = next((result for result in found if result.verdict is Verdict.FAIL), None)
    if failed is not None:
        raise HostError(f"{failed.sentence}: {failed.remedy}", code=f"setup.{failed.name}")
    file = re.sub("@.*[.]", "@.", unit)  # that of an instance is its template
    if not is_installed(machine.sysfs, file, kernel_checks.UNITS):
        raise HostError(f"{file} is not installed: see docs/how-to/install.md", code="setup.unit")
    return tuple(result for result in found if result.verdict is Verdict.WARN)


def survey(wanted: Wanted, sysfs: Sysfs, run: Run) -> Facts:
    """Raises ConfigError, HostError, DeviceBusyError or NotOursError; nothing was changed."""
    backing = _backing(wanted.device, sysfs)
    config = _config(wanted, backing)
    state_dir = config.agent.state_dir if config else DEFAULT_STATE_DIR
    adaptive = backing.adaptive if backing else None
    filesystem.require_place(wanted.place, state_dir, sysfs, adaptive)
    text = fstab.read(sysfs.path(FSTAB))
    if backing is None or adaptive is None:
        verified = verify(wanted.device, sysfs, run, is_forced=wanted.force)
        kind = wanted.filesystem or DEFAULT_KIND
        filesystem.require_maker(kind, sysfs)
        fstab.require_free(text, wanted.place)
        return Facts(verified.size_bytes, kind, runs=_runs(run, wanted.unit), is_blank=verified.is_blank)
    made = filesystem.found_on(adaptive, sysfs, run)
    kind = _kind(wanted, made, sysfs)
    is_blank = True
    if made is None:
        is_blank = filesystem.require_usable(adaptive, sysfs, is_forced=wanted.force)
        fstab.require_free(text, wanted.place)
    return Facts(
        size_bytes=backing.size_bytes,
        kind=kind,
        backing=backing,
        filesystem=made,
        has_line=made is not None and fstab.has_line(text, made.uuid, adaptive, wanted.place),
        is_mounted=filesystem.is_mounted(adaptive, wanted.place, sysfs),
        is_configured=config is not None,
        runs=_runs(run, wanted.unit),
        is_blank=is_blank,
    )


def _backing(device: Path, sysfs: Sysfs) -> Candidate | None:
    """The registered backing device on this volume. Raises HostError if its cache is missing."""
    name = device.resolve().name
    if name.startswith("bcache"):
        raise NotOursError(f"{device} is an adaptive device: name the volume below it", code="setup.adaptive")
    found = next((c for c in call_with_timeout(lambda: all_candidates(sysfs), KERNEL_S) if c.device == name), None)
    if found is not None and found.why_not:
        raise NotOursError(f"{device} {found.why_not}", code="device.virtual")
    if found is not None and found.adaptive is None:
        raise HostError(
            f"{device} is the backing device {found.uuid} and waits for its cache: see `elastio doctor`",
            code="setup.cache_missing",
        )
    return found


def _kind(wanted: Wanted, made: Filesystem | None, sysfs: Sysfs) -> str:
    if made is None:
        kind = wanted.filesystem or DEFAULT_KIND
        filesystem.require_maker(kind, sysfs)
        return kind
    if wanted.filesystem not in (None, made.kind):
        text = f"there is {made.kind} on {wanted.device}, not {wanted.filesystem}: nothing was changed"
        raise NotOursError(text, code="filesystem.kind")
    return made.kind


def _config(wanted: Wanted, backing: Candidate | None) -> Config | None:
    """The configuration that is there. Raises ConfigError if it is not for this device, or contradicts an option."""
    if not wanted.config_path.exists():
        return None
    config = load(wanted.config_path)
    if backing is None or config.device.backing_uuid != backing.uuid:
        raise ConfigError(
            f"{wanted.config_path} is for the backing device {config.device.backing_uuid}, not for {wanted.device}: "
            "give it a name of its own (elastio setup --name NAME ...)",
            code="setup.other_device",
        )
    options: Mapping[str, tuple[object, object]] = {
        "device.bandwidth_mb_s": (wanted.bandwidth_mb_s, config.device.bandwidth_mb_s),
        "cache.bandwidth_mb_s": (wanted.cache_mb_s, config.cache.bandwidth_mb_s),
        "caps.max_cost_per_day": (wanted.max_cost_per_day, config.caps.max_cost_per_day),
        "provider.name": (wanted.provider, config.provider.name),
    }
    for key, (asked, there) in options.items():
        if asked is not None and asked != there:
            text = f"{wanted.config_path} is there with {key} = {there}, not {asked}: change it there"
            raise ConfigError(text, code=f"setup.{key}")
    return config


def _runs(run: Run, unit: str) -> bool:
    """Whether the unit is enabled and active."""
    for question in ("is-enabled", "is-active"):
        try:
            run(["systemctl", question, "--quiet", unit], timeout_s=SYSTEMCTL_S)
        except HostError as error:
            if error.code != "program.failed":
                raise
            return False
    return True
