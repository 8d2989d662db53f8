"""Rules of what the simulator does not have: real kernels and clouds, a second machine, files.

Neither a schedule nor a crash case can break them; each names the test that notices, and why.
"""

from __future__ import annotations

from .mutant import Mutant, Patch

FOREIGN_LEFT_ALONE = "tests/contract/test_provider_contract.py::test_foreign_volume_is_left_alone"
ONE_MACHINE = "no schedule has two machines at once"
NO_FILES = "journal and ledger of the simulator are not files that a power cut may take"
DAEMON = "tests/unit/elastio/agent/test_daemon.py"
SHARER = "tests/unit/elastio/host/test_sharer.py"
HELD = "tests/unit/elastio/core/test_held_writes.py"
LATER = "nothing is lost by it: the attach is refused, and tried again"
OTHER_CLOUD = "the simulator has a cloud of its own"


def by_test(name: str, breaks: str, patch: Patch, test: str, why: str) -> Mutant:
    return Mutant(name, breaks, (patch,), test, why)


def on_the_host(name: str, breaks: str, old: str, new: str, test: str, file: str = "elastio/host/bcache.py") -> Mutant:
    patch = Patch(file, old, new)
    return by_test(name, breaks, patch, f"tests/unit/elastio/host/{test}", "the simulator has a kernel of its own")


