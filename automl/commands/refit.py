"""`refit`: what a study came to, its best trial or its ensemble, trained again on more rows and all
free devices."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.sweep import loading
from automl.commands.which_model import trial_of
from automl.config import Config
from automl.record.opening import bring_up
from automl.record.studies import read_study, study_path
from automl.record.study import StudyRecord

if TYPE_CHECKING:
    from automl.running.refit.begin import Begun


def run(config: Config, stored_config: str) -> int:
    """Train it and write `refit.pt` in the study; the same command goes on with one that was
    interrupted. Raises AutoMLError."""
    from automl.running.refit.begin import refuse_unfit

    refuse_unfit(config)
    path = study_path(config.study).absolute()  # an objective may go elsewhere
    begun = _begun(config, path)
    with ExitStack() as warm:
        with loading("Optuna, PyTorch and MLflow"):
            from automl.running.warm import warmed_up

            deliverer = warm.enter_context(warmed_up(config))
            from automl.running.refit.run import refit

        return refit(begun, stored_config, deliverer)


def as_searched(config: Config, record: StudyRecord) -> Config:
    """Without a test table that came later: it is for scores, and which rows train was decided when
    there was none."""
    if record.settings.get("data.test_path") is not None:
        return config
    return replace(config, data=replace(config.data, test_path=None))


def _begun(config: Config, path: Path) -> Begun:
    """What is trained again. Raises ConfigError."""
    from automl.running.refit.members import begun_of

    bring_up(config.study)
    record = read_study(path)
    config = as_searched(config, record)
    winner = trial_of(record, config.study, "refit.trial", config.refit.trial)
    return begun_of(config, path, record, winner)
