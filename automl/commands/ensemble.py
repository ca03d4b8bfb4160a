"""`ensemble`: makes one model of a study's models, the weighted mean of those that are best
together.

The file is short because each command is a file of its own; members and weights are chosen in
`automl/running/features/ensemble.py`.
"""

from __future__ import annotations

import os
from pathlib import Path

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import deliver_evaluation, open_event_log
from automl.config import Config
from automl.errors import ConfigError
from automl.record.studies import read_study, study_path
from automl.record.study_directory import StudyDirectory, settle_place_unlocked, study_command
from automl.record.study_files import StudyFiles
from automl.record.texts import say_on_stdout
from automl.record.winner_file import link_winner
from automl.running.features.ensemble import ensemble_lines, make_ensemble, refuse_user_models
from automl.running.prepare.preparation import prepare_study
from automl.terminal.machine_output import write_answer


def run(call: CommandCall) -> int:
    """Make the ensemble anew. Raises AutoMLError."""
    path = make_study_ensemble(call.config)
    write_answer({"study": path.name, "model": os.path.relpath(StudyFiles(path).ensemble)})
    return 0


def make_study_ensemble(config: Config) -> Path:
    """Write `ensemble.pt` into the study, deliver its scores to MLflow, and return the study's
    directory. Raises AutoMLError."""
    refuse_user_models(config)
    path = study_path(config.study)
    place = settle_place_unlocked(path, config.study)
    prepared = prepare_study(config, trains=False)
    with (
        StudyDirectory.open(config.study, must_exist=True) as directory,
        open_event_log(config.study, directory) as log,
    ):
        record = read_study(path)
        event = make_ensemble(prepared, path, record, draws=True, say=say_on_stdout)
        if event is None:
            raise ConfigError(
                f"study.name={path.name}: an ensemble is of two models or more, and fewer of its "
                f"trials have left one. Go on with: {study_command('resume', config.study)}"
            )
        log.append(event)
        link_winner(path, None)
    for line in ensemble_lines(event, record, prepared.choice, path):
        say_on_stdout(line)
    deliver_evaluation(path, config, place, say_on_stdout)
    return path