BEYOND = (
    by_test(
        "a refused detach is believed",
        "only a detach that the kernel was asked for explains a device without a cache",
        Patch("elastio/core/cycle.py", "and outcome.code in NOT_DETACHED", "and False"),
        "tests/scenario/test_detach.py",
        "somebody has to change the cache mode between a decision and its effect, and then swap the disk",
    ),
    by_test(
        "only dirty is kept",
        "what is not clean is kept",
        Patch(
            "elastio/core/state.py",
            "return volume.tag is not VolumeTag.CLEAN or",
            "return volume.tag is VolumeTag.DIRTY or",
        ),
        "tests/unit/elastio/core/test_machine.py::test_what_nobody_remembers_is_released_only_where_it_is_tagged_clean",
        "no volume of the simulated cloud has another tag than clean or dirty",
    ),
    by_test(
        "the janitor takes what is not clean",
        "nobody deletes what may hold data",
        Patch("elastio/janitor.py", "if volume.tag is not VolumeTag.CLEAN:", "if volume.tag is VolumeTag.DIRTY:"),
        "tests/unit/elastio/test_janitor.py",
        "there is no janitor in the simulator",
    ),
    by_test(
        "owner not compared (simulator)",
        "a volume of another machine is left alone",
        Patch(
            "simulator/elastio_sim/provider.py",
            "if volume.owner != self.account.instance_id:\n            raise Not",
            "if False:\n            raise Not",
        ),
        f"{FOREIGN_LEFT_ALONE}[sim_cloud-delete]",
        ONE_MACHINE,
    ),
    by_test(
        "owner not compared (AWS)",
        "the same",
        Patch("providers/elastio_aws/provider.py", "        if owner == arn:", "        if owner != 0:"),
        f"{FOREIGN_LEFT_ALONE}[ec2_cloud-delete]",
        OTHER_CLOUD,
    ),
    by_test(
        "owner not compared (OpenStack)",
        "the same",
        Patch(
            "providers/elastio_openstack/provider.py",
            "labels.get(volumes.OWNER_KEY) == self.who().server_id",
            "labels.get(volumes.OWNER_KEY) != 0",
        ),
        f"{FOREIGN_LEFT_ALONE}[openstack_cloud-delete]",
        OTHER_CLOUD,
    ),
    by_test(
        "machine not compared",
        "a journal of another machine is not believed",
        Patch("elastio/agent/memory.py", "if not _is_same(written.machine, owner.machine):", "if False:"),
        "tests/unit/elastio/agent/test_memory.py::test_a_journal_of_another_machine_is_not_believed",
        ONE_MACHINE,
    ),
    by_test(
        "backing UUID not compared",
        "a cycle of another backing device is not ended",
        Patch("elastio/agent/memory.py", "if not _is_same(written.backing_uuid, owner.backing_uuid):", "if False:"),
        "tests/scenario/test_missing_cache.py"
        "::test_another_device_in_the_configuration_does_not_end_the_cycle_of_the_first",
        "no schedule edits the configuration",
    ),
    by_test(
        "journal without fdatasync",
        "a record is on the disk before it counts",
        Patch("elastio/agent/journal.py", "            if durable:\n                os.fdatasync(self._file)\n", ""),
        "tests/unit/elastio/agent/test_journal.py::test_what_an_effect_waits_for_is_on_the_disk",
        "the simulator keeps its journal in memory",
    ),
    by_test(
        "marker not written",
        "a cache that is out is told before anything is mounted",
        Patch("elastio/agent/mount_guard.py", "if isinstance(action, CreateVolume | InstallCache):", "if False:"),
        "tests/unit/elastio/agent/test_mount_guard.py::test_no_cache_is_attached_without_it",
        "the simulator mounts nothing",
    ),
    on_the_host(
        "bypass without a flush of the disk (host)",
        "the clean copy goes with the first write",
        "lambda: self._is_clean(backing), prepare):",
        "lambda: self._is_clean(backing)):",
        "test_bcache.py::test_no_write_bypasses_before_the_backing_device_is_durable",
    ),
    on_the_host(
        "bypass of what is dirty (host)",
        "requests are held back until nothing is dirty",
        "lambda: self._is_clean(backing), prepare):",
        "lambda: True, prepare):",
        "test_throttle.py::test_no_write_bypasses_what_is_dirty_or_in_flight",
    ),
    on_the_host(
        "detach of what is not drained (host)",
        "a cache is drained before a detach",
        "if state not in (CacheState.CLEAN, CacheState.NO_CACHE) or mode != CacheMode.NONE:",
        "if False:",
        "test_bcache_leave.py::test_detach_is_refused_until_it_is_drained",
    ),
    on_the_host(
        "detach before durable (host)",
        "the backing device is durable before its cache leaves",
        "        self.make_durable(backing)\n        self._detach(backing)",
        "        self._detach(backing)",
        "test_bcache_leave.py::test_no_detach_before_the_backing_device_is_durable",
    ),
    on_the_host(
        "another set is detached (host)",
        "a cache of somebody else is left alone",
        'if attached != cache_set:\n            text = f"cache set {attached} is attached, not',
        'if False:\n            text = f"cache set {attached} is attached, not',
        "test_bcache_leave.py::test_detach_leaves_another_set_alone",
    ),
    on_the_host(
        "the last cache is written to (host)",
        "nothing is written on what the device may wait for",
        "if waits and self._attached(backing) is None:",
        "if False:",
        "test_bcache.py::test_a_device_that_waits_for_its_own_cache_gets_no_other",
    ),
    by_test(
        "another token at each try (AWS)",
        "a purchase has one name",
        Patch(
            "providers/elastio_aws/provider.py", '"ClientToken": token,', '"ClientToken": f"{token}{len(self._ours)}",'
        ),
        "tests/contract/test_provider_contract.py::test_one_token_buys_one_volume[ec2_cloud]",
        OTHER_CLOUD,
    ),
    by_test(
        "born without a tag (AWS)",
        "what has never been a cache may go",
        Patch("providers/elastio_aws/provider.py", "            volumes.STATE_TAG: VolumeTag.CLEAN.value,\n", ""),
        "tests/contract/test_provider_contract.py::test_a_volume_is_born_clean_and_shows_a_later_mark[ec2_cloud]",
        OTHER_CLOUD,
    ),
    by_test(
        "the executor does not look again",
        "a volume leaves only on a look of now",
        Patch("elastio/agent/executor.py", "        if reason:\n", "        if False:\n"),
        "tests/unit/elastio/agent/test_executor.py::test_a_volume_that_is_an_attached_cache_is_kept",
        "what a decision was made on would have to change within the same instant",
    ),
    by_test(
        "sold beyond the cap",
        "no volume is larger than its cap",
        Patch("elastio/strategy/caps.py", "if quote.spec.size_bytes > max_size_bytes:", "if False:"),
        "tests/unit/elastio/agent/test_executor.py::test_what_is_provisioned_may_not_be_larger_than_the_cap",
        "the simulated cloud sells what it is asked for, in small steps",
    ),
    by_test(
        "the owner may still live",
        "a volume is taken over only if its machine is gone for good",
        Patch("elastio/core/foreign.py", "if seen.owner_state is OwnerState.THERE:", "if False:"),
        "tests/unit/elastio/core/test_foreign.py::test_everything_else_is_a_reason",
        ONE_MACHINE,
    ),
    by_test(
        "a start forgets a broken rule",
        "an agent that broke a rule releases nothing before an operator resumes",
        Patch("elastio/core/state.py", "frozenset({FaultKind.RULE_BROKEN})", "frozenset[FaultKind]()"),
        "tests/scenario/test_broken_rule.py::test_a_broken_rule_is_not_forgotten_by_a_start",
        "no decision breaks a rule in the tree as it is",
    ),
    by_test(
        "a volume that no cycle knows is overlooked",
        "no boost begins beside a volume of this device that may hold data",
        Patch("elastio/core/detection.py", " or _unclaimed(state, backing)", ""),
        "tests/scenario/test_unclaimed.py"
        "::test_no_boost_begins_while_a_dirty_volume_of_the_device_is_known_to_no_cycle",
        "somebody has to replace both the backing device and the journal by older copies",
    ),
    by_test(
        "a dead machine's cache is overlooked",
        "no loss is accepted without a name while a volume of this device, whoever owns it, is not clean",
        Patch("elastio/core/missing_cache.py", "    if not there:", "    if True:"),
        "tests/scenario/test_takeover.py"
        "::test_cache_is_not_given_up_by_who_does_not_know_why_the_superblock_says_clean",
        ONE_MACHINE,
    ),
    by_test(
        "taken over without an order",
        "another machine's volume is touched only by an operator's order",
        Patch(
            "elastio/core/invariants.py",
            "if state.take_over is None or state.take_over.volume_id != action.volume_id:",
            "if False:",
        ),
        "tests/unit/elastio/core/test_invariants.py::test_volume_of_another_machine_is_not_touched_otherwise",
        ONE_MACHINE,
    ),
    by_test(
        "another cache set is registered",
        "only the cache set that the superblock names is registered",
        Patch("elastio/core/planner.py", "if None not in (carried, named) and carried != named:", "if False:"),
        "tests/unit/elastio/core/test_takeover.py::test_only_the_set_that_the_superblock_names_is_registered",
        "in the simulator udev registers every disk that appears",
    ),
    by_test(
        "data without a signature is formatted",
        "a volume is read before it is formatted",
        Patch("cli/elastio_setup/format_backing.py", "if at is not None and not is_forced:", "if False:"),
        "tests/unit/elastio_setup/test_format_backing.py",
        "no volume is set up in the simulator",
    ),
    by_test(
        "a second look formats what it was not asked about",
        "what was confirmed for a blank volume holds for a blank one alone",
        Patch("cli/elastio_cli/setup.py", "app.run, is_forced=not work.facts.is_blank)", "app.run, is_forced=True)"),
        "tests/unit/elastio_cli/test_setup.py",
        "no volume is set up in the simulator",
    ),
    by_test(
        "a mount without the number of its device is no mount",
        "the cache does not come back under a mounted filesystem",
        Patch(
            "elastio/host/mounts.py",
            "return any(node_name(sysfs, node) in names for node in mount.nodes)",
            "return False",
        ),
        "tests/unit/elastio_cli/test_stacked_mounts.py",
        "the simulator has no filesystems",
    ),
    by_test(
        "what the kernel does not name is no use",
        "what is unknown counts as used",
        Patch("elastio/host/usage.py", "if error.errno in GONE:", "if True:"),
        "tests/unit/elastio/host/test_usage.py",
        "the simulator has no filesystems",
    ),
    by_test(
        "an invalid configuration allows the removal",
        "the agent is not removed while nobody knows where its state is",
        Patch("cli/elastio_cli/state.py", "if refused or unknown:", "if refused:"),
        "tests/unit/elastio_cli/test_state.py",
        "no package is removed in the simulator",
    ),
    by_test(
        "a statement is not synced",
        "a reservation is durable before anything is bought",
        Patch("elastio/accounting/shared_caps.py", "text.encode(), sync=True)", "text.encode())"),
        "tests/unit/elastio/test_shared_caps.py::test_a_statement_is_durable_under_its_name_before_anything_is_bought",
        NO_FILES,
    ),
    by_test(
        "a rotated journal is not synced",
        "a new journal is durable before it takes the name",
        Patch("elastio/agent/journal.py", "        os.fdatasync(descriptor)\n        older", "        older"),
        "tests/unit/elastio/agent/test_journal.py::"
        "test_a_new_file_is_durable_before_it_takes_the_name_and_the_name_afterwards",
        NO_FILES,
    ),
    by_test(
        "the mount guard is not synced",
        "no cache is attached without a durable guard",
        Patch("elastio/agent/mount_guard.py", "os.fsync(descriptor)", "pass"),
        "tests/unit/elastio/agent/test_mount_guard.py::test_the_guard_and_its_end_are_durable",
        NO_FILES,
    ),
    by_test(
        "the state directory is not locked",
        "two agents do not write one journal",
        Patch(
            "elastio/agent/daemon.py",
            "self._state_lock = lock_state(self.config.agent.state_dir)",
            "self._state_lock = 0",
        ),
        f"{DAEMON}::test_a_second_agent_with_the_same_state_directory_does_not_start",
        ONE_MACHINE,
    ),
    by_test(
        "limits outlast the agent",
        "an agent that ends leaves nobody held back",
        Patch("elastio/agent/daemon.py", "let_requests_pass(self._sysfs)  # nobody", "pass  # nobody"),
        f"{DAEMON}::test_an_agent_that_ends_leaves_nobody_held_back",
        "the simulator steps the loop, not the daemon",
    ),
    by_test(
        "the drill compares memory",
        "a drill reads what is on the device",
        Patch("cli/elastio_cli/drill_file.py", "os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)", "pass"),
        "tests/unit/elastio_cli/test_drill.py::test_the_file_is_read_from_the_device_and_not_from_memory",
        "the simulated device has no filesystem",
    ),
    by_test(
        "the hold for a disk does not end",
        "writes are held back for a disk for moments only",
        Patch(
            "elastio/core/planner.py",
            "window is not None and window[0] <= obs.now <= window[1]",
            "window is not None and window[0] <= obs.now",
        ),
        f"{HELD}::test_writes_are_held_back_around_the_time_when_the_disk_is_expected",
        "a load whose writes are held looks over, which withdraws the boost and so ends the hold",
    ),
    by_test(
        "a late disk finds all that was held back in flight",
        "writes go on at the backing volume's pace where a disk is late",
        Patch("elastio/core/planner.py", "return None if not is_late else", "return None if True else"),
        "tests/scenario/test_drain.py::test_writes_flow_again_at_the_volumes_pace_when_the_disk_is_late",
        LATER,
    ),
    by_test(
        "writes pass between the disk and the attach",
        "what is held back for a tombstone is not in flight at the attach",
        Patch("elastio/core/planner.py", " or boosting.is_being_attached(state, obs):", ":"),
        f"{HELD}::test_what_is_held_back_does_not_pass_between_the_disk_and_the_attach",
        LATER,
    ),
    on_the_host(
        "a limit keeps what comes from above in flight",
        "the topmost devices are limited first",
        "        _let_pass(sysfs, held.left)\n",
        "",
        "test_throttle.py::test_what_the_upper_devices_have_in_flight_passes_those_below",
        "elastio/host/throttle.py",
    ),
    on_the_host(
        "what a limit does not hold is not waited for",
        "dm-crypt's writes are waited for, unless they are shown to count below",
        "counted >= COUNTED * int(",
        "True or bool(",
        "test_throttle.py::test_where_writes_of_upper_devices_count_below_a_limit_there_holds_them",
        "elastio/host/throttle.py",
    ),
    by_test(
        "an intent to detach outlasts a boot",
        "only a detach that was begun in this boot finishes by itself",
        Patch("elastio/core/recovery.py", "is_same_boot and backing.state is", "backing.state is"),
        "tests/unit/elastio/core/test_recovery.py",
        "after a boot the simulated kernel shows no cache mode `none`, as the real one does not",
    ),
    by_test(
        "a tag is trusted while it is changed",
        "a tag that was asked for is not known until the cloud has acknowledged it",
        Patch("elastio/core/update.py", "replace(cycle, tag=model.VolumeTag.UNKNOWN)", "cycle"),
        "tests/unit/elastio/core/test_planner.py::test_a_cache_whose_tag_may_have_become_clean_is_tagged_dirty_again",
        "it takes a lost answer to the tag and a late answer to the installation of one cache",
    ),
    by_test(
        "a limit is left behind",
        "whoever frees applications takes back what shares the device, too",
        Patch("elastio/host/throttle.py", "shared = release_shares(sysfs)", "shared = ()"),
        f"{SHARER}::test_whoever_frees_applications_needs_nothing_but_the_record",
        "no process but the agent takes limits back in the simulator",
    ),
    by_test(
        "a foreign limit is overwritten",
        "a limit of an administrator stays",
        Patch("elastio/host/sharer.py", "if limit is not None and group not in in_force}", "if False}"),
        f"{SHARER}::test_a_limit_of_an_administrator_stays_and_its_cgroup_counts",
        "there is no administrator in the simulator",
    ),
    on_the_host(
        "a limit stays over a bypass",
        "no cgroup is limited while requests are held back, and none for a capacity that is gone",
        "            self.sharer.leave()\n            return is_ready()",
        "            return is_ready()",
        "test_sharer.py::test_no_limit_stays_over_a_bypass",
    ),
)
