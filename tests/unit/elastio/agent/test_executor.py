"""Effects are carried out once more checked against the live system, and every failure is an outcome."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from elastio.agent.executor import IN_CLOUD, ON_HOST, Executor, timeout_of
from elastio.core.actions import (
    Action,
    AttachVolume,
    BypassCache,
    CloudAction,
    CreateVolume,
    DeleteVolume,
    DescribeVolume,
    DetachCacheSet,
    DetachVolume,
    Effect,
    EnterPhase1,
    EnterPhase2,
    HostAction,
    InstallCache,
    ListForBacking,
    ListVolumes,
    Outcome,
    OutcomeKind,
    PollNotice,
    ReleaseCacheDisk,
    SetFlush,
    TagVolume,
    TakeOverVolume,
    TuneBacking,
)
from elastio.core.model import (
    CacheMode,
    CacheSetUuid,
    HostView,
    Purchase,
    Quote,
    Serial,
    Volume,
    VolumeSpec,
    VolumeState,
)
from elastio.errors import ConfigError
from elastio.ports import VolumeProvider
from elastio.units import GIB
from elastio_sim.clock import SimClock
from elastio_sim.cloud import DiskSlots, SimAccount
from elastio_sim.faults import FaultPlan
from elastio_sim.prices import TARIFF
from elastio_sim.provider import SimProvider
from elastio_sim.workload import constant
from elastio_sim.world import SimWorld
from tests.values import present

SPEC = VolumeSpec(2 * GIB, 100.0)
SERIAL = Serial("vol-1")
CREATE = CreateVolume("token-1", SPEC, 4 * GIB)


class Machine:
    """A simulated machine and the executor on it."""

    def __init__(self, faults: str = "nothing") -> None:
        self.world = SimWorld(faults=FaultPlan.parse(faults))
        self.executor = Executor(self.world.host, lambda: self.world.provider)

    def run(self, action: Action) -> Outcome:
        return self.executor.run(action)

    def done(self, action: Action) -> Outcome:
        outcome = self.run(action)
        assert (outcome.action, outcome.kind, outcome.error) == (action, OutcomeKind.DONE, "")
        return outcome

    def bought(self) -> Volume:
        outcome = self.done(CREATE)
        assert isinstance(outcome.value, Purchase)
        self.world.advance(60.0)
        return outcome.value.volume

    def plugged(self) -> Volume:
        volume = self.bought()
        self.done(AttachVolume(volume.id))
        self.world.advance(60.0)
        return volume

    def boosted(self) -> tuple[Volume, CacheSetUuid]:
        volume = self.plugged()
        self.done(TuneBacking())
        made = self.done(InstallCache(volume.serial, volume.size_bytes, flush_mb_s=0.0)).value
        assert isinstance(made, str)
        self.world.advance(60.0)
        return volume, CacheSetUuid(made)

    def state(self, volume: Volume) -> VolumeState | None:
        seen = self.done(DescribeVolume(volume.id)).value
        return seen.state if isinstance(seen, Volume) else None

    def scan(self, volume: Volume) -> HostView:
        return self.world.host.scan((volume.serial,))


@pytest.fixture
def machine() -> Machine:
    return Machine()


# --- every action ------------------------------------------------------------------------------------------


def test_an_outcome_says_whether_the_host_had_to_be_changed(machine: Machine) -> None:
    volume, cache_set = machine.boosted()
    machine.done(EnterPhase2())
    release = ReleaseCacheDisk(volume.serial, volume.size_bytes, cache_set)
    for action in (BypassCache(), DetachCacheSet(cache_set), release):
        assert machine.done(action).value is Effect.CHANGED
        machine.world.advance(60.0)
        assert machine.done(action).value is Effect.ALREADY


def test_phases_reach_the_kernel(machine: Machine) -> None:
    volume, cache_set = machine.boosted()
    seen = []
    for action in (EnterPhase2(), EnterPhase1(flush_mb_s=0.0), SetFlush(None), BypassCache()):
        machine.done(action)
        backing = present(machine.scan(volume).backing)
        assert backing.cache_set == cache_set
        seen.append((backing.cache_mode, backing.flush_full_speed, backing.writeback_running))
    assert seen == [
        (CacheMode.WRITEBACK, True, True),
        (CacheMode.WRITEBACK, False, False),
        (CacheMode.WRITEBACK, False, True),
        (CacheMode.NONE, False, True),
    ]
    assert machine.run(EnterPhase1(flush_mb_s=0.0)).kind is not OutcomeKind.DONE


def test_what_is_provisioned_may_not_be_larger_than_the_cap(machine: Machine) -> None:
    outcome = machine.run(CreateVolume("token-1", SPEC, 1 * GIB))
    assert outcome.kind is OutcomeKind.REFUSED
    assert machine.world.volumes_left() == 0


@pytest.mark.parametrize(("seconds", "code"), [(59.9, "caps.max_cost"), (60.0, "")])
def test_nothing_is_bought_whose_least_billed_time_costs_more_than_the_caps_leave(
    machine: Machine, seconds: float, code: str
) -> None:
    """The simulated cloud bills at least a minute, also for a boost that is shorter."""
    most = TARIFF.per_hour(SPEC) * seconds / 3600
    outcome = machine.run(CreateVolume("token-1", SPEC, SPEC.size_bytes, most_cost=most + 1e-12, least_s=10.0))
    assert outcome.code == code
    assert machine.world.volumes_left() == (0 if code else 1)


class Unpriced(SimProvider):
    """A region for which nobody knows a price."""

    def quote(self, spec: VolumeSpec) -> Quote:
        return replace(super().quote(spec), price_per_hour=0.0, price_known=False)


@pytest.mark.parametrize(("needs_price", "kind"), [(True, OutcomeKind.REFUSED), (False, OutcomeKind.DONE)])
def test_nothing_is_bought_without_a_price_under_a_cap_in_currency(
    machine: Machine, needs_price: bool, kind: OutcomeKind
) -> None:
    provider = Unpriced(SimClock(), SimAccount("uuid"), DiskSlots())
    executor = Executor(machine.world.host, lambda: provider)
    assert executor.run(CreateVolume("token-1", SPEC, 4 * GIB, needs_price)).kind is kind
    assert bool(provider.existing()) is not needs_price


# --- nothing leaves that may hold data ---------------------------------------------------------------------


def assert_kept(machine: Machine, volume: Volume) -> None:
    """The decision asked for it; the live scan says no."""
    before = machine.state(volume)
    for action in (DetachVolume(volume.id, volume.serial), DeleteVolume(volume.id, volume.serial)):
        assert machine.run(action).kind is OutcomeKind.REFUSED
        machine.world.advance(60.0)
    assert machine.state(volume) is before


def test_a_volume_that_is_an_attached_cache_is_kept(machine: Machine) -> None:
    volume, _ = machine.boosted()
    assert_kept(machine, volume)


def test_a_volume_whose_backing_device_waits_for_its_cache_is_kept(machine: Machine) -> None:
    volume, _ = machine.boosted()
    machine.world.workload = constant(60.0)
    machine.world.advance(1.0)
    machine.world.kernel.fsync()  # its superblock says so, too
    machine.world.vanish()
    machine.world.power_cut()
    assert_kept(machine, volume)


def test_a_volume_is_kept_when_the_scan_fails() -> None:
    machine = Machine("scan#1=refuse")
    volume = machine.plugged()
    outcome = machine.run(DeleteVolume(volume.id, volume.serial))
    assert outcome.kind is OutcomeKind.RETRY
    assert machine.state(volume) is VolumeState.ATTACHED


# --- errors become verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("throttle", OutcomeKind.RETRY),
        ("lose_reply", OutcomeKind.RETRY),
        ("quota", OutcomeKind.REFUSED),
        ("expired", OutcomeKind.REFUSED),
        ("refuse", OutcomeKind.REFUSED),
    ],
)
def test_an_error_of_the_cloud_has_its_kind_of_outcome(fault: str, kind: OutcomeKind) -> None:
    outcome = Machine(f"create#1={fault}").run(CREATE)
    assert (outcome.kind, outcome.value, outcome.is_quota) == (kind, None, fault == "quota")
    assert outcome.error
    assert outcome.seconds >= 0


@pytest.mark.parametrize(("fault", "kind"), [("refuse", OutcomeKind.RETRY), ("busy", OutcomeKind.RETRY)])
def test_an_error_of_the_kernel_may_pass(fault: str, kind: OutcomeKind) -> None:
    assert Machine(f"tune_backing#1={fault}").run(TuneBacking()).kind is kind


def test_a_disk_that_is_not_ours_is_final(machine: Machine) -> None:
    volume = machine.plugged()
    outcome = machine.run(InstallCache(volume.serial, volume.size_bytes + 1, flush_mb_s=0.0))
    assert outcome.kind is OutcomeKind.REFUSED


def test_a_provider_that_cannot_be_opened_is_an_outcome(machine: Machine) -> None:
    def closed() -> VolumeProvider:
        raise ConfigError("the provider is not installed")

    outcome = Executor(machine.world.host, closed).run(ListVolumes())
    assert (outcome.kind, outcome.error) == (OutcomeKind.RETRY, "the provider is not installed")


def test_the_host_needs_no_provider(machine: Machine) -> None:
    def closed() -> VolumeProvider:
        raise AssertionError("opened for a host action")

    assert Executor(machine.world.host, closed).run(TuneBacking()).kind is OutcomeKind.DONE


def test_a_bug_is_not_an_outcome(machine: Machine) -> None:
    """It ends the child that ran it; the worker then says that the job is lost."""

    def broken() -> VolumeProvider:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Executor(machine.world.host, broken).run(ListVolumes())


# --- no answer ---------------------------------------------------------------------------------------------


class Awaiting(SimProvider):
    """A cloud without client tokens."""

    told: tuple[str, float] | None = None

    def sent_before(self, token: str, seconds_ago: float) -> None:
        self.told = token, seconds_ago


def test_a_cloud_without_tokens_is_told_of_a_purchase_that_another_process_has_requested(machine: Machine) -> None:
    provider = Awaiting(SimClock(), SimAccount("uuid"), DiskSlots())
    executor = Executor(machine.world.host, lambda: provider)
    assert (executor.run(CREATE).kind, provider.told) == (OutcomeKind.DONE, None)
    assert executor.run(replace(CREATE, unconfirmed_s=5.0)).kind is OutcomeKind.DONE
    assert provider.told == ("token-1", 5.0)
    assert machine.run(replace(CREATE, unconfirmed_s=5.0)).kind is OutcomeKind.DONE, "one with tokens need not know"


def test_a_worker_waits_longer_than_the_adapters_own_limits() -> None:
    from elastio.host.blockdev import REGISTER_S
    from elastio.host.cache_disk import UNREGISTER_S

    assert timeout_of(CREATE) == 60.0
    assert timeout_of(TuneBacking()) == 30.0
    release = timeout_of(ReleaseCacheDisk(SERIAL, 1, None))
    assert release > UNREGISTER_S + 10 + 15  # wipefs to look, and to wipe
    assert timeout_of(InstallCache(SERIAL, 1, 0.0)) > REGISTER_S + 10 + 15 + 20  # and make-bcache


def test_every_action_has_its_call() -> None:
    assert set(ON_HOST) == set(get_args(HostAction))
    by_name = {CreateVolume, ListForBacking, PollNotice, TagVolume, TakeOverVolume}
    assert set(IN_CLOUD) == set(get_args(CloudAction)) - by_name
