"""Checks of kernels, the bcache module, the tools and the files of the installation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from elastio.errors import HostError
from elastio.host.sysfs import Sysfs
from elastio_setup import kernel_checks
from elastio_setup.check_result import Machine, Verdict

DEBIAN_12 = ("6.1.0-42-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.1.192-2 (2026-08-01)")
BACKPORT = ("6.12.117+deb12-cloud-amd64", "#1 SMP PREEMPT_DYNAMIC Debian 6.12.117-1~deb12u1 (2026-09-01)")


def machine(root: Path, **files: str) -> Machine:
    """Files of /sys and /proc; `__` in a name stands for a slash."""

    def run(argv: Sequence[str], *, timeout_s: float) -> str:
        raise HostError(f"{argv[0]} is not installed")

    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(Sysfs(root), run)


@pytest.mark.parametrize(
    ("release", "built", "verdict", "code"),
    [
        (*DEBIAN_12, Verdict.OK, ""),
        (*BACKPORT, Verdict.OK, ""),
        ("5.10.0-30-amd64", "#1 SMP Debian 5.10.218-1 (2024-06-01)", Verdict.FAIL, "data_loss"),
        ("5.4.0", "#1 SMP", Verdict.FAIL, "data_loss"),
        ("5.11.0", "#1 SMP", Verdict.WARN, "full_journal"),
        ("5.12.3", "#1 SMP", Verdict.WARN, "oversized_read full_journal"),
        ("5.19.0", "#1 SMP", Verdict.OK, ""),
        ("6.14.2", "#1 SMP", Verdict.WARN, "min_heap"),
        ("6.12.30", "#1 SMP", Verdict.WARN, "min_heap"),
        ("6.18.5", "#1 SMP Tue Jan 13 10:00:00 UTC 2026", Verdict.WARN, "double_completion"),
        ("6.1.0-41-amd64", "#1 SMP Debian 6.1.160-1 (2026-01-10)", Verdict.WARN, "double_completion"),
        ("6.18.44", "#1 SMP Tue Aug 11 10:00:00 UTC 2026", Verdict.OK, ""),
        ("", "", Verdict.FAIL, "data_loss"),
    ],
)
def test_judges_the_kernel(release: str, built: str, verdict: Verdict, code: str, tmp_path: Path) -> None:
    found = kernel_checks.kernel(
        machine(tmp_path, proc__sys__kernel__osrelease=release, proc__sys__kernel__version=built)
    )
    assert (found.verdict, found.code) == (verdict, code)
    assert bool(found.remedy) is (verdict is not Verdict.OK)


SET = "sys__fs__bcache__9b2ff3b7-3a5b-4f6b-8f0e-9a4f8a3f1a11__internal__"


@pytest.mark.parametrize(
    ("cutoff", "cutoff_sync", "verdict", "code"),
    [
        ("70", "70", Verdict.OK, ""),
        ("40", "70", Verdict.WARN, "unused"),
        ("70", "90", Verdict.WARN, "hang"),
        ("70", "?", Verdict.WARN, "unused"),
    ],
)
def test_judges_how_full_a_registered_cache_may_get(
    cutoff: str, cutoff_sync: str, verdict: Verdict, code: str, tmp_path: Path
) -> None:
    files = {f"{SET}cutoff_writeback": cutoff, f"{SET}cutoff_writeback_sync": cutoff_sync}
    found = kernel_checks.cutoffs(machine(tmp_path, **files))
    assert (found.verdict, found.code) == (verdict, code)


@pytest.mark.parametrize(
    ("configured", "verdict"),
    [
        ("options bcache bch_cutoff_writeback=70 bch_cutoff_writeback_sync=70", Verdict.OK),
        ("options bcache bch_cutoff_writeback=70", Verdict.OK),
        ("options bcache bch_cutoff_writeback=70 bch_cutoff_writeback_sync=90", Verdict.WARN),
        ("options other bch_cutoff_writeback=70 bch_cutoff_writeback_sync=70", Verdict.WARN),
        ("", Verdict.WARN),
    ],
)
def test_judges_the_modules_options_while_no_cache_shows_its_cutoffs(
    configured: str, verdict: Verdict, tmp_path: Path
) -> None:
    made = Machine(Sysfs(tmp_path), lambda argv, *, timeout_s: f"# modprobe\n{configured}\n")
    assert kernel_checks.cutoffs(made).verdict is verdict


def test_names_the_packages_of_missing_tools(tmp_path: Path) -> None:
    made = machine(tmp_path, usr__sbin__wipefs="", usr__sbin__blkid="", usr__sbin__modprobe="")
    found = kernel_checks.tools(made)
    assert (found.verdict, found.remedy) == (Verdict.FAIL, "apt-get install bcache-tools")
    (tmp_path / "usr/sbin/make-bcache").touch()
    assert kernel_checks.tools(made).verdict is Verdict.OK


def test_a_kernel_without_bcache_fails(tmp_path: Path) -> None:
    assert kernel_checks.module(machine(tmp_path)).verdict is Verdict.FAIL
    (tmp_path / "sys/fs/bcache").mkdir(parents=True)
    assert kernel_checks.module(machine(tmp_path)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ((), Verdict.FAIL),
        (("60-elastio.rules",), Verdict.FAIL),
        (("69-bcache.rules",), Verdict.WARN),
        (("69-bcache.rules", "60-elastio.rules"), Verdict.WARN),
        (("69-bcache.rules", "60-elastio.rules", "61-elastio-guard.rules"), Verdict.OK),
    ],
)
def test_judges_what_udev_does_at_boot(rules: tuple[str, ...], verdict: Verdict, tmp_path: Path) -> None:
    (tmp_path / "usr/lib/udev/rules.d").mkdir(parents=True)
    for name in rules:
        (tmp_path / "usr/lib/udev/rules.d" / name).touch()
    assert kernel_checks.rules(machine(tmp_path)).verdict is verdict


@pytest.mark.parametrize("folder", ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"])
def test_warns_of_an_installation_without_the_shutdown_unit(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir(parents=True)
    assert kernel_checks.units(machine(tmp_path)).verdict is Verdict.WARN
    (tmp_path / folder / "elastio-shutdown.service").touch()
    assert kernel_checks.units(machine(tmp_path)).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("controllers", "files", "verdict"),
    [
        ("cpuset cpu io memory", ("io.stat", "io.max"), Verdict.OK),
        ("cpuset cpu io memory", (), Verdict.OK),  # the controller is not enabled yet
        ("cpuset cpu io memory", ("io.stat",), Verdict.WARN),
        ("cpuset cpu memory", (), Verdict.WARN),
        (None, (), Verdict.WARN),
    ],
)
def test_judges_whether_writes_can_be_throttled(
    controllers: str | None, files: tuple[str, ...], verdict: Verdict, tmp_path: Path
) -> None:
    shown = {f"sys__fs__cgroup__system.slice__{file}": "" for file in files}
    if controllers is not None:
        shown["sys__fs__cgroup__cgroup.controllers"] = controllers
    assert kernel_checks.throttling(machine(tmp_path, **shown)).verdict is verdict


ORDERS = " ".join(["0"] * 5)


@pytest.mark.parametrize(
    ("free", "verdict", "code"),
    [
        (f"Node 0, zone Normal, type Movable 9000 {ORDERS} 0 0 0 0 2", Verdict.OK, ""),
        (f"Node 0, zone Normal, type Movable 9000 {ORDERS} 0 0 0 0 0", Verdict.WARN, "fragmented"),
        ("", Verdict.OK, ""),
    ],
)
def test_judges_the_memory_for_a_cache(free: str, verdict: Verdict, code: str, tmp_path: Path) -> None:
    found = kernel_checks.memory(machine(tmp_path, proc__pagetypeinfo=free))
    assert (found.verdict, found.code) == (verdict, code)
