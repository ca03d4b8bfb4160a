"""Carries the reports of rank 0, which Lightning spawned, to the process of the trial.

A trial and its channel to the sweep belong to one process. Rank 0 therefore sends its reports to a
thread in that process, which reports them and answers what to do. A state is asked for only if a
checkpoint is written, and then of all ranks, because collecting it may need all of them.
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
    """A message of rank 0: the metrics of one step, and whether it can send a state."""

    step: int
    metrics: dict[str, float]
    has_state: bool


@dataclass(frozen=True)
class _FinalState:
    """A message of rank 0: the state after training, when no rank is left to send one later."""

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
        """The client for rank 0, which this process only pickles."""
        threading.Thread(target=self._serve, name="reports of rank 0", daemon=True).start()

    @property
    def used(self) -> bool:
        """Whether its rank 0 has sent a message; another rank 0 needs another server."""
        return self.other_side.closed

    def _serve(self) -> None:
        with suppress(EOFError, OSError):  # rank 0 has ended; Lightning says how
            while True:
                message = self._receive()
                # Rank 0 has its own copy. With this one open its end would stay unnoticed.
                self.other_side.close()
                if isinstance(message, _FinalState):
                    self._last = message.state
                else:
                    self._send(self._report(message))

    def _report(self, report: _RankReport) -> _RankVerdict | str:
        """Report for rank 0, and return what it must do, or the text of an error."""
        try:
            get_state = self._state if report.has_state else None
            self._reports.tell(report.step, report.metrics, get_state)
        except TrialStopped:  # the trial keeps its verdict, and ends after the ranks
            return _RankVerdict.END
        except Exception as error:  # noqa: BLE001  the ranks raise it
            return f"{type(error).__name__}: {error}"
        return _RankVerdict.GO_ON

    def _state(self) -> Any:
        """Return the ranks' state at their last report, or at their end if they have ended."""
        if self._last is None:
            self._send(_RankVerdict.GIVE_STATE)
            return self._receive()
        return self._last

    def _send(self, answer: _RankVerdict | str) -> None:
        self._here.send_bytes(pickle.dumps(answer))

    def _receive(self) -> Any:
        return pickle.loads(self._here.recv_bytes())


class RankReportClient:
    """Stands for the trial in a rank. All ranks call it, and rank 0 alone sends messages."""

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
        """Report, and stop the Trainer if the trial must end.

        Raises RuntimeError if the trial's process could not report.
        """
        self._send(trainer, _RankReport(step, metrics, get_state is not None))
        while (answer := self._receive_answer(trainer)) is _RankVerdict.GIVE_STATE:
            assert get_state is not None, "the report had `has_state`"
            self._send(trainer, snapshot(get_state()))
        if isinstance(answer, str):
            raise RuntimeError(answer)
        trainer.should_stop |= answer is _RankVerdict.END

    def send_final_state(self, trainer: Trainer, state: dict[str, Any]) -> None:
        """Send the state for a checkpoint that is written after the ranks have ended."""
        self._send(trainer, _FinalState(snapshot(state)))

    def _send(self, trainer: Trainer, message: Any) -> None:
        # Plain bytes, because multiprocessing would share the tensors' memory, and this process
        # ends.
        if trainer.is_global_zero:
            self._connection.send_bytes(pickle.dumps(message))

    def _receive_answer(self, trainer: Trainer) -> _RankVerdict | str:
        """Return the answer to rank 0, in every rank."""
        own = pickle.loads(self._connection.recv_bytes()) if trainer.is_global_zero else None
        answer: _RankVerdict | str = trainer.strategy.broadcast(own)
        return answer
