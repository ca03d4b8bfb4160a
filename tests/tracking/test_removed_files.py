"""What MLflow keeps of trials whose files the sweep has removed (`study.keep_best`)."""

from __future__ import annotations

import shutil
from pathlib import Path

from automl.trial import CheckpointKind, TrialFilesRemoved
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import BEGUN, sweep_started, trial, write, write_checkpoint

SETTINGS = {"study.keep_best": "1"}


def end_trial(study: Path, number: int) -> None:
    begun, *reports, finished = trial(number)
    kinds = (CheckpointKind.LAST, CheckpointKind.BEST)
    checkpoints = [write_checkpoint(study, number, kind) for kind in kinds]
    write(study, begun, *reports, *checkpoints, finished)


def test_files_that_are_removed_here_are_removed_there(study: Path, shown: Shown) -> None:
    write(study, sweep_started(**SETTINGS))
    end_trial(study, 0)
    end_trial(study, 1)
    deliver(study)
    assert set(shown.artifacts("trial-00001")) == {"last.pt", "best.pt"}
    write(study, TrialFilesRemoved(BEGUN + 5, (1,)))
    assert deliver(study) == []
    assert shown.artifacts("trial-00001") == {}
    assert set(shown.artifacts("trial-00000")) == {"last.pt", "best.pt"}


def test_files_that_were_removed_before_mlflow_had_them_are_not_missed(
    study: Path, shown: Shown
) -> None:
    write(study, sweep_started(**SETTINGS))
    end_trial(study, 0)
    shutil.rmtree(study / "checkpoints")
    write(study, TrialFilesRemoved(BEGUN + 5, (0,)))
    assert deliver(study) == []
    assert shown.artifacts("trial-00000") == {}
