"""The limits that share the adaptive device among cgroups: written, recorded, and taken back by whoever has to.

Theory of operation. A limit in a cgroup outlives the process that wrote it, and a machine has hundreds of cgroups, so
nobody searches them. A record below /run names every cgroup before its first limit is written: `NAME.shares`, with the
capacity that is shared, the process that shares it with the least latency target, if there is one, the device, and a
cgroup on each line. It is there exactly while shares are in force. Who takes limits back (the host worker, its guard,
the next agent, `elastio free`) lifts those that the record names, and removes it; without a record nothing is listed or
written. A worker that finds its record gone lifts what it wrote.

A limit of this kind has figures by which it is recognized, so it is never taken for one of an administrator, nor for
one that holds requests back.

Whose limits are whose: one more file for each agent, `NAME.limits`, has the numbers (`major:minor`) of its adaptive
device and of those above it, one a line. It is written before the first limit, and stays: a limit that its agent left
behind is removed by the next run of that agent, or by `elastio free` for its device, and not by the agents of others.
The kernel gives the number of a device that is gone to another one, perhaps that of another agent. So the number is
followed by the device's sequence number, which is never given again in one boot (`diskseq`, since Linux 5.15), and a
claim to a device that is gone counts for nobody.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from elastio import whole_file
from elastio.core.shares import SharePlan
from elastio.errors import HostError
from elastio.host.cgroups import CGROUPS, FREE, limits_of
from elastio.host.locks import try_lock
from elastio.host.sysfs import Sysfs, wait_for
from elastio.units import MB

DIRECTORY = "run/elastio"
CLAIMS = ".limits"


def claim(sysfs: Sysfs, numbers: Collection[str]) -> None:
    """Claim these devices, and no others. Raises HostError if the file cannot be written: then set no limit."""
    folder = sysfs.path(DIRECTORY)
    if not sysfs.owner or not folder.is_dir():
        return
    path = folder / f"{sysfs.owner}{CLAIMS}"
    text = "".join(f"{number} {sequence(sysfs, number)}".rstrip() + "\n" for number in sorted(numbers))
    if _claimed(sysfs, path.name) == set(numbers):
        return
    try:
        whole_file.replace(path, text.encode())
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; no application was held back"
        raise HostError(text, code="limit.claim") from error


def claimed_by_others(sysfs: Sysfs) -> frozenset[str]:
    """The devices that agents of other adaptive devices limit, and this one does not."""
    names = [name for name in sysfs.names(DIRECTORY) if name.endswith(CLAIMS)]
    own = f"{sysfs.owner}{CLAIMS}" if sysfs.owner else ""
    found = {number for name in names if name != own for number in _claimed(sysfs, name)}
    return frozenset(found - (_claimed(sysfs, own) if own else set()))


def _claimed(sysfs: Sysfs, name: str) -> set[str]:
    """The devices that the file claims and that are still those."""
    lines = (line.split() for line in sysfs.read_or(f"{DIRECTORY}/{name}", "").splitlines())
    return {words[0] for words in lines if words and words[1:] in ([], [sequence(sysfs, words[0])])}


def sequence(sysfs: Sysfs, number: str) -> str:
    """The sequence number of the device that has this number now; empty: there is none, or the kernel has no such."""
    return sysfs.read_or(f"sys/dev/block/{number}/diskseq", "")


SUFFIX = ".shares"
LOCK_S = 1.0
# In kB/s, then the digits that mark it as ours.
SHARED = re.compile(r"rbps=(\d+)222 wbps=(\d+)222 riops=max wiops=max")
# Kinds that are still ours where somebody else has set another one meanwhile.
PART = re.compile(r"\b([rw]bps)=\d+222\b")


@dataclass(frozen=True, slots=True)
class Record:
    """The capacity that is shared, and the cgroups that may have a limit on the device `number` (MAJOR:MINOR).

    `process` is the one that shares it: its ID, and when it started, because the kernel gives IDs again. `target_s` is
    the least latency target; None: there is none.
    """

    capacity_mb_s: float
    number: str
    groups: tuple[str, ...]
    process: tuple[int, str]
    target_s: float | None = None


def is_share(limits: str | None) -> bool:
    return limits is not None and SHARED.fullmatch(limits) is not None


def share_mb_s(limits: str | None) -> float | None:
    """The share that this line of `io.max` enforces; None: it is another limit, or none."""
    found = SHARED.fullmatch(limits or "")
    return None if found is None else int(found[1]) * 1000 / MB


def put(sysfs: Sysfs, group: str, number: str, mb_s: float) -> None:
    """Limit reads and writes, each to so much. Raises HostError; a cgroup that is gone needs no limit."""
    most = f"{max(1, round(mb_s * MB / 1000))}222"
    _write(sysfs, group, f"{number} rbps={most} wbps={most} riops=max wiops=max")


def repeat(sysfs: Sysfs, group: str, number: str) -> None:
    """Write a share's limit as it is; why: `sharer.allowed`. One of somebody else stays. Raises HostError."""
    limits = limits_of(sysfs, group).get(number)
    if is_share(limits):
        _write(sysfs, group, f"{number} {limits}")


