"""Why a disk is not touched: each prepares the tree and names the error and the words that say so."""

from __future__ import annotations

from elastio.errors import DeviceBusyError, HostError, NotOursError
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, SERIAL, SET_UUID, Kernel, Tree, superblock_bytes

Refusal = tuple[type[HostError], str]


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
    return NotOursError, f"vdc has {2 * CACHE_BYTES} bytes"


def another_size_registered(tree: Tree) -> Refusal:
    tree.cache_disk(size_bytes=2 * CACHE_BYTES)
    tree.registered()
    return NotOursError, f"vdc has {2 * CACHE_BYTES} bytes"


def no_disk(tree: Tree) -> Refusal:
    return HostError, f"no disk shows the serial {SERIAL}"


def two_disks(tree: Tree) -> Refusal:
    tree.cache_disk("vdc")
    tree.cache_disk("vdd")
    return NotOursError, "several disks show the serial"


def foreign_signature(tree: Tree) -> Refusal:
    tree.cache_disk(content=b"XFSB")
    tree.programs.foreign = "xfs"
    return NotOursError, "vdc carries xfs"


def mounted(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.lay("proc/self/mountinfo", "29 22 254:32 / /mnt rw - ext4 /dev/vdc rw")
    return DeviceBusyError, "vdc is mounted"


def held(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.tie("sys/block/vdc/holders/md127", "sys/block/md127")
    return DeviceBusyError, "vdc is used by md127"


def open_elsewhere(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.kernel.path("dev/vdc").unlink()
    return DeviceBusyError, "dev/vdc is in use"


def serves_already(tree: Tree) -> Refusal:
    tree.attached("dirty")
    return DeviceBusyError, "vdc serves as a cache already"


def waited_for(tree: Tree) -> Refusal:
    """The disk came back unregistered, and the backing device has its dirty data on it."""
    tree.cache_disk(content=superblock_bytes(3))
    tree.cache_missing("dirty")
    return NotOursError, "vdb is dirty and disk vdc may be its cache"


def waited_for_while_clean(tree: Tree) -> Refusal:
    """After a crash `clean` on the backing disk may lag behind."""
    tree.cache_disk(content=superblock_bytes(3))
    tree.cache_missing("clean")
    return NotOursError, "vdb is clean and disk vdc may be its cache"


def waited_for_and_registered(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.registered()
    tree.cache_missing("dirty")
    return NotOursError, "vdb is dirty and disk vdc may be its cache"


def a_backing_device(tree: Tree) -> Refusal:
    tree.cache_disk(content=superblock_bytes(1))
    return NotOursError, "vdc is itself a backing device"


def still_attached(tree: Tree) -> Refusal:
    tree.attached("clean", mode="none")
    return DeviceBusyError, f"cache set {SET_UUID} still serves 1 backing device"


def still_detaching(tree: Tree) -> Refusal:
    tree.detaching()
    return DeviceBusyError, f"cache set {SET_UUID} still serves 1 backing device"


def another_set(tree: Tree) -> Refusal:
    tree.cache_disk()
    tree.registered(cache_set=OTHER_SET)
    return NotOursError, f"vdc carries cache set {OTHER_SET}, not {SET_UUID}"


def another_set_unregistered(tree: Tree) -> Refusal:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    return NotOursError, f"vdc carries cache set {OTHER_SET}, not {SET_UUID}"
