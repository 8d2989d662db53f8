"""Processor time and memory of an idle systemd unit: `python3 footprint.py UNIT SECONDS`, one JSON object on stdout.

`cpu_s` over `seconds`; `pss_mib` (proportional set size) and `processes` at the end; `spin_s` for a fixed piece of
Python, which compares the speed of this processor with that of another one.
"""

import json
import sys
import time


def cgroup(unit: str) -> str:
    return f"/sys/fs/cgroup/system.slice/{unit}.service"


def cpu_seconds(unit: str) -> float:
    with open(f"{cgroup(unit)}/cpu.stat") as file:
        fields = dict(line.split() for line in file)
    return int(fields["usage_usec"]) / 1e6


def processes(unit: str) -> list[str]:
    with open(f"{cgroup(unit)}/cgroup.procs") as file:
        return file.read().split()


def pss_kib(process: str) -> int:
    with open(f"/proc/{process}/smaps_rollup") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))


def spin() -> float:
    """Processor seconds of a fixed amount of work."""
    began, total = time.process_time(), 0
    for number in range(2_000_000):
        total += number * number % 7
    return time.process_time() - began


def main() -> None:
    unit, seconds = sys.argv[1], float(sys.argv[2])
    before, began = cpu_seconds(unit), time.monotonic()
    time.sleep(seconds)
    used, took = cpu_seconds(unit) - before, time.monotonic() - began
    running = processes(unit)
    pss = sum(pss_kib(process) for process in running) / 1024
    result = {"seconds": took, "cpu_s": used, "pss_mib": pss, "processes": len(running), "spin_s": spin()}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
