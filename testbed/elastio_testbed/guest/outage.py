"""How long nothing is mounted at a place: `outage.py PLACE`. Prints the seconds once something is mounted again."""

from __future__ import annotations

import sys
import time

LOOK_EVERY_S, LIMIT_S = 0.01, 600.0


def is_mounted(place: str) -> bool:
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        return any(line.split()[4] == place for line in file)


def main(place: str) -> None:
    end, since = time.monotonic() + LIMIT_S, None
    while time.monotonic() < end:
        if not is_mounted(place):
            since = since or time.monotonic()
        elif since is not None:
            print(round(time.monotonic() - since, 3), flush=True)
            return
        time.sleep(LOOK_EVERY_S)


if __name__ == "__main__":
    main(sys.argv[1])
