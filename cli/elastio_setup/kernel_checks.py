"""Checks of the kernel, the bcache module, the tools and the files of the installation."""

from __future__ import annotations

import re
from datetime import date

from elastio.errors import HostError
from elastio.host.cgroups import CGROUPS
from elastio.host.commands import is_installed
from elastio.host.kernel import COMPACT, FIRST_SAFE, Version, configured_cutoffs, has_memory, version_of
from elastio.host.superblock import SMALLEST_BUCKET_BYTES
from elastio_setup.check_result import CheckResult, Machine, fail, ok, warn

# Code, bug, first release with it, first without. Sources: the linux-bcache list and the stable trees.
KNOWN_BUGS: tuple[tuple[str, str, Version, Version], ...] = (
    ("oversized_read", "it may stop with a BUG on an oversized read at boot", (5, 12), (5, 14)),
    ("full_journal", "registering a cache whose journal is full may hang after a reboot", (5, 11), (5, 19)),
    ("min_heap", "cached I/O may have high latency (min_heap, reverted in mid-2025)", (6, 11), (6, 16)),
)
# Stable releases that the agent was tested with, data compared. They have none of these bugs.
TESTED: tuple[tuple[Version, Version], ...] = (((6, 1, 192), (6, 2)), ((6, 12, 117), (6, 13)))
# "bcache: fix improper use of bi_end_io" completes every request twice while no cache is attached. It was queued for
# the stable trees 6.1 to 6.18 in December 2025 and corrected in January 2026. Which releases have it is not known, so
# the build date decides.
DOUBLE_COMPLETION = ((6, 1), (6, 19), date(2025, 12, 15), date(2026, 2, 15))

# The values of systemd/modprobe.d/elastio.conf, which gives the reasons.
CUTOFFS = {"bch_cutoff_writeback": "70", "bch_cutoff_writeback_sync": "70"}
TOOLS = {"make-bcache": "bcache-tools", "wipefs": "util-linux", "blkid": "util-linux", "modprobe": "kmod"}
RULES = ("etc/udev/rules.d", "run/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d")
UNITS = ("etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system", "lib/systemd/system")
GUARD = "61-elastio-guard.rules"
SHUTDOWN_UNIT = "elastio-shutdown.service"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def kernel(machine: Machine) -> CheckResult:
    """Whether the release has a known bug of bcache."""
    release = machine.sysfs.read_or("proc/sys/kernel/osrelease", "")
    built = machine.sysfs.read_or("proc/sys/kernel/version", "")
    version = version_of(release, built)
    shown = ".".join(map(str, version)) or release
    if version < FIRST_SAFE:
        return fail(
            "kernel", f"Linux {shown} loses dirty data when a cache fails", "use Linux 5.11 or newer", "data_loss"
        )
    if any(first <= version < below for first, below in TESTED):
        return ok("kernel", f"Linux {shown} is one of the kernels the agent was tested with")
    bugs = {code: bug for code, bug, first, below in KNOWN_BUGS if first <= version < below}
    first, below, since, until = DOUBLE_COMPLETION
    day = built_on(built)
    if first <= version < below and day is not None and since <= day < until:
        bugs["double_completion"] = "it may complete requests twice while no cache is attached"
    if bugs:
        return warn(
            "kernel", f"Linux {shown}: {'; '.join(bugs.values())}", "use a current 6.1 or 6.12 kernel", " ".join(bugs)
        )
    return ok("kernel", f"Linux {shown} has no known bug that affects the agent")


def built_on(built: str) -> date | None:
    """The date of a build line: `(2026-01-20)` or `Tue Jan 20 10:00:00 UTC 2026`; None without one."""
    if iso := re.search(r"(20\d\d)-(\d\d)-(\d\d)", built):
        return date(int(iso[1]), int(iso[2]), int(iso[3]))
    if long := re.search(rf"({'|'.join(MONTHS)})\s+(\d+)\s.*\b(20\d\d)\b", built):
        return date(int(long[3]), MONTHS.index(long[1]) + 1, int(long[2]))
    return None


def module(machine: Machine) -> CheckResult:
    """Whether the bcache module is loaded, or can be."""
    if machine.sysfs.exists("sys/fs/bcache"):
        return ok("bcache", "the kernel module is loaded")
    try:
        machine.run(["modprobe", "--dry-run", "bcache"], timeout_s=10)
    except HostError as error:
        return fail(
            "bcache", f"the kernel has no bcache ({error})", "install a kernel with the bcache module", "missing"
        )
    return warn(
        "bcache", "the kernel module is not loaded", "modprobe bcache; modules-load.d does it at boot", "unloaded"
    )


