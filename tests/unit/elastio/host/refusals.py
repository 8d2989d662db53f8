"""Why a disk is not touched: what is done to the tree, and the class and the code of the error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elastio.errors import DeviceBusyError, HostError, NotOursError
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, Kernel, Tree, superblock_bytes

Step = Callable[[Tree], object]


@dataclass(frozen=True)
class Refusal:
    """What is done to the tree, and the error."""

    error: type[HostError]
    code: str
    steps: tuple[Step, ...]


def refusal(error: type[HostError], code: str, *steps: Step) -> Refusal:
    return Refusal(error, code, steps)


def assert_refused(tree: Tree, prepared: Refusal, change: Callable[[], object]) -> None:
    for step in prepared.steps:
        step(tree)
    with refused(prepared.error, prepared.code):
        change()
    assert_untouched(tree)


def leaf_writes(kernel: Kernel) -> list[tuple[str, str]]:
    """What was written, by the last part of the file's name."""
    return [(name.rsplit("/", 1)[1], value) for name, value in kernel.writes]


def assert_untouched(tree: Tree) -> None:
    assert tree.kernel.writes == []
    assert tree.programs.changing == []
    for name, content in tree.kernel.laid.items():
        node = tree.kernel.path(f"dev/{name}")
        if node.exists():
            with node.open("rb") as file:
                assert file.read(len(content)) == content


def lays(name: str, text: str) -> Step:
    return lambda tree: tree.kernel.lay(name, text)


def ties(name: str, target: str) -> Step:
    return lambda tree: tree.kernel.tie(name, target)


def plugs(content: bytes = b"", size_bytes: int = CACHE_BYTES, name: str = "vdc") -> Step:
    return lambda tree: tree.cache_disk(name, size_bytes=size_bytes, content=content)


def signs(tree: Tree) -> None:
    tree.programs.foreign = "xfs"


def opens_elsewhere(tree: Tree) -> None:
    tree.kernel.path("dev/vdc").unlink()


OURS = superblock_bytes(3)
MOUNTED = lays("proc/self/mountinfo", "29 22 254:32 / /mnt rw - ext4 /dev/vdc rw")
SWAP = "Filename\tType\n/dev/vdc                partition\t1048572\t0\t-2"

# Neither a format nor a release touches these.
ALWAYS = {
    "another size": refusal(NotOursError, "disk.size", plugs(size_bytes=2 * CACHE_BYTES)),
    "another size, registered": refusal(NotOursError, "disk.size", plugs(size_bytes=2 * CACHE_BYTES), Tree.registered),
    "two disks": refusal(NotOursError, "serial.ambiguous", plugs(), plugs(name="vdd")),
    "a foreign signature": refusal(NotOursError, "disk.signature", plugs(b"XFSB"), signs),
    "mounted": refusal(DeviceBusyError, "disk.mounted", plugs(), MOUNTED),
    "a swap area": refusal(DeviceBusyError, "disk.mounted", plugs(), lays("proc/swaps", SWAP)),
    "held": refusal(DeviceBusyError, "disk.held", plugs(), ties("sys/block/vdc/holders/md127", "sys/block/md127")),
    "partitioned": refusal(
        DeviceBusyError, "disk.held", plugs(), ties("sys/block/vdc/vdc1/holders/md0", "sys/block/md0")
    ),
    "open elsewhere": refusal(DeviceBusyError, "disk.open", plugs(), opens_elsewhere),
    # The disk came back unregistered, and the backing device has its dirty data on it.
    "waited for": refusal(NotOursError, "backing.waits", plugs(OURS), Tree.cache_missing),
    # After a crash `clean` on the backing disk may lag behind.
    "waited for while clean": refusal(
        NotOursError, "backing.waits", plugs(OURS), lambda tree: tree.cache_missing("clean")
    ),
    "waited for and registered": refusal(NotOursError, "backing.waits", plugs(), Tree.registered, Tree.cache_missing),
    "a backing device": refusal(NotOursError, "disk.backing", plugs(superblock_bytes(1))),
}
FORMAT = ALWAYS | {
    "no disk": refusal(HostError, "disk.missing"),
    "the cache of another backing device": refusal(
        DeviceBusyError,
        "disk.serves",
        plugs(),
        Tree.registered,
        ties("sys/block/vdc/holders/bcache1", "sys/block/bcache1"),
    ),
    "a foreign signature beside ours": refusal(NotOursError, "disk.signature", plugs(OURS), signs),
    "no superblock on the backing disk": refusal(
        HostError, "backing.superblock", plugs(), lambda tree: tree.kernel.node("vdb")
    ),
}
RELEASE = ALWAYS | {
    "still attached": refusal(DeviceBusyError, "set.attached", lambda tree: tree.attached("clean", mode="none")),
    "still detaching": refusal(DeviceBusyError, "set.attached", Tree.detaching),
    "another set": refusal(NotOursError, "disk.other_set", plugs(), lambda tree: tree.registered(cache_set=OTHER_SET)),
    "another set, unregistered": refusal(NotOursError, "disk.other_set", plugs(superblock_bytes(3, OTHER_SET))),
}
