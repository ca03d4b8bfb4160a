"""Reports the metrics of a Trainer of Transformers to a trial.

Pass `callbacks=[automl.integrations.transformers.Report(trial, "eval_loss")]` to the Trainer. To
continue after an interruption, call
`trainer.train(resume_from_checkpoint=last_checkpoint(trial))`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import TrainerControl, TrainerState

from automl.in_trial.trial_context import TrialInterrupted
from automl.integrations.reports import AnyTrial, LibraryReports, trial_folder

_FOLDER = "transformers"


class TransformersReport(TrainerCallback):
    """Reports metrics after each evaluation during training; the steps count evaluations from 0.

    `output_dir` becomes a folder of the trial's own, since trials that run at once would overwrite
    each other's checkpoints. When the sweep stops, the Trainer writes a checkpoint before the trial
    ends.
    """

    def __init__(self, trial: AnyTrial, *metrics: str) -> None:
        self._reports = LibraryReports(trial, metrics)
        self._folder = _folder_of(trial)
        self._is_training = self._has_reported = False
        self._others: dict[str, float] = {}
        """Metrics of evaluations without the reported metric, which only one data set may have."""
        self._interrupted: TrialInterrupted | None = None

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        args.output_dir = str(self._folder)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._is_training = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._is_training = False

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **kwargs: Any,
    ) -> None:
        """Report the metrics of an evaluation.

        Raises what `TrialContext.report` raises, except TrialInterrupted, which `on_save` raises.
        """
        if not self._is_training:  # the user's own trainer.evaluate()
            return
        name = self._reports.names[0]
        if name not in metrics and not self._is_missed(metrics):
            return
        self._has_reported = True
        n_evaluated = sum(name in line for line in state.log_history)  # checkpoints keep it
        try:
            self._reports.tell(max(n_evaluated - 1, 0), self._others | metrics)
        except TrialInterrupted as interrupted:
            self._interrupted = interrupted
            control.should_save = control.should_training_stop = True

    def _is_missed(self, metrics: dict[str, float]) -> bool:
        """Return whether all data sets were evaluated, and none had the metric."""
        are_repeated = metrics.keys() <= self._others.keys()
        self._others |= metrics
        return are_repeated and not self._has_reported

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Raise the TrialInterrupted that waited for this checkpoint, if there is one."""
        if self._interrupted is not None:
            raise self._interrupted


def last_checkpoint(trial: AnyTrial) -> str | None:
    """Return the newest whole checkpoint of the trial's Trainer, for `resume_from_checkpoint`.

    Returns None if there is none, so that training begins anew.
    """
    # A checkpoint's state file is written last, so a folder that has it is whole.
    states = _folder_of(trial).glob(f"checkpoint-*/{TRAINER_STATE_NAME}")
    found = max((state.parent for state in states), key=_step_of, default=None)
    return None if found is None else str(found)


def _step_of(checkpoint: Path) -> int:
    return int(checkpoint.name.partition("-")[2])


def _folder_of(trial: AnyTrial) -> Path:
    return trial_folder(trial) / _FOLDER


Report = TransformersReport
"""The public name of `TransformersReport`."""