def cutoffs(machine: Machine) -> CheckResult:
    """How full a cache may become. Set when the module is loaded, shown in /sys by a registered cache set."""
    name = "cutoffs"
    try:
        shown = _shown_cutoffs(machine) or configured_cutoffs(machine.run)
    except HostError as error:
        return warn(name, f"they cannot be read ({error})", "apt-get install kmod", "unreadable")
    if all(shown.get(n) == wanted for n, wanted in CUTOFFS.items()):
        return ok(name, "a cache absorbs writes up to 70 % of its size")
    values = "/".join(shown.get(n, "?") for n in CUTOFFS)
    code, harm = "unused", "part of each cache volume is never used"
    if _is_above(shown, "bch_cutoff_writeback_sync"):
        code, harm = (
            "hang",
            "a burst of synchronous writes may fill a small cache to the last bucket, and the kernel hangs",
        )
    return warn(
        name,
        f"a cache absorbs writes up to {values} % of its size (asynchronous/synchronous) instead of 70/70 %: {harm}",
        "install modprobe.d/elastio.conf, run update-initramfs -u and reboot",
        code,
    )


def memory(machine: Machine) -> CheckResult:
    """Whether the kernel could register a cache now, however small its buckets."""
    name = "memory"
    if has_memory(machine.sysfs, SMALLEST_BUCKET_BYTES):
        return ok(name, "the kernel has contiguous memory for a cache")
    return warn(
        name,
        "memory is too fragmented to attach a cache",
        f"free some, compact it (echo 1 > /{COMPACT}), or use a VM with more",
        "fragmented",
    )


def _is_above(shown: dict[str, str], name: str) -> bool:
    value = shown.get(name, "")
    return value.isdecimal() and int(value) > int(CUTOFFS[name])


def _shown_cutoffs(machine: Machine) -> dict[str, str]:
    """The values in force, from a registered cache set; empty if there is none."""
    sets = [n for n in machine.sysfs.names("sys/fs/bcache") if machine.sysfs.exists(f"sys/fs/bcache/{n}/internal")]
    if not sets:
        return {}
    inside = f"sys/fs/bcache/{sets[0]}/internal"
    return {n: machine.sysfs.read_or(f"{inside}/{n.removeprefix('bch_')}", "?") for n in CUTOFFS}


def tools(machine: Machine) -> CheckResult:
    """Whether every program that the agent runs is installed."""
    missing = {tool: package for tool, package in TOOLS.items() if not is_installed(machine.sysfs, tool)}
    if missing:
        packages = " ".join(sorted(set(missing.values())))
        return fail("tools", f"{', '.join(missing)} not found", f"apt-get install {packages}", "missing")
    return ok("tools", f"{', '.join(TOOLS)} are installed")


def rules(machine: Machine) -> CheckResult:
    """Whether udev registers the backing device at boot, makes its settings safe and checks the mount guard."""
    found = {name for folder in RULES for name in machine.sysfs.names(folder)}
    if "69-bcache.rules" not in found:
        return fail("udev", "no rule registers the backing device at boot", "apt-get install bcache-tools", "bcache")
    if "60-elastio.rules" not in found:
        return warn(
            "udev",
            "between boot and the agent's start the backing device has bcache's default settings",
            "install 60-elastio.rules",
            "settings",
        )
    if GUARD not in found:
        return warn(
            "udev",
            "a backing device that lost its cache while the machine was off is mounted without it",
            f"install {GUARD}",
            "guard",
        )
    return ok("udev", "the backing device is registered, configured and guarded at boot")


def throttling(machine: Machine) -> CheckResult:
    """Whether I/O can be throttled (io.max of cgroup v2) for the moment in which a cache is attached or detached."""
    sysfs, name = machine.sysfs, "cgroups"
    groups = [g for g in sysfs.names(CGROUPS) if sysfs.exists(f"{CGROUPS}/{g}/io.stat")]
    offered = "io" in sysfs.read_or(f"{CGROUPS}/cgroup.controllers", "").split()
    # The controller may not be enabled yet: the agent's unit enables it (IOAccounting=).
    if offered and (not groups or any(sysfs.exists(f"{CGROUPS}/{g}/io.max") for g in groups)):
        return ok(name, "I/O can be throttled while a cache is attached or detached (io.max)")
    why = "the kernel was built without I/O throttling" if offered else "cgroup v2 has no io controller here"
    return warn(
        name,
        f"I/O cannot be throttled ({why}): a cache is attached and detached only while the load pauses",
        "boot with systemd.unified_cgroup_hierarchy=1, on a kernel with CONFIG_BLK_DEV_THROTTLING",
        "throttling" if offered else "controller",
    )


def units(machine: Machine) -> CheckResult:
    """The unit that asks the agent before the machine goes down. Old installations do not have it."""
    if is_installed(machine.sysfs, SHUTDOWN_UNIT, UNITS):
        return ok("shutdown", f"{SHUTDOWN_UNIT} is installed")
    return warn(
        "shutdown",
        "shutdown.on_shutdown has no effect: nothing asks the agent before the machine goes down",
        f"install {SHUTDOWN_UNIT} and the current elastiod.service, then systemctl daemon-reload and restart elastiod",
    )
