"""elastiod without its event log, to measure what that costs: `python3 -I unlogged_daemon.py`, in elastiod's unit.

Neither the modules that tell events nor the connection to the journal of systemd are there; log lines go to stderr.
"""

import logging
import sys
import types
from typing import Any

MODULES = "/usr/share/elastio"


class Untold:
    """`ports.Reporter` that tells nobody."""

    def __init__(self, device: str) -> None:
        pass

    def decided(self, *args: object, **named: object) -> None:
        pass

    failed = works_again = decided


def module(name: str, **content: Any) -> types.ModuleType:
    """Makes a module of this name, which is found instead of the real one."""
    made = sys.modules[name] = types.ModuleType(name)
    made.__dict__.update(content)
    return made


def without_event_log() -> None:
    """To be called before the daemon is imported."""
    module("elastio.agent.narration", EventLog=Untold)
    import elastio.host  # noqa: PLC0415  importable from here on

    vars(elastio.host)["journald"] = module("elastio.host.journald", handler=logging.StreamHandler)


def main() -> None:
    sys.path.insert(0, MODULES)
    without_event_log()
    from elastio.agent.elastiod import main as elastiod  # noqa: PLC0415  as above

    elastiod()


if __name__ == "__main__":
    main()
