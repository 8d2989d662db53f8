"""Calibrate in a guest, predict an experiment, run it, and compare prediction and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from elastio.accounting.tables import table
from elastio.units import GB, GIB, MB
from elastio_calibration.application import Application
from elastio_calibration.errors import InfeasibleError
from elastio_calibration.measurement import Conditions
from elastio_calibration.model import Dump
from elastio_calibration.optimum import Candidate, Goal, best, candidates
from elastio_calibration.predict import CacheSizes, Forecast, Predictor
from elastio_calibration.profile import Profile, load, save, to_document
from elastio_calibration.study import solve
from elastio_testbed import experiment
from elastio_testbed.calibrating import calibrate
from elastio_testbed.console import Say
from elastio_testbed.errors import PlanError
from elastio_testbed.experiment import Scaled
from elastio_testbed.hypervisor import GuestError, chosen_accelerator, chosen_hypervisor
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.run import run, run_alone
from elastio_testbed.steal_time import processor_time
from elastio_testbed.trial import Plan, Trial

# Bandwidths and times of a profile and an experiment are the same if they differ by less.
SAME = 0.01
# A dumping guest needs all processors: with a higher share of steal time its figures say little about storage.
DISTURBING = 0.02


@dataclass(frozen=True, slots=True)
class PredictOptions:
    """What `predict` does in addition to the plan.

    `profile_path`: the file of the calibration; an existing one is used. `side_by_side`: the three set-ups in parallel.
    """

    repeats: int
    max_time_s: float | None = None
    profile_path: Path | None = None
    side_by_side: bool = False


@dataclass(frozen=True, slots=True)
class DeadlineCheck:
    """A deadline, the size that was recommended for it, and the run in which every cache had that size.

    `chosen` and `real` are None if no size meets the deadline; `refusal` is the reason.
    """

    max_time_s: float
    offered: tuple[Candidate, ...]
    chosen: Candidate | None = None
    real: SetupResult | None = None
    refusal: str = ""

    @property
    def is_met(self) -> bool:
        return self.real is not None and self.real.completion_s <= self.max_time_s

    def to_json(self) -> dict[str, Any]:
        """`choices` are the calibrated sizes; `cheaper_that_meet` must be empty."""
        known: dict[str, Any] = {"max_time_s": self.max_time_s, "met": self.is_met, "refusal": self.refusal}
        if self.chosen is not None:
            time_s, spent = self.chosen.forecast.completion_s, self.chosen.forecast.agbs
            cheaper = [c for c in self.offered if c.forecast.agbs.value < spent.value]
            known |= {
                "recommended_gb": self.chosen.cache_bytes / GB,
                "predicted_s": time_s.value,
                "predicted_agbs": spent.value,
                "cheaper_that_meet": [
                    c.cache_bytes / GB for c in cheaper if c.forecast.completion_s.safe_high <= self.max_time_s
                ],
            }
        if self.real is not None:
            known |= {"real_s": self.real.completion_s, "real_agbs": self.real.agbs}
        return {**known, "choices": [_choice_row(c) for c in self.offered]}


def _choice_row(choice: Candidate) -> dict[str, float]:
    time_s = choice.forecast.completion_s
    return {
        "cache_gb": choice.cache_bytes / GB,
        "completion_s": time_s.value,
        "completion_high_s": time_s.safe_high,
        "agbs": choice.forecast.agbs.value,
    }


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was predicted, from what, and what then happened. `time_ratio`, `agbs_ratio`: predicted over real.

    `steal`: for each stage, the share of steal time in the processor time.
    """

    plan: Plan
    profile: Profile
    forecasts: tuple[Forecast, ...]
    result: Result
    verified: DeadlineCheck | None = None
    steal: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """Every byte is correct, no volume is left, and the deadline, if any, is met."""
        kept = all(s.checksums_ok and s.volumes_left == 0 for s in self.result.setups)
        return kept and (self.verified is None or self.verified.is_met)

    def setups(self) -> dict[str, dict[str, Any]]:
        """For each set-up the predicted and the measured figures, and their ratios."""
        found: dict[str, dict[str, Any]] = {}
        for forecast in self.forecasts:
            real = self.result.of(experiment.Setup(forecast.setup.value))
            if real is None:
                raise GuestError(f"{forecast.setup} was predicted and not run")
            time_s, spent = forecast.completion_s, forecast.agbs
            found[forecast.setup.value] = {
                "time_ratio": round(time_s.value / real.completion_s, 5),
                "agbs_ratio": round(spent.value / real.agbs, 5),
                "predicted": {"completion_s": time_s.value, "agbs": spent.value},
                "predicted_interval_s": [time_s.low, time_s.high],
                "real": {"completion_s": real.completion_s, "agbs": real.agbs},
                "predicted_dumps_s": [d.seconds for d in _dumps(forecast)],
                "real_dumps_s": list(real.dumps_s),
                "predicted_caches_gb": [d.cache_bytes / GB for d in _dumps(forecast)],
                "real_caches_gb": [p.size_gb for p in real.boosts],
            }
        return found

    def to_json(self) -> dict[str, Any]:
        solution = solve(self.profile.measurements)
        return {
            "experiment": self.plan.experiment,
            "scale": self.plan.scale,
            "bandwidth": self.plan.bandwidth,
            "hypervisor": chosen_hypervisor(),
            "accelerator": chosen_accelerator(),
            "side_by_side": self.plan.side_by_side,
            "processor_time_stolen": dict(self.steal),
            "setups": self.setups(),
            "plan": None if self.verified is None else self.verified.to_json(),
            "throughput_noise": solution.throughput_noise,
            "holding_noise": solution.holding_noise,
            "real": {s.setup.value: s.to_json() for s in self.result.setups},
            "profile": to_document(self.profile),
        }


