"""The agent's loop: observe, decide, record, act. The same code runs on a real host and in the simulator.

The loop never blocks. Its caller calls `step` when something happened (a worker's result, a udev event, a request) or
when `wake_at` has come.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from elastio import ports
from elastio.agent.executor import timeout_of
from elastio.agent.inbox import LASTING, Inbox, unrecorded
from elastio.agent.sampler import Sampler
from elastio.agent.troubles import Troubles, no_longer_needed
from elastio.core import update
from elastio.core.actions import Action, Outcome, OutcomeKind, PollNotice, Worker, is_read, lifts_limit, worker_of
from elastio.core.cycle import verb
from elastio.core.machine import decide
from elastio.core.model import Forecast, HostView, Request, Sample, Serial, Volume
from elastio.core.policy import Policy
from elastio.core.recovery import cycle_of
from elastio.core.state import AgentState, Answer, Course, Decision, Fault, FaultKind, Observation, Phase, Transition
from elastio.errors import ElastioError, InvariantError, JournalError
from elastio.strategy.load import as_load
from elastio.strategy.memory import BurstLesson
from elastio.strategy.spending import Spend
from elastio.strategy.worth import Advice

SCAN_TIMEOUT_S = 15.0
SCAN_EVERY_IDLE_S = 10.0
# While the host worker changes the kernel's state, no decision uses what a scan shows: only the status does.
SCAN_EVERY_BUSY_S = 5.0
STALE_S = 30.0
SPEND_EVERY_S, FORECAST_EVERY_S = 60.0, 5.0
# How old the journal's count of dirty data may be: an operator sees it if the cache is lost.
NOTE_EVERY_S = 30.0
# And of credits: after a start, what was not recorded counts as used.
NOTE_CREDITS_EVERY_S = 600.0
# After a failure the state is recorded again, tried this often: each try may be a whole record, and a sync.
TRIED_EVERY_S = 10.0
RECORDED_AGAIN, TAKEN_BACK = "the journal can be written again", "an order was refused: it could not be recorded"

Serials = tuple[Serial, ...]


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of one agent. A job of `scan` is read-only; its result is the view, or the text of an error."""

    scan: ports.WorkerPort[Serials, HostView | str]
    cloud: ports.WorkerPort[Action, Outcome]
    host: ports.WorkerPort[Action, Outcome]

    def of(self, action: Action) -> ports.WorkerPort[Action, Outcome]:
        """The worker that runs the action."""
        return self.cloud if worker_of(action) is Worker.CLOUD else self.host


def _names(state: AgentState) -> frozenset[str]:
    """The tokens and IDs of all volumes that there are."""
    current = {state.cycle.token} if state.cycle else set()
    return frozenset(current.union(*({v.token, v.id} for v in state.owned or ())))


def _without_cycle(state: AgentState) -> tuple[Volume, ...]:
    """The volumes that are billed and no cycle's: nobody else would write their bills."""
    cycle = state.cycle
    return tuple(v for v in state.owned or () if not v.state.is_gone and not (cycle is not None and cycle.is_of(v)))


