"""Records throughput in the guest: `python3 recorder.py OUT SECONDS`. One JSON line per interval.

Keys: `t` (wall clock), `disks` (name -> [read sectors, written sectors], cumulative), `serials` (name -> serial, or
the device-mapper name).
"""

import json
import os
import sys
import time
from typing import Any


def serials() -> dict[str, Any]:
    found = {}
    for name in os.listdir("/sys/block"):
        places = ("serial", "device/serial", "dm/name")
        for path in (f"/sys/block/{name}/{place}" for place in places):
            try:
                with open(path) as file:
                    found[name] = file.read().strip()
                break
            except OSError:
                continue
    return found


def disks() -> dict[str, Any]:
    found = {}
    with open("/proc/diskstats") as file:
        for line in file:
            fields = line.split()
            if fields[2].startswith(("vd", "nvme", "bcache", "dm-")):
                found[fields[2]] = [int(fields[5]), int(fields[9])]
    return found


def main() -> None:
    out, interval = sys.argv[1], float(sys.argv[2])
    at = time.monotonic()
    with open(out, "a", buffering=1) as file:
        while True:
            file.write(json.dumps({"t": round(time.time(), 3), "disks": disks(), "serials": serials()}) + "\n")
            at += interval
            time.sleep(max(0.0, at - time.monotonic()))


if __name__ == "__main__":
    main()