def _dumps(forecast: Forecast) -> tuple[Dump, ...]:
    return (*([forecast.initial] if forecast.initial else []), *forecast.checkpoints)


def predict(plan: Plan, asked: PredictOptions, keep: Callable[[Prediction], None], say: Say) -> Prediction:
    """All steps in turn, on fresh guests. `keep` gets the result so far after the set-ups were run, and at the end.

    Raises PlanError before anything is run, later HypervisorError, ImageError or another ElastioError.
    """
    scaled = plan.scaled()
    application = application_of(scaled)
    # Computing guests disturb each other. Sleeping guests do not, given enough processors for all their dumps.
    plan = replace(plan, side_by_side=asked.side_by_side and not plan.packages)
    image = build_guest_image(extra=plan.packages, suite=plan.suite)
    began = processor_time()
    predictor = Predictor(_profile(plan, asked, image, say), scaled.backing_bytes)
    calibrated = processor_time()
    forecasts = predictor.all_setups(application, CacheSizes(round(scaled.initial_cache_gib * GIB)))
    for f in forecasts:
        say("; ".join([f"predicted {f.setup}: {f.completion_s.value:.1f} s, {f.agbs.value:.0f} AGBs", *f.notes]))
    wanted = None if asked.max_time_s is None else recommend(predictor, application, asked.max_time_s)
    if wanted is not None:
        say(f"deadline {wanted.max_time_s:g} s: {wanted.refusal or f'recommended is {wanted.chosen}'}")
    *_, last = run(plan, say)
    real, ran = last.evaluation.repetitions[-1], processor_time()
    steal = {"calibrated": calibrated.steal_share_since(began), "real": ran.steal_share_since(calibrated)}
    prediction = Prediction(plan, predictor.profile, forecasts, real, wanted, steal)
    keep(prediction)
    if wanted is not None and wanted.chosen is not None:
        verified = _verified(plan, wanted, wanted.chosen, image, say)
        steal["deadline"] = processor_time().steal_share_since(ran)
        prediction = replace(prediction, verified=verified, steal=steal)
        keep(prediction)
    return prediction


def _profile(plan: Plan, asked: PredictOptions, image: GuestImage, say: Say) -> Profile:
    """The stored profile, or a new one. Raises CalibrationError for an invalid file."""
    path = asked.profile_path
    if path is not None and path.exists():
        profile = load(path)
        require_same(profile.conditions, plan.scaled(), path)
        say(f"{path} is used instead of a new calibration")
        return profile
    profile = calibrate(plan, asked.repeats, image, say)
    if path is not None:
        save(profile, path)
        say(f"{path} was written")
    return profile


