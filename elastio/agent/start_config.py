"""The configuration that an agent starts with.

What is wrong beside its own file, in that of another device or in the prices of the provider, is found at a start only:
by an upgrade, by the watchdog, after a boot. An agent that refused to start then would leave a cache unflushed and paid
for. So with a cycle open in its journal it starts, and buys nothing until the configuration is right. It does so in any
case where it shares caps, and the file of another device may have held the lowest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elastio.agent.journal import open_cycle, read
from elastio.agent.market import policy_of, require_prices
from elastio.config.neighbours import UNKNOWN_CAPS, require_only_one
from elastio.config.paths import JOURNAL
from elastio.config.schema import Config, load, load_alone
from elastio.core.policy import Policy
from elastio.errors import ConfigError


def load_usable(path: Path) -> tuple[Config, Policy]:
    """The configuration of the file and its policy. Raises ConfigError if no boost could be bought with it."""
    config = load(path)
    require_prices(config)
    require_only_one(path, config.device.backing_uuid)
    return config, policy_of(config)


def load_for_start(path: Path) -> tuple[Config, Policy]:
    """The same, or one whose policy says why it buys nothing, for an agent that has a cache to look after.

    Raises ConfigError if the file itself is invalid, or no cycle is open and shared caps are known; JournalError.
    """
    try:
        return load_usable(path)
    except ConfigError as error:
        config = load_alone(path)
        if error.code != UNKNOWN_CAPS and open_cycle(read(config.agent.state_dir / JOURNAL)) is None:
            raise
        return config, replace(config.policy(), buys_nothing=f"the configuration has to be corrected: {error}")
