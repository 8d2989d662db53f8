"""The same scaled experiment on the simulator: the agent's real loop, with models of kernel, cloud and clock.

Bytes, bandwidths, delays and settings are those of the guests. The model has no page cache and no filesystem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from elastio.core.policy import Policy
from elastio.strategy.spending import Caps
from elastio.units import GIB, MB, agbs
from elastio_adviser.checkpointing import Checkpointing, Profile, run_static
from elastio_calibration.simulated import Machine
from elastio_sim.cloud import CloudTimes
from elastio_sim.kernel import KernelSettings
from elastio_sim.run import Simulation
from elastio_sim.world import SimWorld, WorldSettings
from elastio_testbed.ec2.latency import DEFAULT_DELAYS
from elastio_testbed.experiment import Scaled, Setup
from elastio_testbed.lower_bound import DIRTY_SHARE
from elastio_testbed.operation_timings import TYPICAL, OperationTimings
from elastio_testbed.trial import workload_timeout_s

# From the laboratory's configuration files (machine.py), independent of the experiment.
COOL_DOWN_S = 1.0


@dataclass(frozen=True, slots=True)
class Simulated:
    """One set-up, defined as in a `SetupResult`."""

    completion_s: float
    agbs: float
    cache_agbs: float = 0.0


def simulate(
    scaled: Scaled, setups: Sequence[Setup], vms: int = 1, took: OperationTimings = TYPICAL
) -> dict[Setup, Simulated]:
    """The set-ups that the simulator has a model of; none for an application that is not bulk-synchronous.

    `took` is what the agent's operations take. Machines do not disturb each other here: `vms` multiplies the cost.
    """
    profile = profile_of(scaled)
    if profile is None:
        return {}
    models = {
        Setup.STATIC_SLOW: lambda: _static(scaled, profile, scaled.backing_bytes_s),
        Setup.STATIC_FAST: lambda: _static(scaled, profile, scaled.fast_bytes_s),
        Setup.ADAPTIVE: lambda: adaptive(scaled, profile, machine(scaled, took)),
    }
    if scaled.bucket is not None:
        del models[Setup.STATIC_SLOW]  # the model of a static volume has no credits
    if scaled.experiment.is_by_money:
        del models[Setup.ADAPTIVE]  # the model's agent knows no prices
    runs = {setup: models[setup]() for setup in setups if setup in models}
    return {
        s: Simulated(round(r.completion_s, 3), round(r.agbs * vms, 3), round(r.cache_agbs * vms, 3))
        for s, r in runs.items()
    }


def profile_of(scaled: Scaled) -> Profile | None:
    """The application as the simulator describes it; None if it does more than compute and dump, or if dumps differ."""
    if not scaled.experiment.workload.is_checkpointing:
        return None
    first, *later = scaled.dumps_bytes
    if len(set(later)) != 1:
        return None
    return Profile(scaled.compute_each_s, later[0], len(later), first)


def _static(scaled: Scaled, profile: Profile, bytes_s: int) -> Simulated:
    run = run_static(profile, bytes_s / MB, scaled.backing_bytes)
    return Simulated(run.completion_s, run.agbs)


def machine(scaled: Scaled, took: OperationTimings = TYPICAL, seed: int = 0) -> Machine:
    """A guest with its agent and its cloud, as modelled by the simulator."""
    kernel = KernelSettings(
        backing_mb_s=scaled.backing_bytes_s / MB,
        backing_bytes=scaled.backing_bytes,
        cutoff=DIRTY_SHARE,
        superblock_loaded_s=took.superblock_s,
        backing_credits=scaled.bucket,
        first_credits_bytes=scaled.first_credits_bytes,
    )
    cloud = cloud_times(scaled.time, took.call_s)
    settings = WorldSettings(kernel=kernel, cloud=cloud, host=took.host, seed=seed, size_step_bytes=scaled.unit_bytes)
    return Machine(settings, policy_of(scaled, kernel.backing_uuid), scaled.sample_interval_s)


def adaptive(scaled: Scaled, profile: Profile, guest: Machine) -> Simulated:
    """Run the application in such a guest until it has ended and its caches are released."""
    world = SimWorld(guest.settings)
    simulation = Simulation(world, guest.policy, sample_interval_s=guest.sample_interval_s)
    limit_s = workload_timeout_s(scaled)
    # As in a guest: the agent is idle and the device tuned before the application starts.
    simulation.run_until_settled(limit_s)
    world.workload = Checkpointing(profile, scaled.backing_bytes)
    simulation.run_until(lambda: world.workload.done, limit_s)
    simulation.run_until_settled(limit_s)
    stats = world.workload.stats
    backing = agbs(guest.policy.backing_bandwidth_mb_s, scaled.backing_bytes, stats.finished_s or math.nan)
    caches = world.provider.bill_agbs()
    return Simulated(stats.completion_s or math.nan, backing + caches, caches)


def policy_of(scaled: Scaled, backing_uuid: str) -> Policy:
    """The policy of the guest's configuration file."""
    initial = round(scaled.initial_cache_gib * GIB)
    return Policy(
        backing_bandwidth_mb_s=scaled.backing_bytes_s / MB,
        cache_bandwidth_mb_s=scaled.cache_bytes_s / MB,
        drain_bandwidth_mb_s=scaled.backing_bytes_s / MB,
        inactivity_delay_s=scaled.inactivity_delay_s,
        lead_s=scaled.lead_s,
        cool_down_s=COOL_DOWN_S,
        initial_size_bytes=initial,
        min_size_bytes=round(scaled.least_cache_gib * GIB),
        size_step_bytes=scaled.unit_bytes,
        backing_uuid=backing_uuid,
        caps=Caps(max_size_bytes=round(scaled.most_cache_gib * GIB)),
        backing_credits=scaled.bucket,
        first_credits_bytes=scaled.first_credits_bytes,
    )


def cloud_times(factor: float, call_s: tuple[float, float]) -> CloudTimes:
    """The mean delays of the laboratory's cloud, which are log-normal and scaled.

    The duration of a call itself depends on the guest's processor and does not scale.
    """
    means: dict[str, Any] = {name: (delay.mean_s() * factor,) * 2 for name, delay in DEFAULT_DELAYS.items()}
    # The laboratory plugs the disk at the end of the attachment.
    return replace(CloudTimes(call=call_s, shows_after=1.0), **means)
