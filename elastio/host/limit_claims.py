"""Whose limits on applications are whose: which devices the agent of each adaptive device limits.

One file for each agent, below /run: `NAME.limits`, with the numbers (`major:minor`) of its adaptive device and of those
above it, one a line. It is written before the first limit, and stays: a limit that its agent left behind is removed by
the next run of that agent, or by `elastio free` for its device, and not by the agents of others.

The kernel gives the number of a device that is gone to another one, perhaps that of another agent. So the number is
followed by the device's sequence number, which is never given again in one boot (`diskseq`, since Linux 5.15), and a
claim to a device that is gone counts for nobody.
"""

from __future__ import annotations

from collections.abc import Collection

from elastio import whole_file
from elastio.errors import HostError
from elastio.host.sysfs import Sysfs

DIRECTORY = "run/elastio"
SUFFIX = ".limits"


def claim(sysfs: Sysfs, numbers: Collection[str]) -> None:
    """Claim these devices, and no others. Raises HostError if the file cannot be written: then set no limit."""
    folder = sysfs.path(DIRECTORY)
    if not sysfs.owner or not folder.is_dir():
        return
    path = folder / f"{sysfs.owner}{SUFFIX}"
    text = "".join(f"{number} {_sequence(sysfs, number)}".rstrip() + "\n" for number in sorted(numbers))
    if _numbers(sysfs, path.name) == set(numbers):
        return
    try:
        whole_file.replace(path, text.encode())
    except OSError as error:
        text = f"cannot write {path}: {error.strerror}; no application was held back"
        raise HostError(text, code="limit.claim") from error


def claimed_by_others(sysfs: Sysfs) -> frozenset[str]:
    """The devices that agents of other adaptive devices limit, and this one does not."""
    names = [name for name in sysfs.names(DIRECTORY) if name.endswith(SUFFIX)]
    own = f"{sysfs.owner}{SUFFIX}" if sysfs.owner else ""
    found = {number for name in names if name != own for number in _numbers(sysfs, name)}
    return frozenset(found - (_numbers(sysfs, own) if own else set()))


def _numbers(sysfs: Sysfs, name: str) -> set[str]:
    """The devices that the file claims and that are still those."""
    lines = (line.split() for line in sysfs.read_or(f"{DIRECTORY}/{name}", "").splitlines())
    return {words[0] for words in lines if words and words[1:] in ([], [_sequence(sysfs, words[0])])}


def _sequence(sysfs: Sysfs, number: str) -> str:
    return sysfs.read_or(f"sys/dev/block/{number}/diskseq", "")
