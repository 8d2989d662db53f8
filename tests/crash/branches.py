"""Cases of one scenario from one run of it: at the point of each, a copy of the process (fork(2)) goes on with it.

All cases of a point, and of later ones, have the run up to there in common, which is computed once. A copy has the
state of the run: simulator, agent, ledger. What is in files, the statements of agents that share caps, is put back
after each copy. The last case is played by the process itself, so one case alone is played without a copy.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NoReturn, Protocol, TypeVar

from .crashes import CrashPoint


class AtPoint(Protocol):
    """What strikes at the point of this number."""

    @property
    def number(self) -> int: ...


Case = TypeVar("Case", bound=AtPoint)
End = TypeVar("End")


class Branches(CrashPoint, Generic[Case, End]):
    """`begin` strikes: it is called in the process that plays the case. `lost` is the end of one whose copy failed."""

    def __init__(
        self,
        cases: Sequence[Case],
        begin: Callable[[Case, str], None],
        lost: Callable[[Case, str], End],
        folder: Path,
    ) -> None:
        super().__init__()
        self.waiting = sorted(cases, key=lambda case: case.number)
        self.ends: list[End] = []
        self._begin, self._lost, self._folder = begin, lost, folder
        self._answer: int | None = None

    def __call__(self, point: str) -> None:
        self.passed.append(point)
        while self.waiting and self.waiting[0].number == len(self.passed) - 1:
            case = self.waiting.pop(0)
            if self.waiting and self._is_played_by_a_copy(case, point):
                continue
            self.waiting.clear()
            self._begin(case, point)

    def _is_played_by_a_copy(self, case: Case, point: str) -> bool:
        """True in this process, once the copy has ended; False in the copy."""
        files = {path: path.read_bytes() for path in self._files()}
        ours, self._answer = os.pipe()
        copy = os.fork()
        if not copy:
            os.close(ours)
            return False
        os.close(self._answer)
        self._answer = None
        with open(ours, "rb") as answer:
            said = answer.read()
        status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
        self.ends += [self._lost(case, f"its process ended with {status}")] if status else pickle.loads(said)
        for path in self._files():
            path.unlink()
        for path, content in files.items():
            path.write_bytes(content)
        return True

    def _files(self) -> list[Path]:
        return [path for path in self._folder.rglob("*") if path.is_file()]

    def play(self, run: Callable[[], list[End]]) -> list[End]:
        """`run`, and the ends of all copies that were made meanwhile. In a copy it does not return."""
        try:
            ends = run()
        except BaseException:
            if self._answer is None:
                raise
            traceback.print_exc()
            os._exit(1)
        if self._answer is not None:
            self._tell(ends, self._answer)
        return [*self.ends, *ends]

    @staticmethod
    def _tell(ends: list[End], answer: int) -> NoReturn:
        """Nothing of the copied process runs any more: no handler, no clean-up."""
        with open(answer, "wb") as file:
            pickle.dump(ends, file)
        os._exit(0)
