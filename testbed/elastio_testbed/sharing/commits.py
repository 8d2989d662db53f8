"""A program that waits for each of its writes, beside `tar` of a tree on the same filesystem."""

from __future__ import annotations

from dataclasses import replace

from elastio.units import KIB, MB, MIB
from elastio_testbed.machine import DATA
from elastio_testbed.sharing.applications import Applications, Work
from elastio_testbed.sharing.controls import SHARES
from elastio_testbed.sharing.slo import Commits, commits_of_intervals

SIZE_BYTES, EACH_S = 4 * KIB, 1 / 50
TREE, FILES, FILE_BYTES = f"{DATA}/tree", 64, 4 * MIB
ARCHIVE = f"{DATA}/tree.tar"
# An interval has 250 writes. `tar` does not end in the second part.
EVERY_S, ALONE_S, BESIDE_S = 5.0, 10.0, 25.0
CALL_S = 60.0
TARGET_MS = 20.0


def commits(both: Applications, control: str) -> Commits:
    """The first application writes 4 KiB fifty times a second, alone and then beside `tar`. Raises HypervisorError."""
    guest = both.guest
    both.make_files([(TREE, FILES, FILE_BYTES)])
    guest.check(["sh", "-c", "echo 3 > /proc/sys/vm/drop_caches"], timeout_s=CALL_S)
    both.share(both.with_target(TARGET_MS) if control == SHARES else {"enabled": "false"})
    writes = Work(ALONE_S, (SIZE_BYTES,), False, 0.0, SIZE_BYTES / EACH_S / MB, jobs=2, is_synced=True)
    idle = Work(ALONE_S, (SIZE_BYTES,), False, 0.0, jobs=0)
    tar = f"while tar -cf {ARCHIVE} {TREE}; do :; done"
    works = [writes, replace(writes, seconds=BESIDE_S)], [idle, replace(idle, seconds=BESIDE_S, command=tar)]
    seen = both.run(works, are_weighed=control == SHARES, every_s=EVERY_S)
    archived = int(guest.check(["stat", "--format=%s", ARCHIVE], timeout_s=CALL_S))
    alone, beside = round(ALONE_S / EVERY_S), round(BESIDE_S / EVERY_S)
    return commits_of_intervals(control, seen.intervals[0], alone, alone + beside, archived / MB / BESIDE_S)
