"""The patterns of the published experiment with shares of 2:1, for a volume of any speed. Pure.

In an overloaded pattern both applications want all that they can get. In an underloaded one they want less than the
capacity together, and the second one more than its third. Published patterns of this kind are 32 threads on one file,
whose wishes are those of the disk; here they are given, so that a strict partition of 2:1 leaves room: it serves 0.20
and 0.33 of the wanted 0.20 and 0.65, and who serves all of it moves 1.59 times as much.
"""

from __future__ import annotations

from dataclasses import dataclass

from elastio.units import KIB

# Threads of each application.
JOBS = 32
# Of the capacity.
WANTS = (0.20, 0.65)
SEQUENTIAL = (256 * KIB,)
# 4, 8 and 16 KiB at 30, 40 and 30 %.
RANDOM = (4 * KIB,) * 3 + (8 * KIB,) * 4 + (16 * KIB,) * 3


@dataclass(frozen=True, slots=True)
class Pattern:
    """`reads`: their share, 0 to 1. `wants`: what each application wants, as a share of the capacity; none: all."""

    name: str
    reads: float
    is_random: bool = False
    wants: tuple[float, float] | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of requests in bytes, one drawn for each."""
        return RANDOM if self.is_random else SEQUENTIAL


O_SW, O_SR, O_SRW = Pattern("O-SW", 0.0), Pattern("O-SR", 1.0), Pattern("O-SRW", 0.5)
O_RW = Pattern("O-RW", 0.0, is_random=True)
U_SW, U_SR, U_SRW = (
    Pattern("U-SW", 0.0, wants=WANTS),
    Pattern("U-SR", 1.0, wants=WANTS),
    Pattern("U-SRW", 0.5, wants=WANTS),
)
U_RRW = Pattern("U-RRW", 0.5, is_random=True, wants=WANTS)

PATTERNS = {p.name: p for p in (O_SW, O_SR, O_RW, O_SRW, U_SW, U_SR, U_SRW, U_RRW)}
# Figure 4, one after the other. Its text gives the third the name of the second, and describes it as the fifth.
FIGURE_4 = (O_SW, U_SR, U_SW, O_SR, U_SW, O_SW, O_RW)
# The rest of what the tables compare.
IN_A_ROW = (*FIGURE_4, U_SRW, O_SRW, U_RRW)
# With a cache, small writes come last: they leave files in pieces there, and what reads them then is slower.
OVERLOADED = (O_SW, O_SR, O_SRW, O_RW)


@dataclass(frozen=True, slots=True)
class Published:
    """MB/s of both applications by pattern: without control (CFQ), with a strict partition (Blkio), with iShare."""

    none: tuple[float, float]
    strict: tuple[float, float]
    shares: tuple[float, float]


# Tables III and IV, in KB/s there; reads and writes of mixed patterns together.
PUBLISHED = {
    "O-SW": Published((80.176, 65.061), (105.783, 52.876), (102.847, 51.483)),
    "O-SR": Published((22.829, 20.109), (28.403, 14.232), (28.614, 14.461)),
    "O-RW": Published((6.716, 3.446), (6.766, 3.431), (6.517, 3.623)),
    "O-SRW": Published((16.286, 14.281), (20.649, 10.322), (20.306, 10.530)),
    "U-SW": Published((73.348, 73.409), (56.063, 27.988), (66.539, 66.590)),
    "U-SR": Published((26.765, 28.054), (58.691, 29.975), (61.773, 31.849)),
    "U-SRW": Published((85.620, 85.691), (65.862, 33.116), (70.653, 71.148)),
    "U-RRW": Published((3.500, 3.468), (3.279, 1.635), (2.893, 2.963)),
}