def require_same(conditions: Conditions, scaled: Scaled, path: Path) -> None:
    """Raises PlanError where the profile was calibrated at other scales than the experiment runs at."""
    pairs = {
        "backing MB/s": (conditions.backing_mb_s, scaled.backing_bytes_s / MB),
        "cache MB/s": (conditions.cache_mb_s, scaled.cache_bytes_s / MB),
        "inactivity delay": (conditions.inactivity_delay_s, scaled.inactivity_delay_s),
        "sample interval": (conditions.sample_interval_s, scaled.sample_interval_s),
        "writers": (conditions.writers, scaled.experiment.workload.writers),
    }
    other = [f"{name} {a:g} and {b:g}" for name, (a, b) in pairs.items() if abs(a - b) > SAME * abs(b)]
    if other:
        raise PlanError(
            f"{path} was calibrated for another experiment or scale ({', '.join(other)}); choose another file",
            code="profile",
        )


def recommend(predictor: Predictor, application: Application, max_time_s: float) -> DeadlineCheck:
    """The calibrated size that is recommended for the deadline, for all dumps including the first."""
    offered = candidates([predictor], application).accepted
    try:
        return DeadlineCheck(max_time_s, offered, best(offered, Goal(max_time_s=max_time_s)))
    except InfeasibleError as error:
        return DeadlineCheck(max_time_s, offered, refusal=str(error))


def _verified(plan: Plan, wanted: DeadlineCheck, chosen: Candidate, image: GuestImage, say: Say) -> DeadlineCheck:
    say(f"running the adaptive set-up with {chosen} for every dump")
    (real, _), _ = run_alone(Trial(fixed(plan, chosen.cache_bytes), experiment.Setup.ADAPTIVE, image, say))
    return replace(wanted, real=real)


def fixed(plan: Plan, cache_bytes: int) -> Plan:
    """The plan with caches of this size only, in bytes of the guest."""
    return replace(plan, fixed_cache_gb=cache_bytes / GB / (plan.scale * plan.bandwidth))


def application_of(scaled: Scaled) -> Application:
    """The experiment as an application, in bytes and seconds of the guest. Raises PlanError where it cannot be one."""
    if not scaled.experiment.workload.is_checkpointing:
        raise PlanError(f"{scaled.experiment.name} does not alternate computing and checkpoints", code="workload")
    if scaled.bucket is not None:
        raise PlanError(
            f"{scaled.experiment.name} has a data volume with credits, of no one bandwidth", code="workload"
        )
    initial, *later = scaled.dumps_bytes
    if len(set(later)) != 1:
        raise PlanError(f"{scaled.experiment.name} has checkpoints of several sizes", code="workload")
    return Application(
        checkpoint_gb=later[0] / GB,
        checkpoints=len(later),
        iteration_s=scaled.compute_each_s,
        iterations=len(later),
        initial_gb=initial / GB,
    )


def to_text(prediction: Prediction) -> str:
    """Predicted and measured figures as a table."""
    rows = [
        (
            name,
            f"{found['predicted']['completion_s']:.1f}",
            f"{found['real']['completion_s']:.1f}",
            f"{found['time_ratio']:.4f}",
            f"{found['predicted']['agbs']:.0f}",
            f"{found['real']['agbs']:.0f}",
            f"{found['agbs_ratio']:.4f}",
        )
        for name, found in prediction.setups().items()
    ]
    heads = ("set-up", "predicted s", "measured s", "ratio", "predicted AGBs", "measured", "ratio")
    lines = table(heads, rows, left_out=0)[:-1]
    if prediction.verified is not None:
        lines.append(_deadline_text(prediction.verified))
    if (most := max(prediction.steal.values(), default=0.0)) > DISTURBING:
        lines.append(f"disturbed: steal time was up to {most:.0%} of the processor time of a stage")
    return "\n".join(lines)


def _deadline_text(verified: DeadlineCheck) -> str:
    if verified.chosen is None or verified.real is None:
        return verified.refusal or f"deadline {verified.max_time_s:g} s: not run yet"
    met = "met" if verified.is_met else "MISSED"
    asked = f"deadline {verified.max_time_s:g} s with {verified.chosen.cache_bytes / GB:.3g} GB"
    return f"{asked}: {verified.real.completion_s:.1f} s, {met}"
