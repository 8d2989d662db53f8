"""The calibration for the prediction of an experiment: guests with the adaptive, the slow and the fast device."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from elastio.units import GB, GIB, MB
from elastio_calibration.measurement import Measurement, Setup
from elastio_calibration.profile import Profile, merge
from elastio_calibration.record import read
from elastio_calibration.study import make_profile
from elastio_testbed import experiment
from elastio_testbed.console import Say
from elastio_testbed.errors import PlanError
from elastio_testbed.experiment import MIN_CACHE_GIB, Scaled
from elastio_testbed.hypervisor import GuestError
from elastio_testbed.image import GuestImage
from elastio_testbed.machine import DATA, Guest
from elastio_testbed.scratch import scratch_folder
from elastio_testbed.trial import Plan, running_guest, workload_timeout_s

RECORD = "/var/tmp/calibration.jsonl"
LOG = "/var/tmp/calibration.log"
ENDED = "ended with code "
POLL_S = 5.0
# A calibration without progress is given up after this time.
PATIENCE_S = 900.0
# Between two dumps on the fast volume: immediately after a dump the next one takes longer, because of what the kernel's
# threads still have to do for the first.
PAUSE_S = 10.0
# Cache sizes as shares of a checkpoint, in addition to the initial cache. The agent learns a size just above 1, and a
# cache just below 1 is too small: the curve bends there. The first dump gets the initial cache, and another one only
# if a smaller size is planned, so its curve needs fewer points.
CACHES_OF_CHECKPOINTS = (0.65, 0.85, 1.0, 1.2)
CACHES_OF_FIRST = (0.65, 1.2)
# The factor below which two sizes count as one.
APART = 1.02


@dataclass(frozen=True, slots=True)
class Fast:
    """The dumps on a fast volume. `pace_mb_s`: how fast the application produces its data; 0: faster than it writes."""

    measurements: tuple[Measurement, ...]
    pace_mb_s: float


def calibrate(plan: Plan, repeats: int, image: GuestImage, say: Say) -> Profile:
    """Run the application's own dumps on a fast volume, then `elastio calibrate` in another guest.

    Raises PlanError, GuestError or another HypervisorError; nothing is kept of a calibration that failed.
    """
    calibration_commands(plan.scaled(), repeats, 0.0)
    say("calibrating: the fast volume")
    fast = _fast(plan, image)
    pace = f", produced at {fast.pace_mb_s:.1f} MB/s" if fast.pace_mb_s else ""
    say(f"calibrating: {', '.join(f'{m.seconds:.1f}' for m in fast.measurements)} s{pace}; now the adaptive device")
    adaptive = _adaptive(plan, repeats, fast.pace_mb_s, image, say)
    return merge([adaptive, replace(adaptive, measurements=fast.measurements)])


# --- the adaptive device, and the slow volume behind it ----------------------------------------------------


def grids(scaled: Scaled) -> dict[int, tuple[float, ...]]:
    """Cache sizes in GB for each dataset in bytes.

    Raises PlanError at a scale where bcache accepts hardly more than one of them: nothing could be interpolated.
    """
    shares: dict[int, tuple[float, ...]] = {
        scaled.dumps_bytes[0]: CACHES_OF_FIRST,
        scaled.dumps_bytes[-1]: CACHES_OF_CHECKPOINTS,
    }
    return {size: _caches_gb(scaled, caches) for size, caches in shares.items()}


def _caches_gb(scaled: Scaled, shares: Sequence[float]) -> tuple[float, ...]:
    first_gb, least_gb = scaled.initial_cache_gib * GIB / GB, scaled.least_cache_gib * GIB / GB
    found: list[float] = []
    for size in (max(least_gb, share * scaled.dumps_bytes[-1] / GB) for share in shares):
        if size * APART < first_gb and (not found or size > found[-1] * APART):
            found.append(size)
    if not found:
        raise PlanError(
            f"scale {scaled.time:g} is too small: caches would have less than {MIN_CACHE_GIB} GiB", code="scale"
        )
    return (*found, first_gb)


def calibration_commands(scaled: Scaled, repeats: int, pace_mb_s: float) -> list[list[str]]:
    """The commands that run in the guest one after the other, with one record. Raises PlanError, see `grids`."""
    return [
        [
            *("elastio", "calibrate", DATA, "--stage", "run", "--yes", "--no-prices", "--record", RECORD),
            *("--datasets", f"{dataset_bytes / GB:.9f}", "--caches", ",".join(f"{gb:.9f}" for gb in caches_gb)),
            *("--repeats", str(repeats), "--writers", str(scaled.experiment.workload.writers)),
            *("--pace", f"{pace_mb_s:.3f}"),
        ]
        for dataset_bytes, caches_gb in grids(scaled).items()
    ]


def _adaptive(plan: Plan, repeats: int, pace_mb_s: float, image: GuestImage, say: Say) -> Profile:
    scaled = plan.scaled()
    workload = scaled.experiment.workload
    commands = calibration_commands(scaled, repeats, pace_mb_s)
    # The dirty limits of the kernel depend on the available memory, so it has to be the same as beside the application.
    memory_mib = workload.memory_mib(scaled) - workload.resident_mib(scaled)
    with running_guest(plan, experiment.Setup.ADAPTIVE, image, memory_mib=memory_mib) as (guest, _):
        _calibrate_in(guest, commands, say)
        text = guest.vm.agent.read_file(RECORD)
    with scratch_folder("elastio-predict-") as folder:
        record = Path(folder) / "record.jsonl"
        record.write_bytes(text)
        return make_profile(read(record))


def _calibrate_in(guest: Guest, commands: Sequence[Sequence[str]], say: Say) -> None:
    """Run the commands. Raises GuestError with the last lines if they fail or make no progress.

    Progress is read from a log file: starting a program in the guest for each poll would disturb the measurement.
    """
    both = " && ".join(shlex.join(command) for command in commands)
    guest.vm.agent.write_file(LOG, b"")
    guest.check(["systemd-run", "--unit=calibrate", "sh", "-c", f"{{ {both}; }} >{LOG} 2>&1; echo {ENDED}$? >>{LOG}"])
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


# --- the fast volume ---------------------------------------------------------------------------------------


def _fast(plan: Plan, image: GuestImage) -> Fast:
    """Run the application itself, with as little computing between its dumps as possible."""
    scaled = plan.scaled()
    pauses = len(scaled.dumps_bytes) - 1
    hasty = replace(scaled, experiment=replace(scaled.experiment, compute_s=PAUSE_S * pauses / scaled.time))
    with running_guest(plan, experiment.Setup.STATIC_FAST, image, hasty) as (guest, _):
        guest.start_workload(plan.seed)
        # Computing that cannot be left out takes no longer than the original pauses.
        end = time.monotonic() + workload_timeout_s(scaled)
        while (state := guest.workload_state()) == "running" and time.monotonic() < end:
            time.sleep(1.0)
        if state != "done":
            raise GuestError(f"the fast volume was not measured: the workload is {state}")
        return measured_fast(guest.dumps())


def measured_fast(dumps: Sequence[dict[str, Any]]) -> Fast:
    """From the lines of a workload's report. The pace is that of the later dumps: the first may be delayed."""
    made = tuple(Measurement(Setup.STATIC_FAST, d["bytes"], d["ended"] - d["began"]) for d in dumps)
    paces = [d["bytes"] / MB / d["figures"]["lammps_wrote_s"] for d in dumps[1:] if "figures" in d]
    return Fast(made, round(median(paces), 3) if paces else 0.0)
