"""Rules of adopted volumes: nobody may mount one alone while it has a cache."""

from __future__ import annotations

from .beyond import by_test
from .mutant import Mutant, Patch

PLANNER, TOMBSTONE = "elastio/core/planner.py", "elastio/core/release.py"
INVARIANTS, HOST = "elastio/core/invariants.py", "simulator/elastio_sim/host.py"
FIRST = "adopted/"
UNWRITTEN = Patch(TOMBSTONE, "if backing.has_tombstone is not False:", "if True:")
INSTALLED = Patch(INVARIANTS, "if backing.has_tombstone is False:", "if False:")
TABLE, ADOPT = "elastio/host/partition_table.py", "cli/elastio_setup/adopt.py"
STONE, PIECE = "elastio/host/tombstone.py", "tests/unit/elastio/host/test_saved_piece.py"
CONTENTS = "cli/elastio_setup/adopt_contents.py"
BOOSTED = "tests/unit/elastio/host/test_bcache_adopted.py::"
BLOCKS = "the simulator's tombstone has no sectors"
AGAIN, MADE = "cli/elastio_setup/adopted_again.py", "cli/elastio_setup/head_volume.py"
LATE, BEHIND = "cli/elastio_setup/at_boot.py", "cli/elastio_setup/head_behind.py"
SYNCED = "os.pwrite(descriptor, table, 0)\n        os.fsync(descriptor)"
# Of setup, which the simulator does not have.
SETUP, WHY = "tests/unit/elastio_setup/", "an operator's command"
TAKEN = Patch(HOST, "if self._kernel.has_tombstone is False:", "if False:")

