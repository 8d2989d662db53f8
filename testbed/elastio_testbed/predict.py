"""Calibrate in a guest, predict an experiment, run it for real, and hold the one against the other."""

from __future__ import annotations

import shlex
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from elastio.units import GB, GIB
from elastio_calibration.application import Application
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.optimum import Choice, Wish, best, choices
from elastio_calibration.predict import CacheSizes, Forecast, Predictor
from elastio_calibration.profile import Profile, merge, to_document
from elastio_calibration.record import read
from elastio_calibration.study import make_profile, solve
from elastio_testbed import experiment
from elastio_testbed.experiment import Scaled
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.hypervisor.accel import accelerator
from elastio_testbed.image import GuestImage, build_guest_image
from elastio_testbed.machine import DATA, MIN_CACHE_GIB, Guest
from elastio_testbed.result import Result, SetupResult
from elastio_testbed.trial import Plan, Trial, open_endpoint
from elastio_testbed.workloads import Dumps

Say = Callable[[str], None]

RECORD = "/var/tmp/calibration.jsonl"
# As many as the checkpointing application has processes.
WRITERS = Dumps().ranks
LOG = "/var/tmp/calibration.log"
ENDED = "ended with code "
POLL_S = 5.0
# A measurement that hangs is given up after so much longer than it should take.
PATIENCE_S = 900.0
# Between two dumps of the fast volume's calibration.
PAUSE_S = 2.0
# From the first cache down to what the agent learns for the smallest published dump (3 GB, drained meanwhile).
CACHES_OF_FIRST = (0.3, 0.4, 0.5, 0.65, 1.0)


@dataclass(frozen=True, slots=True)
class Verified:
    """A deadline, the size that was recommended for it, and the real run with that size."""

    max_time_s: float
    chosen: Choice
    offered: tuple[Choice, ...]
    real: SetupResult

    def to_json(self) -> dict[str, Any]:
        return {
            "max_time_s": self.max_time_s,
            "recommended_gb": self.chosen.cache_bytes / GB,
            "predicted_s": self.chosen.forecast.completion_s.value,
            "real_s": self.real.completion_s,
            "met": self.real.completion_s <= self.max_time_s,
            "choices": [
                {
                    "cache_gb": c.cache_bytes / GB,
                    "completion_s": c.forecast.completion_s.value,
                    "completion_high_s": c.forecast.completion_s.safe_high,
                    "agbs": c.forecast.agbs.value,
                }
                for c in self.offered
            ],
        }


@dataclass(frozen=True, slots=True)
class Prediction:
    """What was predicted, from what, and what then happened. `time_ratio`, `agbs_ratio`: predicted over real."""

    plan: Plan
    profile: Profile
    forecasts: tuple[Forecast, ...]
    result: Result
    verified: Verified | None = None

    def setups(self) -> dict[str, dict[str, Any]]:
        """Per set-up: predicted, real, and their ratios."""
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
                "real_caches_gb": [p.size_gb for p in real.phases],
            }
        return found

    def to_json(self) -> dict[str, Any]:
        solution = solve(self.profile.measurements)
        return {
            "experiment": self.plan.experiment,
            "scale": self.plan.scale,
            "bandwidth": self.plan.bandwidth,
            "accelerator": accelerator(),
            "setups": self.setups(),
            "plan": None if self.verified is None else self.verified.to_json(),
            "throughput_noise": solution.throughput_noise,
            "holding_noise": solution.holding_noise,
            "real": {s.setup.value: asdict(s) for s in self.result.setups},
            "profile": to_document(self.profile),
        }


def _dumps(forecast: Forecast) -> tuple[Any, ...]:
    return (*([forecast.initial] if forecast.initial else []), *forecast.checkpoints)


