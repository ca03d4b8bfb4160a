"""`refit`: trains a study's best trial or its ensemble again, on more rows and all free devices.

The file is short because each command is a file of its own; the training is in
`automl/running/refit`.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import fetch_shared_study
from automl.commands.models.which_model import as_searched, choose_winner
from automl.commands.sweep import loading
from automl.config import RefitArguments
from automl.config.which_models import parse_which
from automl.record.studies import study_path
from automl.record.study_files import StudyFiles
from automl.terminal.machine_output import write_answer


def run(call: CommandCall) -> int:
    """Train the winner again and write `refit.pt` into the study. The same command resumes an
    interrupted refit. Raises AutoMLError."""
    from automl.running.prepare.early_refusals import refuse_early
    from automl.running.prepare.refit_task import make_refit_task, refuse_unfit_settings

    config, arguments = call.config, call.typed_arguments(RefitArguments)
    refuse_unfit_settings(config, arguments)
    path = study_path(config.study).absolute()  # an objective may change the directory
    fetch_shared_study(config.study)
    record, winner = choose_winner(config, parse_which(arguments.which), "refit")
    config = as_searched(config, record)
    task = make_refit_task(config, arguments, path, record, winner)
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