ADOPTED = (
    Mutant("no tombstone", "no cache without a tombstone", (UNWRITTEN,), first=FIRST),
    Mutant("no tombstone, and nobody asks", "the same", (UNWRITTEN, INSTALLED, TAKEN), first=FIRST),
    Mutant(
        "a cache before its tombstone",
        "the tombstone comes first",
        (Patch(PLANNER, "if stone.waiting_for:", "if False:"),),
        first=FIRST,
    ),
    Mutant(
        "a tombstone stays",
        "without a cache the volume is a plain filesystem",
        (Patch(TOMBSTONE, "if backing is None or not backing.may_lose_tombstone", "if True or backing is None"),),
        first=FIRST,
    ),
    by_test(
        "the superblock goes before the table",
        "what is released can be used after a power cut",
        Patch(TABLE, SYNCED, "os.pwrite(descriptor, table, 0)"),
        f"{SETUP}test_release_created.py::test_the_superblock_goes_only_when_the_table_is_on_the_disk",
        WHY,
    ),
    by_test(
        "a superblock that names a cache goes",
        "nothing is released that a cache may be needed for",
        Patch(TABLE, "if not superblock.is_without_cache(", "if not bool("),
        f"{SETUP}test_release_created.py::test_a_cache_that_was_attached_just_before_the_stop_is_found_on_the_disk",
        WHY,
    ),
    by_test(
        "a head that names a cache goes",
        "nothing is released that a cache may be needed for",
        Patch(ADOPT, "composed.require_names_none(self.sysfs, record.head, head_device)  # nobody", "pass  # nobody"),
        f"{SETUP}test_lost.py::test_a_cache_that_was_attached_just_before_the_stop_is_found_on_the_head",
        WHY,
    ),
    by_test(
        "a head is erased beside a copy",
        "the first block of a volume that is not there is kept",
        Patch(
            ADOPT,
            "volume = self._volume(record) if",
            "volume = [*with_uuid(self.sysfs, record.uuid, self.run), None][0] if",
        ),
        f"{SETUP}test_lost.py::test_a_head_that_may_have_the_first_block_of_another_volume_is_not_erased",
        WHY,
    ),
    by_test(
        "an older copy gets a record",
        "a volume that may be older than its cache is not composed",
        Patch(AGAIN, "has_tombstone=pair.has_tombstone())", "has_tombstone=True)"),
        f"{SETUP}test_lost.py::test_a_record_is_not_written_for_what_cannot_be_composed",
        WHY,
    ),
    by_test(
        "a reverted volume is composed",
        "the same",
        Patch(ADOPT, "if not has_tombstone and not", "if False and not"),
        f"{SETUP}test_lost.py::test_a_volume_that_was_reverted_in_place_is_not_composed_with_its_cache",
        WHY,
    ),
    by_test(
        "what lies on the head's logical volume goes with it",
        "only the head's own logical volume is removed",
        Patch(MADE, "if not is_free:", "if False:"),
        f"{SETUP}test_head_volume.py::test_with_something_else_on_it_it_is_kept_and_nothing_changes",
        WHY,
    ),
    by_test(
        "a clone's logical volume goes",
        "only that in the recorded group is removed",
        Patch(MADE, "if one.group_uuid == group_uuid and ", "if "),
        f"{SETUP}test_head_volume.py::test_the_one_in_a_clone_of_the_group_is_kept",
        WHY,
    ),
    by_test(
        "a pending adoption hides a mounted volume",
        "systemd unmounts what udev hides",
        Patch(LATE, "_defer(sysfs, uuid)\n        records.write", "records.write"),
        f"{SETUP}test_at_boot.py::test_a_volume_in_use_is_adopted_at_the_next_boot_before_it_is_mounted",
        WHY,
    ),
    by_test(
        "a pending adoption is begun at each boot",
        "what ends it might end every boot",
        Patch(LATE, "pending is None or pending.is_begun", "pending is None"),
        f"{SETUP}test_at_boot.py::test_ended_before_any_change_it_is_adopted_or_mounted_as_before",
        WHY,
    ),
    by_test(
        "the superblock of a head goes at once",
        "what is left of a head after a power cut is told by its superblock",
        Patch("elastio/host/heads.py", "[(0, at), (end", "[(0, end), (end"),
        "tests/unit/elastio/host/test_heads.py::test_the_superblock_goes_when_all_else_is_zeros_on_the_disk",
        WHY,
    ),
    by_test(
        "a grown filesystem is composed",
        "what the filesystem has is the filesystem's",
        Patch(BEHIND, "return end > head.begin or not", "return not"),
        f"{SETUP}test_head_behind.py::test_where_it_has_grown_over_the_head_it_is_not_composed_and_nothing_is_erased",
        WHY,
    ),
    by_test(
        "a filesystem that has grown by its journal is composed",
        "the same",
        Patch(BEHIND, "return end > head.begin or not _are_zeros(node, heads.gaps(head))", "return end > head.begin"),
        f"{SETUP}test_head_behind.py::test_where_it_has_grown_over_the_head_it_is_not_composed_and_nothing_is_erased",
        WHY,
    ),
    by_test(
        "the head of a grown filesystem is erased",
        "the same",
        Patch(ADOPT, "if not head_behind.is_taken(self.sysfs, head_device, record.head):", "if True:"),
        f"{SETUP}test_head_behind.py::test_where_it_has_grown_over_the_head_it_is_not_composed_and_nothing_is_erased",
        WHY,
    ),
    by_test(
        "a head lies on a realtime section",
        "the same",
        Patch(BEHIND, " and not any(block[16:24])", ""),
        f"{SETUP}test_head_place.py::test_what_says_its_size_says_it_in_its_superblock",
        WHY,
    ),
    by_test(
        "a device ends with the superblock of a RAID",
        "a composed device is recognized as its filesystem",
        Patch(BEHIND, '(shown.get("TYPE"), shown.get("UUID")) != (volume.filesystem, volume.uuid)', "not shown"),
        f"{SETUP}test_head_place.py::test_what_would_be_recognized_as_something_else_where_the_device_ends_is_refused",
        WHY,
    ),
    by_test(
        "a volume that waits for its cache is refused for a byte behind it",
        "what is in a cache can be reached",
        Patch(BEHIND, " is None and is_taken(sysfs, device, head)", " is None or is_taken(sysfs, device, head)"),
        f"{SETUP}test_head_behind.py::test_with_its_tombstone_it_cannot_have_grown_and_is_composed",
        WHY,
    ),
    by_test(
        "a tombstone is shown before it is complete",
        "nothing is recognized on a volume with a tombstone",
        Patch(STONE, "        self.write()\n        return True", "        return True"),
        PIECE,
        BLOCKS,
    ),
    by_test(
        "a tombstone over the first block alone",
        "the second header of LUKS2 and the superblock of btrfs go",
        Patch(STONE, "            for at in self._rest:\n", "            for at in self._rest[:7]:\n"),
        PIECE,
        BLOCKS,
    ),
    by_test(
        "the first sector comes back before the rest",
        "the first sector alone decides",
        Patch(STONE, "in (block[:SECTOR], bytes(saved[:SECTOR])):", "in (bytes(saved[:SECTOR]),):"),
        PIECE,
        BLOCKS,
    ),
    by_test(
        "the second header of LUKS2 stays",
        "nothing is recognized on a volume with a tombstone",
        Patch(CONTENTS, "(max(found, default=0) + BLOCK_BYTES)", "BLOCK_BYTES"),
        f"{SETUP}test_adopt_luks.py::test_nobody_recognizes_it_while_it_has_its_tombstone",
        WHY,
    ),
    by_test(
        "a tombstone that does not cover what came later",
        "the same",
        Patch("elastio/host/recompose.py", "pair.require_covered()", "pass"),
        f"{SETUP}test_tombstone.py::test_what_is_recognized_behind_the_saved_piece_gets_no_cache",
        WHY,
    ),
    by_test(
        "what libblkid would still recognize",
        "the same",
        Patch(
            "elastio/host/tombstone.py",
            'if found := recognized(self.volume.descriptor, "the adopted volume"):',
            'if found := "":',
        ),
        f"{SETUP}test_recognized.py::test_behind_a_tombstone_that_is_there_it_gets_no_cache",
        BLOCKS,
    ),
    by_test(
        "a tombstone that stays keeps its number",
        "a volume that was reverted is told",
        Patch(STONE, "label.sequence + RENEWED)\n", "label.sequence)\n"),
        f"{BOOSTED}test_each_cache_gets_a_number_by_which_a_reverted_volume_of_any_boost_before_is_told",
        BLOCKS,
    ),
    by_test(
        "after a renewal the number before will do",
        "the same",
        Patch(STONE, "        self._end_renewal(head)\n\n    def remove", "\n    def remove"),
        f"{BOOSTED}test_each_cache_gets_a_number_by_which_a_reverted_volume_of_any_boost_before_is_told",
        BLOCKS,
    ),
    by_test(
        "a tombstone that cannot be read is none",
        "no head is erased that may have the first sectors",
        Patch(STONE, "if error.code != TOO_SHORT:", "if False:"),
        f"{SETUP}test_release_adopted.py::test_a_read_that_fails_once_while_it_is_released_loses_no_first_sectors",
        WHY,
    ),
    by_test(
        "what is behind a tombstone hides it",
        "a volume whose cache is needed is composed, and nothing else made of it",
        Patch("cli/elastio_setup/adopted_volume.py", "if stone is not None:", "if stone and not volume.uuid:"),
        f"{SETUP}test_tombstone.py::test_a_tombstone_says_whose_the_volume_is_whatever_libblkid_finds_behind_it",
        WHY,
    ),
    by_test(
        "an overwritten tombstone counts as removed",
        "the saved piece is given up only for a volume that has it back",
        Patch("elastio/host/recompose.py", "require_not_overwritten(sysfs, device, pair.has_tombstone)", "pass"),
        f"{SETUP}test_tombstone.py::test_a_tombstone_that_somebody_has_overwritten_gives_up_no_saved_piece",
        WHY,
    ),
    by_test(
        "zeros below a mounted filesystem",
        "nothing is written to a volume that somebody else uses",
        Patch(ADOPT, "        composed.require_unused(self.sysfs, record.head, device)\n", ""),
        f"{SETUP}test_tombstone_interrupted.py::test_what_is_left_beside_it_goes_only_while_nobody_uses_the_volume",
        WHY,
    ),
    by_test(
        "composed beside an open LUKS",
        "nobody else writes to a volume that is composed",
        Patch(
            "elastio/host/composed.py",
            "found = in_use(sysfs, volume) if find(sysfs, head) is None else ()",
            "found = ()",
        ),
        f"{SETUP}test_adopt_beside_others.py::test_luks_that_was_opened_meanwhile_is_not_composed",
        WHY,
    ),
    by_test(
        "composed beside what was opened just before",
        "the same",
        Patch("elastio/host/composed.py", "        _require_alone(sysfs, head, volume, run)\n", ""),
        f"{SETUP}test_adopt_beside_others.py::test_what_was_opened_just_before_the_claim_is_not_composed_beside_it",
        WHY,
    ),
    by_test(
        "the superblock of btrfs stays",
        "the same",
        Patch(CONTENTS, "return (BTRFS_SUPERBLOCK + BLOCK_BYTES) // SECTOR", "return SAVED_SECTORS"),
        f"{SETUP}test_adopt_btrfs.py::test_nobody_recognizes_it_while_it_has_its_tombstone",
        WHY,
    ),
    by_test(
        "LVM sees a physical volume twice",
        "a volume group comes up on its adaptive device alone",
        Patch("elastio/host/heads.py", "return self.volume.filesystem == PHYSICAL_VOLUME", "return False"),
        f"{SETUP}test_adopt_lvm.py::test_nobody_recognizes_it_while_it_is_adopted",
        WHY,
    ),
    by_test(
        "a physical volume that was reverted gets its cache",
        "a volume that may be older than its cache is not composed",
        Patch("elastio/host/recompose.py", "            pair.renew()", "            pass"),
        "tests/unit/elastio/host/test_bcache_adopted.py::"
        "test_each_cache_renews_what_stays_so_that_a_volume_that_was_reverted_is_told",
        BLOCKS,
    ),
    by_test(
        "the label of a physical volume is overwritten on the head",
        "what lies on the head alone is kept",
        Patch(ADOPT, "if label.sequence > 1:", "if False:"),
        f"{SETUP}test_adopt_lvm.py::test_without_its_tombstone_it_is_not_composed_and_the_saved_piece_is_kept",
        WHY,
    ),
)
