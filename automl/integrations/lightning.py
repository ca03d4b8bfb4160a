"""Lightning: `NetworkTrainer(…, callbacks=[automl.integrations.lightning.LightningReport(trial,
"val_loss")])`.

How reports reach the trial from processes that a Trainer spawns is in `lightning_ranks.py`.
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
"""Of a checkpoint, and the same of its DataModule: for `load_from_checkpoint`. They may be any
objects, and the function that trains has the params."""


class LightningReport(
    EarlyStopping
):  # of these and checkpoints Lightning calls `on_train_epoch_end` last
    """Reports metrics after each epoch, or after each validation where an epoch has not just one,
    and ends a trial that is pruned. Reports are counted, so the steps are mostly the epochs.

    Each comes with what Lightning itself has in a checkpoint, so a trial that was interrupted goes
    on from there, with no `ckpt_path` to be given; `best.pt` holds it, too. So it is for one `fit`
    in a trial; `checkpoint=False` leaves all that to you.

    With `strategy="ddp_spawn"` rank 0 reports, and where the trial is to end all ranks stop. `fit`
    returns then, and what the function does after it counts for nothing; see `check_pruned`.
    """

    def __init__(self, trial: AnyTrial, *metrics: str, checkpoint: bool = True) -> None:
        """Raises TrialPruned or TrialInterrupted where the trial need not go on."""
        self._reports: LibraryReports | None = LibraryReports(trial, metrics)
        super().__init__(self._reports.names[0])
        self._names, self._checkpoint = self._reports.names, checkpoint
        self._restored = self._reports.restore() if checkpoint else None
        self._n_reports = 0
        self._validated = False
        """In this epoch, which is still to be reported."""
        self._pid = os.getpid()
        self._desk: RankReportServer | None = None
        self._ranks: RankReportClient | None = None

    def check_pruned(self) -> None:
        """After `fit` with ranks: raises TrialPruned or TrialInterrupted where the trial ends."""
        assert self._reports is not None, "a rank has no trial"
        self._reports.raise_verdict()

    # --- what Lightning calls ---

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._ranks is None and os.getpid() != self._pid:
            raise RuntimeError(
                "a process that was forked cannot report to its trial: "
                'use Trainer(strategy="ddp_spawn").'
            )
        # After all others, whose state of this epoch belongs to its checkpoint. A new list: the
        # old one is being walked through.
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
            self._ranks.give_last(trainer, _state_of(trainer))

    def state_dict(self) -> dict[str, Any]:
        return {"n_reports": self._n_reports}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._n_reports = state_dict["n_reports"]

    def __getstate__(self) -> dict[str, Any]:
        """For a process of a rank, which has no trial, but a line to this one."""
        assert self._reports is not None, "a rank spawns no others"
        if self._desk is None or self._desk.used:
            self._desk = RankReportServer(self._reports)
        return {**self.__dict__, "_reports": None, "_desk": None, "_ranks": self._desk.other_side}

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
    """Whether validations are. Then, as Lightning decides for its own checkpoints, their reports
    wait for the epoch's end: what goes on from before it lacks metrics that other callbacks want.
    """
    return bool(trainer.val_check_interval == 1.0 and trainer.check_val_every_n_epoch == 1)


def _state_of(trainer: Trainer) -> dict[str, Any]:
    """What Lightning would write into a checkpoint; of several ranks each must ask."""
    state: dict[str, Any] = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
    return {key: value for key, value in state.items() if not key.endswith(_NOT_NEEDED)}


def _restore(trainer: Trainer, state: dict[str, Any]) -> None:
    """As `fit(ckpt_path=…)` does, which reads files only."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "last.ckpt")
        trainer.strategy.checkpoint_io.save_checkpoint(state, path)
        trainer._checkpoint_connector.restore(path)


LightningReport.__qualname__ = "Report"  # Lightning's checkpoints keep its state under that
Report = LightningReport
"""The name by which users know the class."""
