"""Reports Lightning's metrics to a trial, and continues an interrupted trial.

Pass `callbacks=[automl.integrations.lightning.Report(trial, "val_loss")]` to `Trainer`. Reports
from processes that a Trainer spawns reach the trial through `lightning_ranks.py`.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from automl.integrations.lightning_ranks import RankReportClient, RankReportServer
from automl.integrations.reports import AnyTrial, LibraryReports, pick_metrics

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
        if _once_an_epoch(trainer):
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


def _once_an_epoch(trainer: Trainer) -> bool:
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
