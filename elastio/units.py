"""Units: sizes in bytes, bandwidth in MB/s (10^6), cost in AGBs (MB/s x GB x s, with GB = 10^9)."""

from __future__ import annotations

SECTOR = 512  # bytes: the kernel's unit of sizes and rates, whatever a device's own sector is
KIB = 1024
MIB = 1024**2
GIB = 1024**3
MB = 10**6
GB = 10**9
MOST_SOCKET_BYTES = 107  # of the path of a Unix socket (unix(7): sun_path, with a zero byte at its end)


def agbs(bandwidth_mb_s: float, size_bytes: float, seconds: float) -> float:
    """Adjusted GB seconds: the cost of a volume of this size and bandwidth for `seconds`."""
    return bandwidth_mb_s * (size_bytes / GB) * seconds


def format_size(size_bytes: float) -> str:
    """`10.0 GiB`, `512.0 MiB`: binary units, one decimal."""
    if abs(size_bytes) >= GIB:
        return f"{size_bytes / GIB:.1f} GiB"
    if abs(size_bytes) >= MIB:
        return f"{size_bytes / MIB:.1f} MiB"
    return f"{size_bytes / KIB:.1f} KiB"


def counted(number: int, noun: str) -> str:
    """`1 boost`, `2 boosts`, `0 boosts`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """`4.2 s`, `3 min 05 s`, `2 h 07 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60:02d} min"
