"""`refit`: trains a study's best trial or its ensemble again, on more rows and all free devices.

The file is short because each command is a file of its own; the training is in
`automl/running/refit`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.models.which_model import find_model_trial, with_named_trial
from automl.commands.sweep import loading
from automl.config import Config
from automl.record.studies import read_study, study_path
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.terminal.machine_output import write_answer


def run(call: CommandCall) -> int:
    """Train the winner again and write `refit.pt` into the study. The same command resumes an
    interrupted refit. Raises AutoMLError."""
    from automl.running.prepare.early_refusals import refuse_early
    from automl.running.prepare.refit_task import make_refit_task, refuse_unfit_settings

    config = call.config
    refuse_unfit_settings(config)
    path = study_path(config.study).absolute()  # an objective may change the directory
    fetch_shared_study(config.study)
    record = read_study(path)
    config = with_named_trial(config, "refit")
    config = as_searched(config, record)
    winner = find_model_trial(record, config.study, "refit.trial", config.refit.trial)
    task = make_refit_task(config, path, record, winner)
    refuse_early(task.config)
    with ExitStack() as warm:
        with loading("Optuna, PyTorch and MLflow"):
            from automl.running.opening.warm_start import warm_up_processes

            deliverer = warm.enter_context(warm_up_processes(config))
            from automl.running.refit.refit_run import run_refit

        code = run_refit(task, call.stored_config, deliverer)
    if code == 0:
        model = StudyFiles(path).refit
        written = os.path.relpath(model) if model.exists() else None
        write_answer({"study": path.name, "model": written})
    return code


def as_searched(config: Config, record: StudyRecord) -> Config:
    """Return the config without a test table that was given after the search: it serves for scores
    only, and the training rows were chosen when there was none."""
    own_test = record.settings.get("data.test")
    if own_test is None or config.data.test_path is None:
        return config
    return replace(config, data=replace(config.data, test=own_test))
