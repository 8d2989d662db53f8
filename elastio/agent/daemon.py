"""`elastiod`: wires the real adapters to the loop and runs it.

Starts in this order, because each step needs the one before: configuration, lock, journal and ledger, workers (forked
before there is a socket that a child should not have), control socket, udev, READY. As soon as it has the lock it lifts
I/O limits that a killed agent may have left, so that a later failure cannot leave applications throttled. Before, they
may be those of an agent that runs; for a failure before it has the lock see `elastiod`.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from elastio import __version__, registry
from elastio.accounting.history_store import HistoryLimits
from elastio.accounting.recorder import CostRecorder, open_recorder
from elastio.accounting.shared_caps import SharedCaps
from elastio.agent import accountant
from elastio.agent.accountant import Accountant
from elastio.agent.adviser import READ_RUNS, HindsightAdviser, LearnedForecaster, forecast_terms
from elastio.agent.cap_sharing import CapSharing
from elastio.agent.event_loop import EventLoop
from elastio.agent.executor import Executor, lost
from elastio.agent.journal import Journal, Owner, read_with_older
from elastio.agent.loop import Agent, Serials, Workers
from elastio.agent.market import DevicePricing, MarketWatch, unkept_cap, volume_price
from elastio.agent.memory import bought, remember, with_cutoff, with_learned_size
from elastio.agent.mount_guard import GuardedJournal, MountGuard
from elastio.agent.narration import EventLog
from elastio.agent.request_handler import RequestHandler
from elastio.agent.start_config import load_for_start, load_usable
from elastio.agent.worker import ForkWorker, die_with_parent
from elastio.config.paths import JOURNAL, LEDGER, RUNTIME_DIR, STATEMENTS, common_dir
from elastio.config.schema import Config
from elastio.control.server import ControlServer
from elastio.core.actions import (
    Action,
    BypassCache,
    DetachCacheSet,
    HelpDetach,
    InstallCache,
    LimitWrites,
    Outcome,
    RemoveTombstone,
    WriteTombstone,
)
from elastio.core.model import HostView
from elastio.core.policy import Model
from elastio.errors import ConfigError, ElastioError, HostError
from elastio.host import recompose, throttle
from elastio.host.bcache import BcacheHost
from elastio.host.commands import run
from elastio.host.counters import CountedLoad, DiskCounters
from elastio.host.group_watch import GroupWatch
from elastio.host.guard import LimitRemovers
from elastio.host.kernel import configured_cutoff_percent
from elastio.host.locks import lock_device, lock_state
from elastio.host.machine import SystemClock, machine_id, stay_in_memory
from elastio.host.sysfs import Sysfs
from elastio.host.systemd import Notifier
from elastio.host.udev import BlockEvents, show_to_systemd
from elastio.ports import Adviser, VolumeProvider
from elastio.strategy import backing_credits
from elastio.strategy.bursts import LoadRun
from elastio.strategy.load import utilization
from elastio.strategy.watched_bursts import Seen, Watch
from elastio.units import MB

_log = logging.getLogger("elastio")

# How long a stop waits for a host action that is under way; a cloud call is looked up at the next start.
STOP_WAIT_S = 20.0
# Without a job; and after a boost, which others may follow.
REST_S, REST_AFTER_BOOST_S = 60.0, 1800.0


@dataclass(slots=True)
class LazyProvider:
    """Opens the provider once, in the process that uses it: its SDK is slow to load and large."""

    config: Config
    _opened: VolumeProvider | None = None

    def __call__(self) -> VolumeProvider:
        if self._opened is None:
            provider = self.config.provider
            self._opened = registry.open_provider(provider.name, provider.settings, self.config.device.backing_uuid)
        return self._opened

    def warm_up(self) -> None:
        """Load the SDK ahead of the first boost. Raises errors of `elastio.errors`; they show again in each call."""
        warm = getattr(self(), "warm_up", None)
        if warm is not None:
            warm()


def scan_with(host: BcacheHost) -> Callable[[Serials], HostView | str]:
    """A scan that returns its error as text: a worker carries values only."""

    def scan(serials: Serials) -> HostView | str:
        try:
            return host.scan(serials)
        except ElastioError as error:
            return str(error)

    return scan


def let_requests_pass(sysfs: Sysfs) -> None:
    """End what an agent left that was killed, or that ends during a slowed flush: limits, and suspended devices."""
    for free, what in ((recompose.mend_all, "requests to"), (throttle.release, "applications in")):
        try:
            for name in free(sysfs):
                _log.warning("%s %s were still held back or slowed down; they are not any more", what, name)
        except HostError as error:
            _log.warning("%s", error)


HOLDS_BACK = (InstallCache, BypassCache, DetachCacheSet, HelpDetach, LimitWrites, WriteTombstone, RemoveTombstone)


def lost_on(sysfs: Sysfs, removers: LimitRemovers) -> Callable[[Action, float], Outcome]:
    """Like `executor.lost`, and lifts I/O limits, in a child process: the loop must not block."""

    def free() -> None:
        die_with_parent()
        let_requests_pass(sysfs)

    def lost_and_freed(action: Action, seconds: float) -> Outcome:
        if isinstance(action, HOLDS_BACK):
            with suppress(OSError), removers.joined():  # refused: no limit is set yet, or its guard removes it
                multiprocessing.get_context("fork").Process(target=free, name="elastio-free", daemon=True).start()
        return lost(action, seconds)

    return lost_and_freed


@dataclass(slots=True)
class ChildRest:
    """Ends a worker's child while it is of no use: the SDK of a cloud takes more memory than the rest of the agent.

    Starting it again takes some tenths of a second: it is done when a load begins, and not spared while bursts follow
    one another.
    """

    worker: ForkWorker[Any, Any]
    until: float

    def tend(self, now: float, *, is_near: bool, is_boosting: bool) -> None:
        """`is_near`: it will be of use soon."""
        if is_near:
            self.worker.wake()
        if is_near or self.worker.busy:
            self.until = max(self.until, now + REST_S)
        if is_boosting:
            self.until = max(self.until, now + REST_AFTER_BOOST_S)
        if now > self.until:
            self.worker.rest()


def is_near_boost(agent: Agent) -> bool:
    sample, policy = agent.last_sample, backing_credits.in_force(agent.policy, agent.state.memory)
    return sample is not None and utilization(sample, policy) >= policy.utilization_threshold / 2


def shared_caps(config: Config) -> SharedCaps:
    """Where the agents of this machine that share caps state what they have spent."""
    return SharedCaps(common_dir(config.agent.state_dir) / STATEMENTS, config.device.backing_uuid)


def open_workers(config: Config, host: BcacheHost) -> tuple[Workers, tuple[ForkWorker[Action, Outcome], ...]]:
    """The three workers, their children started."""
    provider = LazyProvider(config)
    executor = Executor(host, provider, reservations=shared_caps(config))
    late = "the kernel did not show its state within {:.0f} s: bcache may hang"
    scan: ForkWorker[Serials, HostView | str] = ForkWorker("scan", scan_with(host), lambda _, s: late.format(s))
    on_host: ForkWorker[Action, Outcome] = ForkWorker(
        "host", executor.run, lost_on(host.sysfs, host.guard.removers), between=host.sharer
    )
    on_cloud: ForkWorker[Action, Outcome] = ForkWorker("cloud", executor.run, lost, provider.warm_up)
    forked = (scan, on_host, on_cloud)
    # The garbage collector writes into every object it looks at: each child would soon have all pages to itself.
    gc.collect()
    gc.freeze()
    for worker in forked:
        worker.start()
    return Workers(scan=scan, cloud=on_cloud, host=on_host), forked  # type: ignore[return-value]


def touch_device(recorder: CostRecorder, agent: Agent, config: Config, pricing: DevicePricing, wall: float) -> None:
    """Record that the backing device is there, and what it costs."""
    backing = agent.view.backing if agent.view else None
    if backing is None:
        return
    speeds = config.device.bandwidth_mb_s, config.cache.bandwidth_mb_s
    prices = partial(pricing.at, config, agent.state.identity, backing.size_bytes)
    recorder.touch_device(backing.size_bytes, *speeds, wall=wall, prices=prices)


def adviser_of(recorder: CostRecorder, config: Config) -> Adviser | None:
    """The adviser with the past of the ledger; None where nothing is decided by money."""
    if config.policy().model is not Model.MONEY:
        return None
    runs = recorder.last_samples(READ_RUNS)
    loads = (
        LoadRun(r.begun_wall, r.seconds, r.written_bytes / MB, (r.read_bytes + r.written_bytes) / MB) for r in runs
    )
    return HindsightAdviser(loads, recorder.past)


def price_market(agent: Agent, config: Config, watch: MarketWatch) -> None:
    """Give the agent its market when it is known, or changes; the log says why it never will be."""
    if agent.policy.model is not Model.MONEY:
        return
    backing, before = agent.view.backing if agent.view else None, watch.trouble
    found = watch.market(config, agent.state.identity, backing.size_bytes if backing else None)
    if watch.trouble and watch.trouble != before:
        agent.troubles.failed("prices", f"no boost begins by itself: {watch.trouble}")
    elif not watch.trouble:
        agent.troubles.works("prices")
    if found != agent.policy.market:
        agent.policy = replace(agent.policy, market=found)


class Daemon:
    """One run of the agent, from start to stop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.config, self._policy = load_for_start(path)
        device = self.config.device
        self._sysfs, self._clock = Sysfs(owner=path.stem), SystemClock()
        self._host = BcacheHost(device.backing_uuid, self._sysfs, backing_mb_s=device.bandwidth_mb_s)
        self._lock = lock_device(RUNTIME_DIR, device.backing_uuid)
        let_requests_pass(self._sysfs)
        self._state_lock = lock_state(self.config.agent.state_dir)
        self._owner = Owner(self.config.device.backing_uuid, machine_id(self._sysfs))
        self._journal = Journal(self.config.agent.state_dir / JOURNAL, self._host.boot_id, self._owner)
        self._notifier = Notifier()
        self._pricing, self._market = DevicePricing(), MarketWatch()

    def run(self) -> None:
        config = self.config
        self._journal.open()
        trouble = stay_in_memory()
        if trouble is not None:
            _log.warning("the agent's memory can be paged out: %s", trouble)
        limits = HistoryLimits(config.agent.history_days, config.agent.history_rows)
        with open_recorder(config.agent.state_dir / LEDGER, config.device.backing_uuid, limits) as recorder:
            workers, forked = open_workers(config, self._host)
            try:
                self._run(recorder, workers, forked)
            finally:
                recorder.flush(wall=self._clock.wall())
                for worker in forked:
                    worker.close(STOP_WAIT_S if worker.name == "host" else 0.0)
                self._journal.close()
                let_requests_pass(self._sysfs)  # nobody watches over a slowed flush any more

    def _guarded_journal(self) -> GuardedJournal:
        guard = MountGuard(common_dir(self.config.agent.state_dir), self.config.device.backing_uuid)

        def uncover() -> None:
            show_to_systemd(self._sysfs)

        return GuardedJournal(self._journal, guard, uncover)

    def _run(self, recorder: CostRecorder, workers: Workers, forked: tuple[ForkWorker[Action, Outcome], ...]) -> None:
        agent = self._agent(recorder, workers)
        looks = self._open_account(recorder)
        event_loop = EventLoop(agent, (*forked, looks), self._notifier)
        requests = RequestHandler(agent, self._journal.path, self._clock.now(), lambda: socket.asked_by)
        socket = ControlServer(self.config.agent.socket, self.config.agent.socket_group or None, requests.handle)
        socket.register(event_loop.selector)
        events = BlockEvents()
        event_loop.watch(events, lambda: agent.kernel_changed() if events.drain() else None)
        self._notifier.send("READY=1", f"STATUS={agent.state.phase}")
        _log.info("elastiod %s drives %s", __version__, self.config.device.backing_uuid)
        for doubt in filter(None, (*self.config.doubts, unkept_cap(self.config))):
            _log.warning("%s", doubt)
        reporter = StatusReporter(self._notifier)

        now = self._clock.now()
        cloud_rest = ChildRest(next(worker for worker in forked if worker.name == "cloud"), now + REST_S)
        looks_rest = ChildRest(looks, now)

        def after_step() -> None:
            self._host.guard.pulse.beat()
            socket.sweep()
            reporter.report(agent)
            is_boosting = agent.state.cycle is not None
            now = self._clock.now()
            self._keep_account(agent, looks_rest, now)
            cloud_rest.tend(now, is_near=is_near_boost(agent), is_boosting=is_boosting)
            touch_device(recorder, agent, self.config, self._pricing, self._clock.wall())
            price_market(agent, self.config, self._market)

        try:
            event_loop.run(lambda: self._reload(agent, recorder), after_step)
        finally:
            self._notifier.send("STOPPING=1")
            socket.close()
            self._accountant.close(agent)
            looks.close(0.0)

    def _open_account(self, recorder: CostRecorder) -> ForkWorker[Watch, Seen]:
        """The worker of looks; its child starts with the first load."""
        watch = GroupWatch(self._sysfs, self._clock, time.sleep)
        looks: ForkWorker[Watch, Seen] = ForkWorker("account", watch.look, accountant.lost, is_resident=False)
        self._accountant = Accountant(looks, recorder.keep_accounts, self.config.profile)
        return looks

    def _keep_account(self, agent: Agent, rest: ChildRest, now: float) -> None:
        self._accountant.step(agent, now=now, wall=self._clock.wall())
        if self._accountant.is_watching:
            rest.until = now + REST_S
        rest.tend(now, is_near=False, is_boosting=False)

    def _agent(self, recorder: CostRecorder, workers: Workers) -> Agent:
        now, wall = self._clock.now(), self._clock.wall()
        memory = remember(self._journal.path, now=now, wall=wall, boot_id=self._host.boot_id, owner=self._owner)
        if memory.foreign:
            _log.warning("%s", memory.foreign)
        recorder.recall(bought(read_with_older(self._journal.path), self._owner))
        agent = Agent(
            self._policy,
            with_cutoff(with_learned_size(memory.state, recorder.learned_size()), configured_cutoff_percent(run)),
            workers=workers,
            journal=self._guarded_journal(),
            recorder=recorder,
            clock=self._clock,
            counters=DiskCounters(CountedLoad(self._host.sysfs, lambda: agent.policy.boost_rights)),
            sample_interval_s=self.config.agent.sample_interval_s,
        )
        agent.reporter = EventLog(self.config.device.backing_uuid)
        if self._policy.buys_nothing:
            agent.troubles.failed("configuration", f"nothing is bought: {self._policy.buys_nothing}", "config")
        agent.adviser = adviser_of(recorder, self.config)
        recorder.price_of = lambda spec: volume_price(self.config, agent.state.identity, spec)
        agent.sharing = CapSharing(shared_caps(self.config))
        agent.forecaster = LearnedForecaster(recorder.past, lambda: forecast_terms(agent, self.config.value.hour))
        return agent

    def _reload(self, agent: Agent, recorder: CostRecorder) -> None:
        """Swap the policy for the file's, or keep the old one. Device, provider and paths need a restart."""
        try:
            config, policy = load_usable(self._path)
            if (config.device, config.provider, config.agent) != (
                self.config.device,
                self.config.provider,
                self.config.agent,
            ):
                raise ConfigError("[device], [provider] and [agent] change only with a restart of elastiod")
        except ConfigError as error:
            _log.error("the configuration was not reloaded: %s", error)
            return
        if config.policy().model is not agent.policy.model:
            agent.adviser = adviser_of(recorder, config)
        self.config = config
        self._accountant.settings = config.profile
        agent.policy = policy
        agent.troubles.works("configuration", *(["SetShares"] if policy.share_reserve is None else []))
        price_market(agent, config, self._market)
        _log.info("the configuration was reloaded")


class StatusReporter:
    """Shows every change of phase to systemd."""

    def __init__(self, notifier: Notifier) -> None:
        self._notifier, self._phase = notifier, ""

    def report(self, agent: Agent) -> None:
        if (phase := agent.state.phase.value) != self._phase:
            self._notifier.send(f"STATUS={phase}")
            self._phase = phase