def predict(plan: Plan, repeats: int, max_time_s: float | None, say: Say) -> Prediction:
    """Everything in turn, on fresh guests. Raises HypervisorError, ImageError or ElastioError."""
    image, scaled = build_guest_image(tools=plan.needs_tools), plan.scaled()
    profile = calibrate(plan, repeats, image, say)
    predictor = Predictor(profile, scaled.backing_bytes)
    application = application_of(scaled)
    first_bytes = round(scaled.initial_cache_gib * GIB)
    forecasts = predictor.all_setups(application, CacheSizes(first_bytes))
    for f in forecasts:
        say(f"predicted {f.setup}: {f.completion_s.value:.1f} s, {f.agbs.value:.0f} AGBs")
    result = Result(tuple(run_one(plan, setup, image, say) for setup in plan.setups))
    verified = None if max_time_s is None else verify(plan, predictor, application, max_time_s, image, say)
    return Prediction(plan, profile, forecasts, result, verified)


def verify(
    plan: Plan, predictor: Predictor, application: Application, max_time_s: float, image: GuestImage, say: Say
) -> Verified:
    """Recommend a size for the deadline and run the adaptive set-up with it as its first."""
    offered = choices([predictor], application)
    chosen = best(offered, Wish(max_time_s=max_time_s))
    say(f"recommended for {max_time_s:g} s: {chosen}; running it")
    published_gb = chosen.cache_bytes / GB / (plan.scale * plan.bandwidth)
    real = run_one(replace(plan, initial_cache_gb=published_gb), experiment.Setup.ADAPTIVE, image, say)
    return Verified(max_time_s, chosen, offered, real)


def run_one(plan: Plan, setup: experiment.Setup, image: GuestImage, say: Say) -> SetupResult:
    """One set-up for real."""
    with Trial(plan, setup, image, say) as trial:
        trial.prepare()
        trial.start()
        trial.finish(threading.Event())
        return trial.conclude()[0]


def application_of(scaled: Scaled) -> Application:
    """The experiment as an application: bytes and seconds of the guest."""
    initial, *later = scaled.dumps_bytes
    if len(set(later)) != 1:
        raise GuestError(f"{scaled.experiment.name} has checkpoints of several sizes: the model knows one")
    return Application(
        checkpoint_gb=later[0] / GB,
        checkpoints=len(later),
        iteration_s=scaled.compute_each_s,
        iterations=len(later),
        initial_gb=initial / GB,
    )


# --- calibrating -----------------------------------------------------------------------------------------


def calibrate(plan: Plan, repeats: int, image: GuestImage, say: Say) -> Profile:
    """`elastio calibrate` on the adaptive device of a guest, and the same dumps on a fast volume of another."""
    scaled = plan.scaled()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elastio-predict-", dir="/var/tmp")))
        endpoint = stack.enter_context(open_endpoint(plan, scaled, folder / "cloud"))
        guest = Guest(image, folder / "vm", "vm0", experiment.Setup.ADAPTIVE, scaled)
        stack.enter_context(guest.vm)
        guest.prepare(endpoint)
        _calibrate_in(guest, repeats, say)
        record = folder / "record.jsonl"
        record.write_bytes(guest.vm.agent.read_file(RECORD))
        adaptive = make_profile(read(record))
    fast = _fast(plan, repeats, image, say)
    return merge([adaptive, replace(adaptive, measurements=fast)])


def calibration_command(scaled: Scaled, repeats: int) -> list[str]:
    """The command that runs in the guest: both dumps, with caches around the first one.

    Raises GuestError at a scale where bcache takes hardly more than one of the sizes: nothing could be interpolated.
    """
    first_gb = scaled.initial_cache_gib * GIB / GB
    sizes = [first_gb * share for share in CACHES_OF_FIRST if first_gb * share * GB >= MIN_CACHE_GIB * GIB]
    if len(sizes) < 2:
        raise GuestError(f"scale {scaled.time:g} is too small: caches would have less than {MIN_CACHE_GIB} GiB")
    datasets = ",".join(f"{size / GB:.9f}" for size in sorted(set(scaled.dumps_bytes)))
    caches = ",".join(f"{size:.9f}" for size in sizes)
    return [
        *("elastio", "calibrate", DATA, "--stage", "run", "--yes", "--no-prices", "--record", RECORD),
        *("--datasets", datasets, "--caches", caches, "--repeats", str(repeats)),
        *("--writers", str(WRITERS)),
    ]


