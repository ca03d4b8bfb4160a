"""`ensemble`: the models of a study as one, the weighted mean of those that are best together."""

from __future__ import annotations

from automl.commands.evaluation.keep import deliver
from automl.config import Config
from automl.errors import ConfigError
from automl.record.directory import StudyDirectory, command_line
from automl.record.opening import open_log
from automl.record.place import settle_unlocked
from automl.record.studies import read_study, study_path
from automl.running.ensemble import lines_of, made, refuse_others
from automl.running.prepare import prepare
from automl.tracking.say import say_on_stdout


def run(config: Config, stored_config: str) -> int:
    """Write `ensemble.pt` into the study, and tell MLflow. Raises AutoMLError."""
    refuse_others(config)
    path = study_path(config.study)
    place = settle_unlocked(path, config.study)
    prepared = prepare(config)
    with (
        StudyDirectory.open(config.study, must_exist=True) as directory,
        open_log(config.study, directory) as log,
    ):
        record = read_study(path)
        event = made(prepared, path, record, draws=True, say=say_on_stdout)
        if event is None:
            raise ConfigError(
                f"study.name={path.name}: an ensemble is of two models or more, and fewer of its "
                f"trials have left one. Go on with: {command_line('resume', config.study)}"
            )
        log.append(event)
    for line in lines_of(event, record, prepared.choice, path):
        say_on_stdout(line)
    deliver(path, config, place, say_on_stdout)
    return 0