def lift(sysfs: Sysfs, group: str, number: str) -> bool:
    """Whether the cgroup had a share's limit, or a part of one. One of somebody else stays. Raises HostError."""
    limits = limits_of(sysfs, group).get(number, "")
    text = FREE if is_share(limits) else freed_kinds(limits, PART)
    if text:
        _write(sysfs, group, f"{number} {text}")
    return bool(text)


def freed_kinds(limits: str, part: re.Pattern[str]) -> str:
    """What lifts the kinds that `part` finds in a line of `io.max`, and no other; empty: there are none."""
    return " ".join(f"{kind}=max" for found in part.finditer(limits) for kind in found.groups() if kind)


def _write(sysfs: Sysfs, group: str, limit: str) -> None:
    try:
        sysfs.write(f"{CGROUPS}/{group}/io.max", limit)
    except HostError:
        if sysfs.exists(f"{CGROUPS}/{group}"):
            raise


def record(sysfs: Sysfs, plan: SharePlan, number: str, groups: Collection[str]) -> None:
    """Replace the record by one of this process. Raises HostError if it cannot be written: then set no limit."""
    path = sysfs.path(DIRECTORY) / f"{sysfs.owner}{SUFFIX}"
    target = "" if plan.least_target_s is None else f" {plan.least_target_s}"
    process = f"{os.getpid()} {_started(sysfs, os.getpid())}{target}"
    lines = (str(plan.capacity_mb_s), process, number, *sorted(groups))
    try:
        whole_file.replace(path, "".join(f"{line}\n" for line in lines).encode())
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; the device is not shared"
        raise HostError(text, code="limit.claim") from error


def recorded(sysfs: Sysfs) -> Record | None:
    """The record; None: shares are not in force, or nobody can tell from it what is."""
    lines = sysfs.read_or(f"{DIRECTORY}/{sysfs.owner}{SUFFIX}", "").splitlines()
    try:
        capacity, process, number, *groups = lines
        process_id, started, *target = process.split(" ")
        target_s = float(target[0]) if target else None
        return Record(float(capacity), number, tuple(groups), (int(process_id), started), target_s)
    except ValueError:
        return None


def in_force(sysfs: Sysfs) -> Record | None:
    """The record, with no capacity where the process that shared it has died and limits may be left; None: none."""
    found = recorded(sysfs)
    if found is None:
        return None
    process, started = found.process
    is_alive = started and _started(sysfs, process) == started
    return found if is_alive else replace(found, capacity_mb_s=0.0, target_s=None)


def is_shared_here(sysfs: Sysfs) -> bool:
    """Whether the record is one of this process."""
    found = recorded(sysfs)
    return found is not None and found.process[0] == os.getpid()


def _started(sysfs: Sysfs, process: int) -> str:
    """When the process started, in ticks since the boot (field 22 of proc(5)'s stat); empty: there is none."""
    # The second field, the name, may have spaces and brackets.
    fields = sysfs.read_or(f"proc/{process}/stat", "").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else ""


@contextmanager
def alone(sysfs: Sysfs) -> Iterator[None]:
    """Inside, nobody else writes or takes back limits of this device. Raises HostError if somebody does for LOCK_S."""
    with _locked(sysfs) as is_alone:
        if not is_alone:
            raise HostError("another process takes limits of shares back; the device is not shared", code="limit.busy")
        yield


@contextmanager
def _locked(sysfs: Sysfs) -> Iterator[bool]:
    """Yields whether the lock was free in time."""
    path = sysfs.path(DIRECTORY) / f"{sysfs.owner}{SUFFIX}.lock"
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise HostError(
            f"cannot write {path}: {error.strerror}; the device is not shared", code="limit.claim"
        ) from error
    try:
        yield wait_for(lambda: try_lock(lock), LOCK_S)
    finally:
        os.close(lock)


def release_shares(sysfs: Sysfs) -> tuple[str, ...]:
    """Lift the limits of the recorded cgroups, and remove the record; returns those that had one. May be repeated.

    Raises HostError after trying all; the record stays then.
    """
    if recorded(sysfs) is None:
        return ()
    with _locked(sysfs) as is_alone:
        found = recorded(sysfs)
        if found is None:
            return ()
        lifted = _lifted(sysfs, found)
        if not is_alone:
            raise HostError("applications may still be limited: another process writes limits", code="limit.busy")
        path = sysfs.path(DIRECTORY) / f"{sysfs.owner}{SUFFIX}"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise HostError(f"cannot remove {path}: {error.strerror}", code="limit.claim") from error
        return lifted


def _lifted(sysfs: Sysfs, found: Record) -> tuple[str, ...]:
    """The recorded cgroups that had a limit, which is lifted. Raises HostError after trying all."""
    lifted, failed = [], []
    for group in found.groups:
        try:
            if lift(sysfs, group, found.number):
                lifted.append(group)
        except HostError as error:
            failed.append(str(error))
    if failed:
        raise HostError(f"applications may still be limited: {failed[0]}")
    return tuple(lifted)
