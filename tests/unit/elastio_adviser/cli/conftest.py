"""The command line with a ledger, as the agent's own commands are tested with it."""

from __future__ import annotations

from tests.unit.elastio_cli.conftest import elastio

__all__ = ["elastio"]
