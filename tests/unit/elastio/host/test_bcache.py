"""The sequences that put a cache in front and take it away: their order, and that a refusal leaves all untouched."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elastio.errors import DeviceBusyError, HostError, NotOursError
from elastio.host.bcache import BcacheHost, wait_for
from elastio.host.superblock import MAGIC, OFFSET, Role, read
from elastio.units import MIB
from tests.fixtures.sysfs_tree import CACHE_BYTES, OTHER_SET, SERIAL, SET_UUID, Kernel, Tree, superblock_bytes

Refusal = tuple[type[HostError], str]


def leaf_writes(kernel: Kernel) -> list[tuple[str, str]]:
    return [(name.rsplit("/", 1)[1], value) for name, value in kernel.writes]


def superblock_writes(kernel: Kernel) -> list[str]:
    """Writes that make the kernel rewrite the backing superblock."""
    return [name for name, _ in leaf_writes(kernel) if name in ("attach", "detach", "cache_mode", "label")]


def assert_untouched(tree: Tree) -> None:
    assert tree.kernel.writes == []
    assert tree.programs.changing == []


# --- phases ------------------------------------------------------------------------------------------------


def test_phase_2_bypasses_with_none_and_flushes_at_full_speed(tree: Tree, host: BcacheHost) -> None:
    tree.attached("dirty")
    host.enter_phase2()
    assert leaf_writes(tree.kernel) == [
        ("cache_mode", "none"),
        ("writeback_rate_minimum", "1000000000"),
        ("writeback_rate", "1000000000"),
        ("writeback_delay", "0"),
    ]
    view = host.look(()).backing
    assert view is not None
    assert (view.cache_mode, view.flush_full_speed, view.writeback_running) == ("none", True, True)


def test_phase_1_after_phase_2_is_phase_1_again(tree: Tree, host: BcacheHost) -> None:
    tree.attached("dirty")
    host.enter_phase1(flush=False)
    host.enter_phase2()
    host.enter_phase1(flush=True)
    view = host.look(()).backing
    assert view is not None
    assert (view.cache_mode, view.flush_full_speed, view.writeback_running) == ("writeback", False, True)


def test_nothing_ever_writes_writearound(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    host.tune_backing()
    host.attach_cache_set(host.format_cache(SERIAL, CACHE_BYTES), SERIAL, flush=False)
    host.enter_phase2()
    host.enter_phase1(flush=True)
    assert "writearound" not in [value for _, value in tree.kernel.writes]


def test_phase_1_again_writes_nothing(tree: Tree, host: BcacheHost) -> None:
    tree.attached("dirty")
    host.enter_phase1(flush=False)
    tree.kernel.writes.clear()
    host.enter_phase1(flush=False)
    assert tree.kernel.writes == []


@pytest.mark.parametrize("running", [True, False])
def test_flushing_is_switched_alone(tree: Tree, host: BcacheHost, running: bool) -> None:
    tree.attached("dirty")
    tree.knob("writeback_running", int(not running))
    host.set_flush(running=running)
    assert leaf_writes(tree.kernel) == [("writeback_running", str(int(running)))]


PHASES: list[Callable[[BcacheHost], None]] = [
    lambda host: host.enter_phase1(flush=True),
    lambda host: host.enter_phase2(),
    lambda host: host.set_flush(running=True),
]


@pytest.mark.parametrize("change", PHASES)
def test_without_a_cache_there_are_no_phases(tree: Tree, host: BcacheHost, change: Callable[[BcacheHost], None]) -> None:
    with pytest.raises(HostError, match="no cache set is attached to vdb"):
        change(host)
    assert_untouched(tree)


def test_a_device_that_is_not_registered_is_named(tree: Tree) -> None:
    host = BcacheHost(OTHER_SET, tree.kernel, tree.programs)
    with pytest.raises(HostError, match=f"backing device {OTHER_SET} is not registered"):
        host.tune_backing()
    assert_untouched(tree)


# --- format ------------------------------------------------------------------------------------------------


def test_formats_with_the_block_size_of_the_backing_device(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    assert host.format_cache(SERIAL, CACHE_BYTES) == SET_UUID
    node = str(tree.kernel.path("dev/vdc"))
    assert tree.programs.ran[-1] == ["make-bcache", "-C", "-w", "512", "-b", "524288", node]
    assert tree.programs.changing == ["make-bcache"]
    assert tree.kernel.writes == [("sys/fs/bcache/register_quiet", node)]


def test_wipes_what_an_earlier_try_of_ours_left(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk(content=superblock_bytes(3, OTHER_SET))
    assert host.format_cache(SERIAL, CACHE_BYTES) == SET_UUID
    assert tree.programs.changing == ["wipefs", "make-bcache"]


@pytest.mark.parametrize(
    ("size_mib", "bucket_kib"), [(10 * 1024, 512), (1024, 512), (1023, 256), (400, 128), (100, 64), (64, 64)]
)
def test_a_small_cache_has_smaller_buckets(tree: Tree, host: BcacheHost, size_mib: int, bucket_kib: int) -> None:
    tree.cache_disk(size_bytes=size_mib * MIB)
    host.format_cache(SERIAL, size_mib * MIB)
    argv = tree.programs.ran[-1]
    assert argv[argv.index("-b") + 1] == str(bucket_kib * 1024)


def test_formatting_again_keeps_the_set_that_served_nobody(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    host.format_cache(SERIAL, CACHE_BYTES)
    ran, written = len(tree.programs.ran), len(tree.kernel.writes)
    assert host.format_cache(SERIAL, CACHE_BYTES) == SET_UUID
    assert (len(tree.programs.ran), len(tree.kernel.writes)) == (ran, written)


def test_udev_may_have_registered_it_first(tree: Tree, host: BcacheHost) -> None:
    """The kernel then refuses our own registration."""
    tree.cache_disk()

    def make_and_register(argv: list[str]) -> None:
        tree.kernel.register_cache("vdc")
        tree.kernel.refuses.add("register_quiet")

    programs = tree.programs

    def run(argv: list[str], *, timeout_s: float) -> str:
        text = programs(argv, timeout_s=timeout_s)
        if argv[0] == "make-bcache":
            make_and_register(argv)
        return text

    raced = BcacheHost(host.backing_uuid, tree.kernel, run, lambda condition, _: condition())  # type: ignore[arg-type]
    assert raced.format_cache(SERIAL, CACHE_BYTES) == SET_UUID


def test_a_set_that_does_not_appear_is_an_error_with_the_reason(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    tree.kernel.refuses.add("register_quiet")
    with pytest.raises(HostError, match=rf"vdc did not become cache set {SET_UUID} within 10 s. .*Invalid argument"):
        host.format_cache(SERIAL, CACHE_BYTES)


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
    tree.cache_disk()
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


FORMAT_REFUSALS = [
    another_size,
    another_size_registered,
    no_disk,
    two_disks,
    foreign_signature,
    mounted,
    held,
    open_elsewhere,
    serves_already,
    waited_for,
    waited_for_while_clean,
    waited_for_and_registered,
    a_backing_device,
]


@pytest.mark.parametrize("prepare", FORMAT_REFUSALS)
def test_format_refuses_and_touches_nothing(tree: Tree, host: BcacheHost, prepare: Callable[[Tree], Refusal]) -> None:
    error, text = prepare(tree)
    with pytest.raises(error, match=text):
        host.format_cache(SERIAL, CACHE_BYTES)
    assert_untouched(tree)


def test_a_backing_disk_without_superblock_gives_no_block_size(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    tree.kernel.node("vdb")
    with pytest.raises(HostError, match=r"dev/vdb shows no bcache superblock"):
        host.format_cache(SERIAL, CACHE_BYTES)
    assert_untouched(tree)


def test_a_make_bcache_that_names_no_set_is_an_error(tree: Tree, host: BcacheHost) -> None:
    tree.cache_disk()
    mute = BcacheHost(host.backing_uuid, tree.kernel, lambda argv, *, timeout_s: "")
    with pytest.raises(HostError, match="make-bcache did not name the set on vdc"):
        mute.format_cache(SERIAL, CACHE_BYTES)
    assert tree.kernel.writes == []


# --- attach ------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(tree: Tree, host: BcacheHost) -> Tree:
    """The backing device is tuned, the cache formatted: what is there when the attach begins."""
    host.tune_backing()
    tree.cache_disk()
    host.format_cache(SERIAL, CACHE_BYTES)
    tree.kernel.writes.clear()
    return tree


def test_attaching_rewrites_the_backing_superblock_once(ready: Tree, host: BcacheHost) -> None:
    host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert superblock_writes(ready.kernel) == ["attach"]
    view = host.look(()).backing
    assert view is not None
    assert (view.cache_set, view.cache_mode, view.tuned) == (SET_UUID, "writeback", True)
    assert (view.writeback_running, view.flush_full_speed) == (False, False)


def test_every_safety_setting_is_in_force_before_the_attach(ready: Tree, host: BcacheHost) -> None:
    ready.counting()
    host.attach_cache_set(SET_UUID, SERIAL, flush=True)
    names = [name for name, _ in leaf_writes(ready.kernel)]
    before, after = names[: names.index("attach")], names[names.index("attach") + 1 :]
    assert before == [
        "scheduler",
        "nr_requests",
        "max_sectors_kb",
        "congested_read_threshold_us",
        "congested_write_threshold_us",
        "idle_max_writeback_rate",
        "trigger",
    ]
    assert after == []
    assert ready.kernel.shown(f"{ready.directory}/sequential_cutoff") == "0"
    assert ready.kernel.shown(f"{ready.directory}/writeback_delay") == "1"


def test_attach_starts_the_flush_thread_so_it_is_stopped_after(ready: Tree, host: BcacheHost) -> None:
    host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert leaf_writes(ready.kernel)[-2:] == [("attach", SET_UUID), ("writeback_running", "0")]


def test_attaching_again_attaches_nothing(ready: Tree, host: BcacheHost) -> None:
    host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    ready.kernel.writes.clear()
    host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert ready.kernel.writes == []


def test_an_attach_that_the_kernel_swallows_is_an_error(ready: Tree, host: BcacheHost) -> None:
    ready.kernel.deaf.add("attach")
    with pytest.raises(HostError, match=f"cache set {SET_UUID} is not attached to vdb"):
        host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert leaf_writes(ready.kernel)[-1][0] == "attach"


def test_a_disk_of_another_set_is_not_attached(ready: Tree, host: BcacheHost) -> None:
    with pytest.raises(NotOursError, match=f"vdc is not cache set {OTHER_SET}"):
        host.attach_cache_set(OTHER_SET, SERIAL, flush=False)
    assert ready.kernel.writes == []


def test_a_device_that_has_another_cache_is_left_alone(ready: Tree, host: BcacheHost) -> None:
    ready.kernel.tie(f"{ready.directory}/cache", f"sys/fs/bcache/{OTHER_SET}")
    with pytest.raises(NotOursError, match=f"cache set {OTHER_SET} is attached to vdb already"):
        host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert ready.kernel.writes == []


@pytest.mark.parametrize("state", ["clean", "dirty"])
def test_a_device_that_waits_for_its_own_cache_gets_no_other(ready: Tree, host: BcacheHost, state: str) -> None:
    ready.cache_missing(state)
    with pytest.raises(NotOursError, match=f"vdb is {state} and disk vdc may be its cache"):
        host.attach_cache_set(SET_UUID, SERIAL, flush=False)
    assert ready.kernel.writes == []


# --- detach ------------------------------------------------------------------------------------------------


def test_detaches_a_drained_cache(tree: Tree, host: BcacheHost) -> None:
    tree.attached("clean", mode="none")
    host.detach_cache_set(SET_UUID)
    assert leaf_writes(tree.kernel) == [("detach", "1")]


@pytest.mark.parametrize(
    ("state", "mode", "dirty"),
    [
        ("dirty", "none", "711.0M"),
        ("clean", "writeback", "0.0k"),
        ("clean", "writearound", "0.0k"),
        ("clean", "none", "4.0k"),  # `clean` may lag behind after a crash
        ("inconsistent", "none", "0.0k"),
    ],
)
def test_detach_is_refused_until_it_is_drained(tree: Tree, host: BcacheHost, state: str, mode: str, dirty: str) -> None:
    tree.attached(state, mode, dirty)
    with pytest.raises(DeviceBusyError, match=f"vdb is {state} in mode {mode}: it must be drained"):
        host.detach_cache_set(SET_UUID)
    assert_untouched(tree)


def test_detach_leaves_another_set_alone(tree: Tree, host: BcacheHost) -> None:
    tree.attached("clean", mode="none")
    with pytest.raises(NotOursError, match=f"cache set {SET_UUID} is attached, not {OTHER_SET}"):
        host.detach_cache_set(OTHER_SET)
    assert_untouched(tree)


def test_a_detach_under_way_may_be_asked_for_again(tree: Tree, host: BcacheHost) -> None:
    tree.detaching()
    host.detach_cache_set(SET_UUID)
    assert leaf_writes(tree.kernel) == [("detach", "1")]


def test_detaching_what_is_detached_does_nothing(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    host.detach_cache_set(SET_UUID)
    assert_untouched(tree)


@pytest.mark.parametrize("node", ["vdb", "bcache0"])
def test_no_detach_before_the_backing_device_is_durable(tree: Tree, host: BcacheHost, node: str) -> None:
    tree.attached("clean", mode="none")
    tree.kernel.path(f"dev/{node}").unlink()
    with pytest.raises(HostError, match=f"cannot make .*{node} durable"):
        host.detach_cache_set(SET_UUID)
    assert_untouched(tree)


# --- release -----------------------------------------------------------------------------------------------


def test_releases_a_detached_cache_disk(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert tree.kernel.writes == [(f"sys/fs/bcache/{SET_UUID}/unregister", "1")]
    assert tree.programs.changing == ["wipefs"]
    assert read(tree.kernel.path("dev/vdc")) is None
    assert host.look((SERIAL,)).disks[0].superblock is None


def test_releasing_again_wipes_again_and_no_more(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    tree.kernel.writes.clear()
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert tree.kernel.writes == []


def test_a_disk_that_left_needs_no_release(tree: Tree, host: BcacheHost) -> None:
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert_untouched(tree)


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


RELEASE_REFUSALS = [
    another_size,
    another_size_registered,
    two_disks,
    foreign_signature,
    mounted,
    held,
    open_elsewhere,
    still_attached,
    still_detaching,
    another_set,
    another_set_unregistered,
    waited_for,
    waited_for_while_clean,
    waited_for_and_registered,
    a_backing_device,
]


@pytest.mark.parametrize("prepare", RELEASE_REFUSALS)
def test_release_refuses_and_touches_nothing(tree: Tree, host: BcacheHost, prepare: Callable[[Tree], Refusal]) -> None:
    error, text = prepare(tree)
    with pytest.raises(error, match=text):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert_untouched(tree)


@pytest.mark.parametrize("node", ["vdb", "bcache0"])
def test_no_cache_leaves_before_the_backing_device_is_durable(tree: Tree, host: BcacheHost, node: str) -> None:
    tree.attached()
    tree.detached()
    tree.kernel.path(f"dev/{node}").unlink()
    with pytest.raises(HostError, match=f"cannot make .*{node} durable"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert_untouched(tree)


def test_a_set_that_stays_registered_is_not_wiped(tree: Tree, host: BcacheHost) -> None:
    """udev or the kernel may still write to it."""
    tree.attached()
    tree.detached()
    tree.kernel.deaf.add("unregister")
    with pytest.raises(HostError, match=f"cache set {SET_UUID} is still registered after 20 s"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    assert tree.programs.changing == []


def test_a_superblock_that_survives_the_wipe_is_an_error(tree: Tree, host: BcacheHost) -> None:
    tree.attached()
    tree.detached()
    tree.programs.is_wipe_broken = True
    with pytest.raises(HostError, match="the superblock on vdc is still there"):
        host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    written = tree.kernel.path("dev/vdc").read_bytes()
    assert written[OFFSET + 24 : OFFSET + 40] == MAGIC


def test_a_set_whose_name_is_not_known_is_released_by_its_disk(tree: Tree, host: BcacheHost) -> None:
    """A crash between make-bcache and its answer: the disk is ours by serial and size, its set has no name yet."""
    tree.cache_disk()
    tree.registered()
    host.release_cache_disk(SERIAL, CACHE_BYTES, None)
    assert tree.programs.changing == ["wipefs"]


# --- a whole cycle, and waiting ----------------------------------------------------------------------------


def test_a_whole_cycle_leaves_the_device_as_it_was(tree: Tree, host: BcacheHost) -> None:
    host.tune_backing()
    start = host.look(()).backing
    tree.cache_disk()
    host.attach_cache_set(host.format_cache(SERIAL, CACHE_BYTES), SERIAL, flush=True)
    host.enter_phase2()
    host.detach_cache_set(SET_UUID)
    tree.detached()
    host.release_cache_disk(SERIAL, CACHE_BYTES, SET_UUID)
    host.tune_backing()
    end = host.look(()).backing
    assert start is not None
    assert end == start
    assert end.tuned
    found = read(tree.kernel.path("dev/vdb"))
    assert found is not None
    assert found.role is Role.BACKING


def test_waiting_ends_when_it_is_so() -> None:
    answers = iter([False, False, True])
    assert wait_for(lambda: next(answers), 60.0)


def test_waiting_ends_when_time_is_over() -> None:
    assert not wait_for(lambda: False, 0.01)
