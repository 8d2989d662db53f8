"""The simulated kernel is an engine as the contract says. Guests hold the real one to the same steps."""

from __future__ import annotations

from collections.abc import Callable

from elastio.core.model import BackingView
from elastio.ports import CacheHost
from elastio.units import MIB
from tests.contract.cache_host import LONG_S, STEPS, backing, device, play
from tests.unit.elastio_sim.conftest import BLOCK, CACHE, Machine

SIZE_BYTES = 16 * MIB


class Simulated:
    """The engine of the simulator."""

    def __init__(self) -> None:
        self._machine = Machine()
        self._machine.plug(CACHE, SIZE_BYTES)
        self.host: CacheHost = self._machine.host
        self.serial, self.size_bytes = CACHE, SIZE_BYTES

    def write(self, mib: int) -> None:
        self._machine.write(range(mib * MIB // BLOCK), 5.0)

    def wait(self, is_so: Callable[[BackingView], bool]) -> None:
        for _ in range(int(LONG_S)):
            if is_so(backing(self)):
                return
            self._machine.run(1.0)
        raise TimeoutError(device(self))


def test_the_simulated_kernel_answers_each_step_as_the_contract_says() -> None:
    assert [*play(Simulated())] == [(step.what, step.answer) for step in STEPS]
