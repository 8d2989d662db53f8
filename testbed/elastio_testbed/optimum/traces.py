"""Forty loads: published, recorded, periodic, random, diurnal, checkpoints of a database, and hostile. Seeds are fixed.

Every load is a closed loop: the next part begins when the one before it is done. A part with zero seconds is written as
fast as the device takes it. The diurnal loads have days of two hours, so that a run has more than one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from elastio.units import GB
from elastio_adviser.checkpointing import CM1, LAMMPS, Profile
from elastio_adviser.rates import TraceError
from elastio_adviser.replay import Demand, demands
from elastio_adviser.traces import parse_csv, read
from elastio_adviser.whatif import MOST_MOVED_BYTES, MOST_S
from elastio_testbed.optimum.hostile import dump, hostile, pause

# The guests of the recordings wrote at 128 MB/s: above that share of it the recording shows the device, not the demand.
RECORDED_MB_S = 128.0
DAY_S = 7200.0


@dataclass(frozen=True, slots=True)
class Load:
    """One trace. `kind` groups traces in the result.

    `unsure_s`: for parts whose pause before them was drawn with equal likelihood between two lengths, by their number:
    by how many seconds it is longer than the shortest. `mean_s`: the mean of the law, where that is exponential.
    """

    name: str
    kind: str
    wanted: tuple[Demand, ...]
    unsure_s: Mapping[int, float] = field(default_factory=dict)
    mean_s: Mapping[int, float] = field(default_factory=dict)

    @property
    def own_s(self) -> float:
        """The time of the load on a device that is never waited for."""
        return sum(d.seconds for d in self.wanted)


def loads() -> tuple[Load, ...]:
    """All forty."""
    made = (Load(name, "hostile", wanted) for name, wanted in hostile())
    return (*_published(), *_recorded(), *_periodic(), *_random(), *_diurnal(), *_checkpoints(), *made)


def loads_in(folder: Path, saturated_mb_s: float | None = None) -> tuple[Load, ...]:
    """The traces of a folder, in any format that `elastio simulate` reads without options. Raises TraceError."""
    paths = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
    if not paths:
        raise TraceError(f"{folder} holds no traces: nothing was compared", code="folder.empty")
    return tuple(Load(p.stem, "given", _checked(p, demands(read(p).rates, saturated_mb_s))) for p in paths)


def _checked(path: Path, wanted: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """Raises TraceError for a trace that would take days to simulate."""
    seconds, moved = sum(d.seconds for d in wanted), sum(d.moved_bytes for d in wanted)
    if seconds > MOST_S or moved > MOST_MOVED_BYTES:
        raise TraceError(
            f"{path} is too long: at most {MOST_S / 86400:g} days and {MOST_MOVED_BYTES / 1e12:g} TB are replayed",
            code="duration",
        )
    return wanted


def _published() -> Iterator[Load]:
    for name, profile in (("cm1", CM1), ("lammps", LAMMPS)):
        yield Load(f"published-{name}", "published", tuple(_of_profile(profile)))


def _of_profile(profile: Profile) -> Iterator[Demand]:
    yield dump(profile.initial_bytes / GB)
    for _ in range(profile.iterations):
        yield pause(profile.compute_s)
        yield dump(profile.dump_bytes / GB)
    yield pause(30.0)


def _recorded() -> Iterator[Load]:
    folder = files("elastio_testbed.optimum") / "recorded"
    for name in ("cm1", "cm1-whole", "lammps"):
        text = (folder / f"{name}.csv").read_text()
        yield Load(f"recorded-{name}", "recorded", demands(parse_csv(text, "", name), RECORDED_MB_S))


def _alternating(
    pauses: Sequence[float], sizes_gb: Sequence[float], background_mb_s: float = 0.0
) -> tuple[Demand, ...]:
    found: list[Demand] = []
    for pause_s, size in zip(pauses, sizes_gb, strict=True):
        found += [pause(pause_s, background_mb_s), dump(size)]
    return (*found, pause(30.0))


def _of_bursts(values: Iterable[float]) -> dict[int, float]:
    """A value for each burst of `_alternating`, by the number of its part."""
    return {2 * number + 1: value for number, value in enumerate(values)}


def _periodic() -> Iterator[Load]:
    for size, pause_s, count in ((2, 300, 16), (4, 900, 8), (8, 1200, 6), (4, 300, 14), (1, 120, 30), (6, 600, 10)):
        draw = random.Random(size * 1000 + pause_s)
        pauses = [pause_s * draw.uniform(0.98, 1.02) for _ in range(count)]
        unsure = _of_bursts(drawn - 0.98 * pause_s for drawn in pauses)
        yield Load(f"periodic-{size}gb-{pause_s}s", "periodic", _alternating(pauses, [size] * count), unsure)


def _random() -> Iterator[Load]:
    plans = (
        (2, 120, 25),
        (4, 300, 20),
        (4, 900, 9),
        (8, 600, 10),
        (1, 60, 40),
        (3, 1800, 6),
        (6, 300, 15),
        (2, 600, 14),
    )
    for number, (size, pause_s, count) in enumerate(plans):
        draw = random.Random(100 + number)
        pauses = [draw.expovariate(1 / pause_s) for _ in range(count)]
        sizes = [size * draw.lognormvariate(0.0, 0.5) for _ in range(count)]
        mean = _of_bursts([pause_s] * count)
        yield Load(f"random-{size}gb-{pause_s}s", "random", _alternating(pauses, sizes), mean_s=mean)


def _diurnal() -> Iterator[Load]:
    """Bursts come three times as often in the middle of a day as at night."""
    for number, (size, pause_s, background) in enumerate(
        ((3, 400, 0), (3, 200, 2), (6, 600, 4), (1.5, 150, 0), (4, 300, 3))
    ):
        draw = random.Random(200 + number)
        at, pauses, least = 0.0, [], []
        while at < DAY_S:
            busy = 1.25 - 0.75 * math.cos(2 * math.pi * at / DAY_S)
            least.append(pause_s / busy * 0.5)
            pauses.append(pause_s / busy * draw.uniform(0.5, 1.5))
            at += pauses[-1] + 20
        sizes = [size * draw.uniform(0.7, 1.3) for _ in pauses]
        unsure = _of_bursts(drawn - shortest for drawn, shortest in zip(pauses, least, strict=True))
        yield Load(f"diurnal-{size:g}gb-{pause_s}s", "diurnal", _alternating(pauses, sizes, background), unsure)


def _checkpoints() -> Iterator[Load]:
    """A database writes its log all the time, reads a little, and every so often its dirty pages at a limited rate."""
    plans = ((300, 30, 120), (300, 60, 150), (600, 45, 200), (900, 120, 100), (300, 15, 300), (1800, 180, 140))
    for number, (every_s, lasts_s, rate_mb_s) in enumerate(plans):
        draw = random.Random(300 + number)
        found = []
        for _ in range(max(3, round(3600 / every_s))):
            found.append(pause(every_s - lasts_s, 4.0, 1.0))
            found.append(pause(lasts_s, rate_mb_s * draw.uniform(0.8, 1.2), 1.0))
        yield Load(f"checkpoints-{every_s}s-{rate_mb_s}mb", "checkpoints", (*found, pause(30.0, 4.0, 1.0)))
