"""Reports Lightning's metrics to a trial, and continues an interrupted trial.

Pass `callbacks=[automl.integrations.lightning.Report(trial, "val_loss")]` to `Trainer`.

A trial and its channel to the sweep belong to one process. Rank 0, which a Trainer spawned,
therefore sends its reports to a thread in that process, which reports them and answers what to do.
A state is asked for only if a checkpoint is written, and then of all ranks, because collecting it
may need all of them.
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from automl.in_trial.checkpoints.torch_checkpoint import snapshot
from automl.in_trial.trial_context import TrialStopped
from automl.integrations.reports import AnyTrial, LibraryReports, pick_metrics


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


_NOT_NEEDED = ("hyper_parameters", "hparams_name", "hparams_type")
"""Endings of a checkpoint's keys that are left out, its DataModule's too. They serve
`load_from_checkpoint` and may be any objects; the function that trains has the params."""


# A subclass of EarlyStopping, because Lightning calls `on_train_epoch_end` of these and of its
# checkpoints last.
class LightningReport(EarlyStopping):
    """Reports metrics after each epoch, and ends a trial that is pruned.

    With several validations in an epoch, or one in several epochs, it reports after each validation
    instead. Reports are counted, so the steps are mostly the epochs.

    Each report comes with the content of a checkpoint of Lightning's, and `best.pt` holds it, too.
    An interrupted trial continues from there without a `ckpt_path`. One trial can therefore have
    only one `fit`; with `checkpoint=False` there are no checkpoints and no such limit.

    With `strategy="ddp_spawn"` rank 0 reports, and all ranks stop if the trial must end. `fit` then
    returns, and the function's later work does not count; `check_pruned` raises at once.
    """

    def __init__(self, trial: AnyTrial, *metrics: str, checkpoint: bool = True) -> None:
        """Restore the trial's checkpoint; without `metrics` the study's metric is reported.

        Raises TrialPruned or TrialInterrupted if the trial need not continue.
        """
        self._reports: LibraryReports | None = LibraryReports(trial, metrics)
        super().__init__(self._reports.names[0])
        self._names, self._checkpoint = self._reports.names, checkpoint
        self._restored = self._reports.restore() if checkpoint else None
        self._n_reports = 0
        self._validated = False
        """This epoch was validated, and is not yet reported."""
        self._pid = os.getpid()
        self._server: RankReportServer | None = None
        self._ranks: RankReportClient | None = None

    def check_pruned(self) -> None:
        """Raise TrialPruned or TrialInterrupted after `fit` with ranks, if the trial must end."""
        assert self._reports is not None, "a rank has no trial"
        self._reports.raise_verdict()

    # --- what Lightning calls ---

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._ranks is None and os.getpid() != self._pid:
            raise RuntimeError(
                "a process that was forked cannot report to its trial: "
                'use Trainer(strategy="ddp_spawn").'
            )
        # This callback comes last, because the epoch's checkpoint holds the state of all others. A
        # new list is needed, because Lightning iterates over the old one.
        trainer.callbacks = [c for c in trainer.callbacks if c is not self] + [self]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        restored, self._restored = self._restored, None
        if restored is not None:
            _restore(trainer, restored)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        if _validates_once_an_epoch(trainer):
            self._validated = True
        else:
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._validated or not sum(trainer.num_val_batches):
            self._validated = False
            self._report(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._ranks is not None and self._checkpoint:
            self._ranks.send_final_state(trainer, _state_of(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"n_reports": self._n_reports}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._n_reports = state_dict["n_reports"]

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for the process of a rank, which reports to this process instead."""
        assert self._reports is not None, "a rank spawns no others"
        if self._server is None or self._server.used:
            self._server = RankReportServer(self._reports)
        return {
            **self.__dict__,
            "_reports": None,
            "_server": None,
            "_ranks": self._server.other_side,
        }

    # --- inside ---

    def _report(self, trainer: Trainer) -> None:
        step, self._n_reports = self._n_reports, self._n_reports + 1
        get_state = (lambda: _state_of(trainer)) if self._checkpoint else None
        if self._reports is not None:
            self._reports.tell(step, trainer.callback_metrics, get_state)
        else:
            assert self._ranks is not None
            metrics = pick_metrics(self._names, trainer.callback_metrics)
            self._ranks.tell(trainer, step, metrics, get_state)


def _validates_once_an_epoch(trainer: Trainer) -> bool:
    """Return whether there is one validation in each epoch.

    The report then waits for the epoch's end, as Lightning's own checkpoints do: a state from
    before the end lacks metrics that other callbacks need.
    """
    return bool(trainer.val_check_interval == 1.0 and trainer.check_val_every_n_epoch == 1)


def _state_of(trainer: Trainer) -> dict[str, Any]:
    """Return what Lightning would write into a checkpoint. With several ranks each must call it."""
    state: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return {key: value for key, value in state.items() if not key.endswith(_NOT_NEEDED)}


def _restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """Restore a state through a temporary file, because `fit(ckpt_path=…)` reads files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "last.ckpt")
        trainer.strategy.checkpoint_io.save_checkpoint(state, path)
        trainer._checkpoint_connector.restore(path)


LightningReport.__qualname__ = "Report"  # Lightning's checkpoints store its state by this name
Report = LightningReport
"""The public name of `LightningReport`."""
