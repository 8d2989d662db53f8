"""`elastiod --sim` in a thread, on the socket of the test; its time runs much faster than ours."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from elastio.config.schema import Config
from elastio.core.state import Phase
from elastio_sim.daemon import SimDaemon, default_config
from elastio_sim.workload import Workload

TURN_S, AHEAD_S = 0.002, 0.1


class SimMachine:
    """`settings` are those of the simulated world. `load` begins when the first boost does; none by default."""

    def __init__(
        self, socket: Path, settings: dict[str, Any] | None = None, load: Workload | None = None, **around: Any
    ) -> None:
        config: Config = around.get("config") or default_config()
        if settings:
            config = replace(config, provider=replace(config.provider, settings=settings))
        self.daemon = SimDaemon(config, socket)
        self.daemon.simulation.world.workload = Workload()
        self._load = load
        self.daemon.turn(0, 5)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._stop.is_set():
            self.daemon.turn(TURN_S, AHEAD_S)
            if self._load is not None and self.daemon.simulation.phase is not Phase.IDLE:
                self.daemon.simulation.world.workload, self._load = self._load, None

    def stop(self) -> None:
        """End the thread; afterwards the test may read, or turn, the simulation."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        self.stop()
        self.daemon.close()

    @property
    def bought(self) -> list[tuple[int, str]]:
        """Size in bytes and state of each volume, in the order of their purchase."""
        return [(v.size_bytes, v.state.value) for v in self.daemon.simulation.world.provider.volumes.values()]
