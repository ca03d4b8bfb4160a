"""`run_refit`: what a study came to, its best trial or its ensemble, trained again on more rows
and all
free devices."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.models.study_opening import bring_up
from automl.commands.models.which_model import trial_of
from automl.commands.sweep import loading
from automl.config import Config
from automl.record.studies import read_study, study_path
from automl.record.study_record import StudyRecord

if TYPE_CHECKING:
    from automl.running.refit.refit_settings import RefitTask


def run(config: Config, stored_config: str) -> int:
    """Train it and write `refit.pt` in the study; the same command goes on with one that was
    interrupted. Raises AutoMLError."""
    from automl.running.refit.refit_settings import refuse_unfit_settings

    refuse_unfit_settings(config)
    path = study_path(config.study).absolute()  # an objective may go elsewhere
    begun = _begun(config, path)
    with ExitStack() as warm:
        with loading("Optuna, PyTorch and MLflow"):
            from automl.running.setup.warm_start import warm_up_processes

            deliverer = warm.enter_context(warm_up_processes(config))
            from automl.running.refit.refit_run import run_refit

        return run_refit(begun, stored_config, deliverer)


def as_searched(config: Config, record: StudyRecord) -> Config:
    """Without a test table that came later: it is for scores, and which rows train was decided when
    there was none."""
    if record.settings.get("data.test_path") is not None:
        return config
    return replace(config, data=replace(config.data, test_path=None))


def _begun(config: Config, path: Path) -> RefitTask:
    """What is trained again. Raises ConfigError."""
    from automl.running.refit.member_studies import make_refit_task

    bring_up(config.study)
    record = read_study(path)
    config = as_searched(config, record)
    winner = trial_of(record, config.study, "refit.trial", config.refit.trial)
    return make_refit_task(config, path, record, winner)