class Agent:
    """The agent of one adaptive device. Owns the state; everything else is passed in.

    `sample_interval_s` is the time between two samples of throughput; `seed` makes the jitter repeatable.
    """

    def __init__(
        self,
        policy: Policy,
        state: AgentState,
        *,
        workers: Workers,
        journal: ports.Journal,
        recorder: ports.Recorder,
        clock: ports.Clock,
        counters: ports.Counters,
        sample_interval_s: float = 1.0,
        seed: int | None = None,
    ) -> None:
        self.policy, self.state = policy, state
        self.decide: Callable[[AgentState, Observation, Policy], Decision] = decide
        self.forecaster: ports.Forecaster | None = None
        self.adviser: ports.Adviser | None = None
        self.sharing: ports.Sharing | None = None
        self.view: HostView | None = None
        self.last_sample: Sample | None = None
        self.burst: BurstLesson | None = None
        self.reporter: ports.Reporter = ports.NoReport()
        self.troubles = Troubles(clock.wall, lambda: self.reporter)
        self._cloud_error: str | None = None  # None: no call has finished yet
        self._workers, self._journal, self._recorder = workers, journal, recorder
        self._clock, self._counters, self._sampler = clock, counters, Sampler(counters, sample_interval_s)
        self._forecast: Forecast | None = None
        self.advice: Advice | None = None
        self._interval, self._random = sample_interval_s, random.Random(seed)
        self._inbox = Inbox()
        self._next_sample_at = clock.now()
        self._decide_at: float | None = None
        self._forecast_at = self._scanned_at = self._host_changed_at = float("-inf")
        self._spend, self._spend_read_at, self._spend_known_at = Spend(), float("-inf"), float("-inf")
        self._can_record = self._scan_wanted = True
        self._failed_at = float("-inf")
        self._noted: tuple[float, int] = (float("-inf"), 0)
        self._credits_noted_at = float("-inf")

    # --- what the event loop calls -----------------------------------------------------------------------

    def request(self, request: Request, reply: Callable[[Answer], None]) -> None:
        """Hand in a request; the next decision answers it, and `reply` is called with the answer."""
        self._inbox.requests.append((request, reply))

    def kernel_changed(self) -> None:
        """After a udev event: scan at once."""
        self._scan_wanted = True

    def wake_at(self) -> float:
        """CLOCK_BOOTTIME at which `step` has something to do even if nothing happens."""
        return self._next_sample_at if self._decide_at is None else min(self._next_sample_at, self._decide_at)

    def step(self) -> None:
        """Take in what happened; if anything did, decide and start the next safe action."""
        now = self._clock.now()
        self._collect(now)
        timer = now >= self.wake_at()
        self._sample_if_due(now)
        if timer or self._inbox.requests or not self._inbox.is_empty():
            self._decide(now)
        if timer:
            idle = self.state.cycle is None and self.state.recovered
            self._scan_wanted |= not idle or now - self._scanned_at >= SCAN_EVERY_IDLE_S
        self._start_scan(now)

    def snapshot(self) -> Observation:
        """The observation as of now, without emptying the inbox."""
        return self._observe(self._clock.now())

    @property
    def host_responsive(self) -> bool:
        """False if the last scan is older than any scan of a healthy kernel takes."""
        return self.view is not None and self._clock.now() - self.view.at < STALE_S

    @property
    def cloud_error(self) -> str:
        """Why the cloud cannot be called, or the error of the last call; empty after a call that succeeded."""
        return self._workers.cloud.trouble if self._cloud_error is None else self._cloud_error

    @property
    def last_error(self) -> str:
        """The last error of what does not work now; empty: everything works."""
        return "" if self.troubles.last is None else self.troubles.last.text

    # --- taking in -----------------------------------------------------------------------------------------

    def _collect(self, now: float) -> None:
        for worker in (self._workers.cloud, self._workers.host):
            outcome = worker.poll()
            if outcome is None:
                continue
            self._inbox.outcomes.append(outcome)
            self._scan_wanted |= not isinstance(outcome.action, PollNotice)
            if worker is self._workers.host:
                self._host_changed_at = now
            elif not isinstance(outcome.action, PollNotice):  # that calls another service
                self._cloud_error = outcome.error
            self._note(outcome, now)
        seen = self._workers.scan.poll()
        if isinstance(seen, HostView):
            self.view, self._inbox.fresh_view = seen, True
            self._counters.follow(seen)
            self.troubles.works("scan")
        elif seen is not None:
            self.troubles.failed("scan", seen)

    def _note(self, outcome: Outcome, now: float) -> None:
        if outcome.error:
            self.troubles.failed(verb(outcome.action), outcome.error, outcome.code)
        elif outcome.kind is OutcomeKind.DONE:
            self.troubles.works(verb(outcome.action))
        if is_read(outcome.action):
            return
        try:
            self._journal.outcome(outcome, now=now, wall=self._clock.wall())
        except JournalError as error:
            self.troubles.failed("journal", str(error))

    def _sample_if_due(self, now: float) -> None:
        if now < self._next_sample_at:
            return
        self._inbox.sample = self._sampler.take(now)
        self.last_sample = self._inbox.sample or self.last_sample
        offset_s = self._clock.wall() - now
        known = self._inbox.sample, self.state, self.policy
        self.advice = None if self.adviser is None else self.adviser.advise(*known, offset_s=offset_s)
        missed = int((now - self._next_sample_at) / self._interval)
        self._next_sample_at += (missed + 1) * self._interval

    def _observe(self, now: float) -> Observation:
        wall = self._clock.wall()
        self._read_spend(now, wall)
        if now - self._forecast_at >= FORECAST_EVERY_S:
            self._forecast, self._forecast_at = self._ask_forecaster(now, wall), now
        busy = frozenset(
            worker
            for worker, port in ((Worker.CLOUD, self._workers.cloud), (Worker.HOST, self._workers.host))
            if port.busy
        )
        spend = self._spend
        if self.sharing is not None:
            spend = self.sharing.shared(spend, self._spend_known_at, self.state, self.policy, now=now, wall=wall)
        view = self.view
        clear = view is not None and Worker.HOST not in busy and view.at >= self._host_changed_at
        return Observation(
            now=now,
            wall=wall,
            host=view if view is not None and clear and now - view.at < STALE_S else None,
            sample=self._inbox.sample,
            outcomes=tuple(self._inbox.outcomes),
            requests=tuple(r for r, _ in self._inbox.requests),
            busy=busy,
            spend=spend,
            spend_at=self._spend_known_at,
            jitter=self._random.random(),
            forecast=self._forecast,
            advice=self.advice,
            can_record=self._can_record,
            burst=self.burst,
        )

    def _read_spend(self, now: float, wall: float) -> None:
        """Ask the recorder what was spent, if the last answer is old or of a day that is over.

        While a cycle is open, in the clock that its bill is computed by: setting the clock does not change it.
        """
        wall = wall if self.state.cycle is None else self.state.cycle.wall_at(now)
        if now - self._spend_read_at < SPEND_EVERY_S and wall < self._spend.day.until_wall:
            return
        self._spend, self._spend_read_at = self._recorder.spend(wall=wall), now
        if self._spend.known:
            self._spend_known_at = now

    def _ask_forecaster(self, now: float, wall: float) -> Forecast | None:
        """The forecast; None after an error: then the threshold alone decides, as it does without a forecaster."""
        try:
            forecast = None if self.forecaster is None else self.forecaster.forecast(now, wall)
        except ElastioError as error:
            self.troubles.failed("forecast", str(error))
            return None
        self.troubles.works("forecast")
        return forecast

    # --- deciding and acting -------------------------------------------------------------------------------

    def _decide(self, now: float) -> None:
        obs = self._observe(now)
        inbox, self._inbox = self._inbox, Inbox()
        before = self.state
        decision = self._checked(before, obs)
        trouble = self._record(before, decision, obs)
        if trouble and any(a.accepted and a.request.kind in LASTING for a in decision.answers):
            lasting = inbox.without_lasting()
            obs = replace(obs, requests=tuple(request for request, _ in inbox.requests))
            decision = self._checked(before, obs)
            is_taken_back = self._record(before, decision, obs, owed=TAKEN_BACK) is None
            for request, reply in lasting:
                reply(unrecorded(request, trouble, is_taken_back=is_taken_back))
        self.state, self._decide_at = decision.state, decision.wake_at
        self._enter(before, decision, obs)
        for (_, reply), answer in zip(inbox.requests, decision.answers, strict=True):
            reply(answer)  # after the record: what was answered survives a crash
        self._act(decision, obs)
        self.reporter.decided(before, decision, now=obs.now, wall=obs.wall)  # last: an action need not wait for a log
        if obs.sample is not None:
            self._recorder.sampled(as_load(obs.sample, self.policy), self.state, now=obs.now, wall=obs.wall)

    def _checked(self, before: AgentState, obs: Observation) -> Decision:
        try:
            return self.decide(before, obs, self.policy)
        except InvariantError as error:
            text = f"a decision would have broken a safety rule and was discarded: {error}"
            state = replace(before, phase=Phase.FAULTED, fault=Fault(FaultKind.RULE_BROKEN, text))
            told = f"the agent is faulted: {text}"
            answers = tuple(Answer(request, False, told, "agent.faulted") for request in obs.requests)
            broken = Transition("rule broken", before.phase, Phase.FAULTED, text)
            return Decision(state, reason=text, answers=answers, course=Course((broken,)))

    def _record(
        self, before: AgentState, decision: Decision, obs: Observation, *, owed: str = ""
    ) -> JournalError | None:
        """Why the decision is not in the journal; None: it is, or nothing was decided.

        `owed`: the reason to record it in any case; empty: there is none.
        After a failure the state is recorded as soon as that is possible. What could not be recorded has to outlast a
        start, a broken rule for example; and a record that failed may be on the disk all the same, with an order that
        was refused.
        """
        try:
            state, course = decision.state, decision.course
            is_due = not self._can_record and obs.now >= self._failed_at + TRIED_EVERY_S
            if reason := decision.reason or owed or (str(state.fault or RECORDED_AGAIN) if is_due else ""):
                self._journal.decision(before.phase, state, reason, now=obs.now, wall=obs.wall, course=course)
                self._recorded()
        except JournalError as error:
            self._not_recorded(error, obs.now)
            return error
        try:
            self._note_progress(decision.state, obs)
        except JournalError as error:
            self._not_recorded(error, obs.now)
        return None

    def _recorded(self) -> None:
        self._can_record = True
        self.troubles.works("journal")

    def _not_recorded(self, error: JournalError, now: float) -> None:
        self._can_record, self._failed_at = False, now
        self.troubles.failed("journal", str(error))

    def _enter(self, before: AgentState, decision: Decision, obs: Observation) -> None:
        """Write the ledger, whether or not the journal could be written: a bill is never lost."""
        backing = self.view.backing if self.view else None
        is_running = backing is not None and backing.running
        self.troubles.works(*no_longer_needed(self.troubles.sources, decision.state, is_running=is_running))
        for cycle in decision.records:
            self._recorder.record_cycle(cycle, now=obs.now, wall=obs.wall)
            self._spend_read_at = float("-inf")
        if decision.state.listed is not None and decision.state.listed != before.listed:
            others = tuple((cycle_of(v, obs), obs.wall - obs.now) for v in _without_cycle(decision.state))
            self._recorder.listed(_names(decision.state), wall=obs.wall, others=others)
        learned = decision.state.memory.learned_size_bytes
        if learned is not None and learned != before.memory.learned_size_bytes:
            self._recorder.learned(learned)

    def _note_progress(self, state: AgentState, obs: Observation) -> None:
        at, dirty = self._noted
        cycle = state.cycle
        has_changed = cycle is not None and cycle.dirty_bytes != dirty and obs.now - at >= NOTE_EVERY_S
        has_spent = state.memory.credits is not None and obs.now - self._credits_noted_at >= NOTE_CREDITS_EVERY_S
        if not state.recovered or not (has_changed or has_spent):
            return  # before the first scan, what is remembered may be from another boot
        if cycle is not None:
            self._noted = obs.now, cycle.dirty_bytes
        self._credits_noted_at = obs.now
        self._journal.note(state, now=obs.now, wall=obs.wall)
        self._recorded()

    def _act(self, decision: Decision, obs: Observation) -> None:
        """Start the actions, each after its intent is on the disk. One that cannot be recorded is not started."""
        for action in decision.actions:
            if not (is_read(action) or self._is_intended(action, obs) or lifts_limit(action)):
                return
            if worker_of(action) is Worker.HOST:
                self._host_changed_at = obs.now
            self._workers.of(action).submit(action, timeout_of(action))

    def _is_intended(self, action: Action, obs: Observation) -> bool:
        intended = update.intended(self.state, action, obs.now)
        try:
            self._journal.intend(action, intended, now=obs.now, wall=obs.wall)
        except JournalError as error:
            self._not_recorded(error, obs.now)
            return False
        self.state = intended
        self._recorded()
        return True

    def _start_scan(self, now: float) -> None:
        is_vain = self._workers.host.busy and now - self._scanned_at < SCAN_EVERY_BUSY_S
        if not self._scan_wanted or self._workers.scan.busy or is_vain:
            return
        cycle = self.state.cycle
        owned = tuple(v.serial for v in self.state.owned or ())
        serials = tuple(dict.fromkeys((*owned, *((cycle.serial,) if cycle and cycle.serial else ()))))
        self._scan_wanted, self._scanned_at = False, now
        self._workers.scan.submit(serials, SCAN_TIMEOUT_S)
