"""The handle of a study, on studies that were interrupted long ago."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import automl
from automl.record.studies import read_study

STORED = Path(__file__).parents[1] / "stored_studies" / "studies"


def test_trials_are_a_frame_of_what_is_known_of_each() -> None:
    frame = automl.open_study("disc", dir=str(STORED)).trials()
    record = read_study(STORED / "disc")
    assert list(frame.index) == list(record.trials)
    assert frame.index.name == "trial"
    assert list(frame.columns[:2]) == ["state", "value"]
    for number, trial in record.trials.items():
        row = frame.loc[number]
        assert row["state"] == trial.state.value
        assert row["params.lr"] == trial.params["lr"]
        value = trial.value if trial.state.is_final else trial.best_value
        assert row["value"] == value or (value is None and np.isnan(row["value"]))
        assert row["started"].timestamp() == pytest.approx(trial.started, abs=0.001)
    assert "tags.x" not in frame


def test_the_best_trial_gives_its_model_or_its_state() -> None:
    disc = automl.open_study("disc", dir=str(STORED))
    best = read_study(STORED / "disc").best()
    assert best is not None
    assert (disc.best.number, disc.best.value) == (best.number, best.value)
    assert disc.best.params == best.params
    assert disc.best.load().predict(np.array([[0.0, 0.0], [1.0, 1.0]])).tolist() == [1, 0]
    function = automl.open_study("function", dir=str(STORED))
    assert set(function.best.load()) == {"epoch"}
    assert repr(function).startswith("<study function: 1 running, 3 finished; best val_loss 0.")
    assert f" by trial {function.best.number} (" in repr(function)
    assert function.best.path == function.best.checkpoint_file()


def test_a_study_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(automl.AutoMLError, match=r"holds no study; in .*there are: disc, function"):
        automl.open_study("dics", dir=str(STORED))


def test_what_is_not_there_yet_is_said(tmp_path: Path) -> None:
    shutil.copytree(STORED / "function", tmp_path / "new")
    study = automl.open_study("new", dir=str(tmp_path))
    (tmp_path / "new" / "checkpoints" / f"trial-{study.best.number:05d}" / "best.pt").unlink()
    assert study.best.path is None
    with pytest.raises(automl.AutoMLError, match=r"left no best\.pt: give one with its reports"):
        study.best.load()
    (tmp_path / "new" / "events.log").write_bytes(b"")
    with pytest.raises(automl.AutoMLError, match="study new: no trial has ended with a value yet"):
        study.best  # noqa: B018
    assert len(study.trials()) == 0
