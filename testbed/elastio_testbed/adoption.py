"""`elastio-testbed adopt`: volumes with data are adopted, boosted, flushed, released and read, each byte compared.

One guest for each layout. Then the agent is killed and the power is cut while the tombstone is written and removed, by
the campaign of faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from elastio_testbed.adopted import CASES, KEEPING, KEY, PACKAGES, AdoptedGuest
from elastio_testbed.conditions import guests_on
from elastio_testbed.console import Say, click_errors, conclude, progress
from elastio_testbed.cuts.reader import UNCAPPED_BYTES_S
from elastio_testbed.files import write_json
from elastio_testbed.hypervisor import define_machine
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.machine import DATA, NAMED, PROGRAMS, SMALL_MIB
from elastio_testbed.options import guest_options, json_option, seed_option
from elastio_testbed.scratch import scratch_folder

# The faults strike them in turn: tombstones of three lengths, and what may lie below.
CUT_CASES = ("disk/ext4", "luks/ext4", "disk/btrfs", "partition/xfs", "lv/ext4")
FILES = "/usr/lib/python3 /usr/lib/x86_64-linux-gnu/perl-base"
SUMS = f"cd {DATA} && find . -type f ! -name new -print0 | sort -z | xargs -0 sha256sum | sha256sum"
NEW, COPY = f"{DATA}/new", "/var/tmp/new"
FORGET = "echo 3 > /proc/sys/vm/drop_caches"
# Past the page cache: it may be older, and a small guest has no memory left for a cache once it is full.
IMAGE = "dd if={} bs=4M iflag=direct,skip_bytes skip={} status=none | sha256sum"
# No further than the adaptive device goes.
SHOWN = """\
dd if={0} bs=4M iflag=direct,skip_bytes,count_bytes skip={1} count=$(($(blockdev --getsize64 /dev/bcache0) - {1})) \
status=none | sha256sum"""
OUTAGE = "/run/outage"
CHECK = {"ext4": "e2fsck -fn", "xfs": "xfs_repair -n", "btrfs": "btrfs check --readonly"}
# Whoever may know the volume alone; all look at it, and cryptsetup repairs what it knows.
RECOGNIZE = """\
btrfs device scan >/dev/null; blkid -p -s TYPE -o value $V; cryptsetup isLuks $V && echo LUKS
pvs --noheadings $V 2>/dev/null; true"""
# Past the composed device, which claims the volume: mounted or opened by no program.
USE_RAW = f"""\
btrfs device scan >/dev/null 2>&1; mount $V /mnt 2>/dev/null && umount /mnt && echo mounted
cryptsetup open --key-file {KEY} $V raw 2>/dev/null && cryptsetup close raw && echo opened
vgs --noheadings --devices $V 2>/dev/null; true"""
# What is written while the cache is attached.
NEW_MIB = 24
SLOWER = 8
STEP_S, BOOT_S = 300.0, 240.0


@dataclass(frozen=True, slots=True)
class Case:
    """One volume.

    `sums_equal`: all files were the same after every step and at last in another guest, and the composed device showed
    the volume byte for byte.
    `cut_dirty`: the power was cut while the cache was dirty. `raw_mounts`: how often the volume alone was recognized
    while it had a cache, or used while it was composed. `outage_s`: seconds without the file system while it was
    adopted and released, its check included.
    """

    layout: str
    filesystem: str
    sums_equal: bool
    raw_mounts: int
    cut_dirty: bool
    outage_s: tuple[float, float]


def summary(cases: Sequence[Case], runs: Sequence[Any]) -> dict[str, object]:
    """The document of all cases and of the runs with a fault."""
    lost = sum(run.lost_records for run in runs)
    same = all(case.sums_equal and case.cut_dirty and not case.raw_mounts for case in cases)
    return {
        "cases": [asdict(case) for case in cases],
        "sums_equal": all(case.sums_equal for case in cases),
        "raw_mounts": sum(case.raw_mounts for case in cases),
        "outage_s": max((max(case.outage_s) for case in cases), default=0.0),
        "cuts": len(runs),
        "missed_moments": sum(run.missed for run in runs),
        "lost_records": lost,
        "leaked_volumes": sum(len(run.leaked_volumes) for run in runs),
        "sound": same and lost == 0 and all(run.is_sound for run in runs),
    }


class Adoption:
    """One volume from its first file to the mount without elastio."""

    def __init__(self, guest: AdoptedGuest) -> None:
        self.guest, self.is_equal, self.raw_mounts, self.was_dirty = guest, True, 0, False
        self.outages: list[float] = []
        self._sums = ""
        guest.files = FILES
        guest.before_adoption = self._begin  # type: ignore[method-assign]  # what is to be compared with

    def shell(self, script: str) -> str:
        return self.guest.check(["sh", "-c", f"exec 2>&1; V={self.guest.volume()}; {script}"], timeout_s=STEP_S)

    def go(self) -> None:
        """Everything after `prepare`."""
        self._end_outage()
        self._compare()
        self._compare_images()
        self.shell(f"dd if=/dev/urandom of={COPY} bs=1M count={NEW_MIB} conv=fsync status=none; sync")
        self.shell("elastio boost --wait")
        self._cut_while_dirty()
        self._look()
        self._settle()
        self._compare()
        self._release()

    def _cut_while_dirty(self) -> None:
        """What was written last is on the cache alone; the boot composes the volume by its tombstone.

        At once: a quiet boost ends after some seconds.
        """
        vm, guest = self.guest.vm, self.guest
        vm.set_limit(guest.serial, guest.cap_bytes_s // SLOWER)
        state = f"cat /sys/block/{guest.backing_device()}/bcache/state"
        dirty = self.shell(f"dd if={COPY} of={NEW} bs=1M conv=fsync status=none; {state}")
        self._look()
        vm.kill()
        vm.set_limit(guest.serial, guest.cap_bytes_s)
        vm.start(BOOT_S)
        self.shell(f"until mountpoint -q {DATA}; do sleep 0.5; done")
        self._compare()
        self.was_dirty = dirty == "dirty"

    def _begin(self) -> None:
        self._sums = self.shell(SUMS)
        self._begin_outage()

    def _release(self) -> None:
        self.shell("systemctl stop elastiod")
        self._begin_outage()
        if self.guest.is_closed:
            self.shell(f"{self.guest.close} && elastio device release $V --yes && {self.guest.open}")
        else:
            self.shell(f"elastio device release {DATA} --yes")
        self._end_outage()
        self._compare()
        check = f"D=$(findmnt -no SOURCE {DATA}); umount {DATA} && {CHECK[self.guest.filesystem]} $D && mount $D {DATA}"
        self.shell(check)
        self._compare()

    def compare_elsewhere(self, image: GuestImage, folder: Path) -> None:
        """The released volume in a guest that has never had it; the first one ends."""
        guest, shown = self.guest, f"{SUMS}; sha256sum < {NEW}"
        before = self.shell(shown)
        self.shell(guest.close)
        path = guest.vm.files()[guest.serial]
        guest.vm.kill()
        other = define_machine(image, directory=folder, memory_mib=SMALL_MIB)
        try:
            other.start(BOOT_S)
            other.plug(guest.serial, path, bytes_per_second=UNCAPPED_BYTES_S)
            script = f"udevadm settle; D=/dev/$({NAMED.format(guest.serial)}); {guest.mounted_elsewhere} && {shown}"
            self.is_equal &= other.agent.check(["sh", "-c", script], timeout_s=STEP_S) == before
        finally:
            other.close()

    def _compare(self) -> None:
        """The files that were there before the adoption, and what was written while there was a cache."""
        same = f"! test -e {COPY} || cmp {COPY} {NEW}"
        self.is_equal &= self.shell(f"{FORGET}; {same} && {SUMS}") == self._sums

    def _compare_images(self) -> None:
        """Without a cache, and past what anybody has read before."""
        self._settle()
        self.guest.vm.set_limit(self.guest.serial, None)
        self._use_raw()
        self.shell(self.guest.close)
        self._use_raw()
        at = KEEPING.get(self.guest.layout, 0)
        self.is_equal &= self.shell(SHOWN.format("/dev/bcache0", at)) == self.shell(SHOWN.format("$V", at))
        self.shell(f"{self.guest.open} && elastio resume")
        self.guest.vm.set_limit(self.guest.serial, self.guest.cap_bytes_s)

    def _has_filesystem(self) -> bool:
        return self.shell(RECOGNIZE) != ""

    def _settle(self) -> None:
        """No cache, and none comes: to read as much as a comparison does would begin a boost."""
        self.shell("elastio pause && elastio flush --wait")
        if self.guest.layout not in KEEPING:
            self.guest.wait_for(lambda _: self._has_filesystem(), STEP_S, "the volume to be a plain file system")

    def _use_raw(self) -> None:
        self.raw_mounts += self.shell(USE_RAW) != ""

    def _has_cache(self) -> bool:
        return self.shell("ls /sys/block/dm-*/bcache/cache/ >/dev/null 2>&1 && echo yes; true") == "yes"

    def _look(self) -> None:
        had_cache, has_filesystem = self._has_cache(), self._has_filesystem()
        self.raw_mounts += had_cache and has_filesystem and self._has_cache()

    def _begin_outage(self) -> None:
        self.guest.vm.agent.write_file(f"{PROGRAMS}/outage.py", _program("outage"))
        self.shell(f"rm -f {OUTAGE}; python3 {PROGRAMS}/outage.py {DATA} > {OUTAGE} 2>&1 & sleep 0.5")

    def _end_outage(self) -> None:
        self.outages.append(float(self.shell(f"until test -s {OUTAGE}; do sleep 0.1; done; cat {OUTAGE}")))


def _program(name: str) -> bytes:
    return Path(__file__).with_name("guest").joinpath(f"{name}.py").read_bytes()


def played(name: str, image: GuestImage, seed: int) -> Case:
    """One of CASES in a guest of its own. Raises GuestError where a step fails."""
    from elastio_testbed.faults.lab import Lab  # noqa: PLC0415  moto takes a second to load

    with (
        scratch_folder("elastio-adopt-") as folder,
        Lab(image, Path(folder), seed, adopted=name) as lab,
    ):
        assert isinstance(lab.guest, AdoptedGuest)
        adoption = Adoption(lab.guest)
        lab.prepare()
        adoption.go()
        adoption.compare_elsewhere(image, Path(folder, "elsewhere"))
    begun, ended = adoption.outages
    return Case(
        lab.guest.layout,
        lab.guest.filesystem,
        adoption.is_equal,
        adoption.raw_mounts,
        adoption.was_dirty,
        (begun, ended),
    )


def carry_out(cuts: int, seed: int, suite: str | None, evidence: Path, say: Say) -> dict[str, object]:
    from elastio_testbed.faults import campaign  # noqa: PLC0415  moto takes a second to load
    from elastio_testbed.faults.kinds import OF_ADOPTED  # noqa: PLC0415
    from elastio_testbed.faults.plan import plan  # noqa: PLC0415

    image, cases = build_guest_image(extra=PACKAGES, suite=suite), []
    for name in CASES:
        say(name)
        cases.append(played(name, image, seed))
        say(str(cases[-1]))
    planned = plan(cuts, seed, (*OF_ADOPTED, "power-cut"))
    runs: list[Any] = []
    for first, name in enumerate(CUT_CASES):
        if wanted := planned[first :: len(CUT_CASES)]:
            say(f"{name}, with faults")
            runs += campaign.carry_out(wanted, seed, evidence, say, suite=suite, adopted=name)
    return {**guests_on(suite), "seed": seed, **summary(cases, runs)}


@click.command()
@click.option("--cuts", type=click.IntRange(0, 1000), default=8, show_default=True, help="Kills and power cuts.")
@seed_option
@guest_options
@json_option
def adopt(cuts: int, seed: int, suite: str | None, json_path: Path | None) -> None:
    """Adopt, boost, flush and release volumes with data, and compare every byte. Exit code 1 if anything differs."""
    evidence = (json_path or Path("out/adopt/result.json")).with_suffix(".evidence")
    with click_errors():
        document = carry_out(cuts, seed, suite, evidence, progress())
    write_json(json_path, document)
    conclude(document)
