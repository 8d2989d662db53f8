"""Why a disk is not touched. Each prepares the tree, and returns the class and the code of the error."""

from __future__ import annotations

from collections.abc import Callable

from elastio.errors import DeviceBusyError, HostError, NotOursError
from tests.fixtures.errors import refused
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, Kernel, Tree, superblock_bytes

Refusal = tuple[type[HostError], str]


def assert_refused(tree: Tree, prepare: Callable[[Tree], Refusal], change: Callable[[], object]) -> None:
    error, code = prepare(tree)
    with refused(error, code):
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


def another_size(tree: Tree) -> Refusal:
    tree.cache_disk(size_bytes=2 * CACHE_BYTES)
    return NotOursError, "disk.size"


def another_size_registered(tree: Tree) -> Refusal:
    tree.cache_disk(size_bytes=2 * CACHE_BYTES)
    tree.registered()
    return NotOursError, "disk.size"


def no_disk(tree: Tree) -> Refusal:
    return HostError, "disk.missing"


def two_disks(tree: Tree) -> Refusal:
    tree.cache_disk("vdc")
    tree.cache_disk("vdd")
    return NotOursError, "serial.ambiguous"


def foreign_signature(tree: Tree) -> Refusal:
    tree.cache_disk(content=b"XFSB")
    tree.programs.foreign = "xfs"
    return NotOursError, "disk.signature"


def mounted(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.lay("proc/self/mountinfo", "29 22 254:32 / /mnt rw - ext4 /dev/vdc rw")
    return DeviceBusyError, "disk.mounted"


def held(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.tie("sys/block/vdc/holders/md127", "sys/block/md127")
    return DeviceBusyError, "disk.held"


def partitioned(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.tie("sys/block/vdc/vdc1/holders/md0", "sys/block/md0")
    return DeviceBusyError, "disk.held"


def a_swap_area(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.lay("proc/swaps", "Filename\tType\n/dev/vdc                partition\t1048572\t0\t-2")
    return DeviceBusyError, "disk.mounted"


def open_elsewhere(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.path("dev/vdc").unlink()
    return DeviceBusyError, "disk.open"


def serves_already(tree: Tree) -> Refusal:
    """As the cache of another backing device."""
    tree.cache_disk()
    tree.registered()
    tree.kernel.tie("sys/block/vdc/holders/bcache1", "sys/block/bcache1")
    return DeviceBusyError, "disk.serves"


def waited_for(tree: Tree) -> Refusal:
    """The disk came back unregistered, and the backing device has its dirty data on it."""
    tree.cache_disk(content=superblock_bytes(3))
    tree.cache_missing("dirty")
    return NotOursError, "backing.waits"


def waited_for_while_clean(tree: Tree) -> Refusal:
    """After a crash `clean` on the backing disk may lag behind."""
    tree.cache_disk(content=superblock_bytes(3))
    tree.cache_missing("clean")
    return NotOursError, "backing.waits"


def waited_for_and_registered(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.registered()
    tree.cache_missing("dirty")
    return NotOursError, "backing.waits"


def a_backing_device(tree: Tree) -> Refusal:
    tree.cache_disk(content=superblock_bytes(1))
    return NotOursError, "disk.backing"


def still_attached(tree: Tree) -> Refusal:
    tree.attached("clean", mode="none")
    return DeviceBusyError, "set.attached"


def still_detaching(tree: Tree) -> Refusal:
    tree.detaching()
    return DeviceBusyError, "set.attached"


def another_set(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.registered(cache_set=OTHER_SET)
    return NotOursError, "disk.other_set"


def another_set_unregistered(tree: Tree) -> Refusal:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    return NotOursError, "disk.other_set"


# Neither a format nor a release touches these.
ALWAYS = (
    another_size,
    another_size_registered,
    two_disks,
    foreign_signature,
    mounted,
    a_swap_area,
    held,
    partitioned,
    open_elsewhere,
    waited_for,
    waited_for_while_clean,
    waited_for_and_registered,
    a_backing_device,
)
FORMAT = (*ALWAYS, no_disk, serves_already)
RELEASE = (*ALWAYS, still_attached, still_detaching, another_set, another_set_unregistered)