def _calibrate_in(guest: Guest, repeats: int, say: Say) -> None:
    """Raises GuestError with the last lines when it fails or nothing is recorded for long.

    Followed by its log file: a program started in the guest at every look would disturb what is measured.
    """
    script = f"{shlex.join(calibration_command(guest.scaled, repeats))} >{LOG} 2>&1; echo {ENDED}$? >>{LOG}"
    guest.vm.agent.write_file(LOG, b"")
    guest.check(["systemd-run", "--unit=calibrate", "sh", "-c", script])
    seen, changed = 0, time.monotonic()
    while True:
        lines = guest.vm.agent.read_file(LOG).decode(errors="replace").splitlines()
        for line in lines[seen:]:
            say(f"calibrating: {line.strip()}")
        if len(lines) > seen:
            seen, changed = len(lines), time.monotonic()
        if lines and lines[-1].startswith(ENDED):
            break
        if time.monotonic() - changed > PATIENCE_S:
            raise GuestError(f"the calibration shows no progress: {'; '.join(lines[-3:])}")
        time.sleep(POLL_S)
    if lines[-1] != f"{ENDED}0":
        raise GuestError(f"the calibration failed: {'; '.join(lines[-3:])}")


def _fast(plan: Plan, repeats: int, image: GuestImage, say: Say) -> tuple[Measurement, ...]:
    """The dumps of the experiment on a fast volume, without computing between them."""
    say("calibrating: the fast volume")
    scaled = plan.scaled()
    dumps = tuple(sorted(set(scaled.experiment.dumps_gb))) * repeats
    pauses_s = PAUSE_S * (len(dumps) - 1) / plan.scale
    hasty = replace(scaled.experiment, dumps_gb=dumps, compute_s=pauses_s, workload=Dumps(WRITERS))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elastio-predict-", dir="/var/tmp")))
        endpoint = stack.enter_context(open_endpoint(plan, scaled, folder / "cloud"))
        guest = Guest(image, folder / "vm", "vm0", experiment.Setup.STATIC_FAST, replace(scaled, experiment=hasty))
        stack.enter_context(guest.vm)
        guest.prepare(endpoint)
        guest.start_workload(plan.seed)
        end = time.monotonic() + PATIENCE_S
        while (state := guest.workload_state()) == "running" and time.monotonic() < end:
            time.sleep(1.0)
        if state != "done":
            raise GuestError(f"the fast volume was not measured: the workload is {state}")
        return tuple(Measurement(Setup.STATIC_FAST, d["bytes"], d["ended"] - d["began"]) for d in guest.dumps())


def to_text(prediction: Prediction) -> str:
    """Predicted and real, side by side."""
    heads = ("predicted s", "real s", "ratio", "predicted AGBs", "real", "ratio")
    lines = ["set-up       " + " ".join(f"{h:>{w}}" for h, w in zip(heads, (12, 10, 8, 15, 10, 8), strict=True))]
    for name, found in prediction.setups().items():
        was, is_ = found["predicted"], found["real"]
        lines.append(
            f"{name:<12} {was['completion_s']:>12.1f} {is_['completion_s']:>10.1f} {found['time_ratio']:>8.4f} "
            f"{was['agbs']:>15.0f} {is_['agbs']:>10.0f} {found['agbs_ratio']:>8.4f}"
        )
    if prediction.verified is not None:
        plan = prediction.verified.to_json()
        met = "met" if plan["met"] else "MISSED"
        asked = f"deadline {plan['max_time_s']:g} s with {plan['recommended_gb']:.3g} GB"
        lines.append(f"{asked}: {plan['real_s']:.1f} s, {met}")
    return "\n".join(lines)
