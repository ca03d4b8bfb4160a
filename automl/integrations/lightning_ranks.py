"""Reports of rank 0, which Lightning has spawned from the trial's process, made by that process.

A trial belongs to one process, and so does its line to the sweep. So rank 0 sends what it would
report; a thread of the trial's process reports it and answers with what is to be done. A state is
asked for only where a checkpoint is written, and then of all ranks: collecting it may need them.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from lightning.pytorch import Trainer

from automl.integrations.reports import LibraryReports
from automl.objectives.checkpoints.torch_checkpoint import snapshot
from automl.objectives.trial_context import TrialStopped


@dataclass(frozen=True)
class _RankReport:
    """What rank 0 would report."""

    step: int
    metrics: dict[str, float]
    has_state: bool


@dataclass(frozen=True)
class _FinalState:
    """The state after training, for when nobody is left to be asked."""

    state: Any


class _RankVerdict(Enum):
    GO_ON = "go on"
    GIVE_STATE = "give your state"
    END = "end"


class RankReportServer:
    """Takes reports in the trial's process, until rank 0 has ended."""

    def __init__(self, reports: LibraryReports) -> None:
        self._reports = reports
        self._last: Any = None
        self._here, there = Pipe()
        self.other_side = RankReportClient(there)
        """For rank 0, and only to be pickled."""
        threading.Thread(target=self._serve, name="reports of rank 0", daemon=True).start()

    @property
    def used(self) -> bool:
        """Its rank 0 has spoken: another one needs another desk."""
        return self.other_side.closed

    def _serve(self) -> None:
        with suppress(EOFError, OSError):  # rank 0 has ended; whoever spawned it says how
            while True:
                message = self._receive()
                self.other_side.close()  # rank 0 has its own: else its end were not seen
                if isinstance(message, _FinalState):
                    self._last = message.state
                else:
                    self._send(self._report(message))

    def _report(self, told: _RankReport) -> _RankVerdict | str:
        """What rank 0 is to do, or what went wrong."""
        try:
            self._reports.tell(told.step, told.metrics, self._state if told.has_state else None)
        except TrialStopped:  # the trial keeps it, and ends when the ranks have
            return _RankVerdict.END
        except Exception as error:  # noqa: BLE001  the ranks raise it
            return f"{type(error).__name__}: {error}"
        return _RankVerdict.GO_ON

    def _state(self) -> Any:
        """The ranks' state at their last report; when they have ended, at their end."""
        if self._last is None:
            self._send(_RankVerdict.GIVE_STATE)
            return self._receive()
        return self._last

    def _send(self, answer: _RankVerdict | str) -> None:
        self._here.send_bytes(pickle.dumps(answer))

    def _receive(self) -> Any:
        return pickle.loads(self._here.recv_bytes())


class RankReportClient:
    """What a rank has in place of its trial; all ranks call it, and rank 0 alone speaks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def close(self) -> None:
        self._connection.close()

    def tell(
        self,
        trainer: Trainer,
        step: int,
        metrics: dict[str, float],
        get_state: Callable[[], dict[str, Any]] | None,
    ) -> None:
        """Report, and have the Trainer stop where the trial is to end. Raises RuntimeError for what
        the trial does not take."""
        self._send(trainer, _RankReport(step, metrics, get_state is not None))
        while (answer := self._hear(trainer)) is _RankVerdict.GIVE_STATE:
            assert get_state is not None, "it was said that there is one"
            self._send(trainer, snapshot(get_state()))
        if isinstance(answer, str):
            raise RuntimeError(answer)
        trainer.should_stop |= answer is _RankVerdict.END

    def give_last(self, trainer: Trainer, state: dict[str, Any]) -> None:
        """For a checkpoint that is written when the ranks have ended."""
        self._send(trainer, _FinalState(snapshot(state)))

    def _send(self, trainer: Trainer, message: Any) -> None:
        # As plain bytes: multiprocessing would share the tensors' memory, and this process ends.
        if trainer.is_global_zero:
            self._connection.send_bytes(pickle.dumps(message))

    def _hear(self, trainer: Trainer) -> _RankVerdict | str:
        """What rank 0 was told, in every rank."""
        own = pickle.loads(self._connection.recv_bytes()) if trainer.is_global_zero else None
        answer: _RankVerdict | str = trainer.strategy.broadcast(own)
        return answer
