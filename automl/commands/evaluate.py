"""`evaluate`: models of a study scored on rows that no sweep saw, with how sure that is.

Every metric of the task with a 95 % interval, baselines beside them, and for several trials whether
their difference is more than chance. Kept in the event log, and so on the runs in MLflow.
"""

from __future__ import annotations

from automl.commands.evaluation.keep import deliver, keep
from automl.commands.evaluation.models import check_data, chosen, load_models, refuse_others
from automl.commands.evaluation.shown import COLUMNS, lines_after, table_of
from automl.commands.which_study import study_path
from automl.config import Config
from automl.data.evaluation import Evaluation
from automl.record.directory import command_line
from automl.record.place import settle_unlocked
from automl.record.studies import read_study
from automl.running.console import open_console
from automl.tracking.say import Say, say_on_stdout
from automl.trial import Evaluated

KNOWN_SHARE = 0.02
"""Of the rows, those that are as others that trained or chose: below it is said of nobody, as rows
of few columns repeat by chance."""


def run(config: Config, stored_config: str) -> int:
    """Score, show and keep. Raises AutoMLError."""
    evaluate(config, say_on_stdout)
    return 0


def evaluate(config: Config, say: Say, *, show: bool = True) -> Evaluated:
    """The scores of `evaluate.trials`; shown in a table, if they are to be. Raises AutoMLError."""
    refuse_others(config)
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    event, evaluation = _scored(config)
    if show:
        _show(event, evaluation, config)
    if keep(event, config):
        deliver(directory, config, place, say)
    else:
        again = command_line("evaluate", config.study)
        say(f"a sweep works on the study, so that these scores are kept nowhere; after it: {again}")
    return event


def _scored(config: Config) -> tuple[Evaluated, Evaluation]:
    from automl.data.evaluation import open_evaluation, score

    directory = study_path(config.study)
    record = read_study(directory)
    trials = chosen(config.evaluate.trials, record)
    evaluation = open_evaluation(config.data, record.settings.get("data.test_path"))
    models = load_models(directory, trials, config)
    check_data(evaluation.dataset, models, config)
    outputs = {number: model.outputs(evaluation.part.rows) for number, model in models.items()}
    event = score(
        evaluation, outputs, n_resamples=config.evaluate.n_resamples, seed=config.study.seed
    )
    return event, evaluation


def _show(event: Evaluated, evaluation: Evaluation, config: Config) -> None:
    console = open_console()
    console.say(f"{config.study.name}: {event.rows} ({evaluation.source})", "bold")
    console.table(COLUMNS, table_of(event), n_left=2)
    for line in lines_after(event):
        console.say(line, "dim")
    n_known = evaluation.n_known
    if n_known > KNOWN_SHARE * event.n_rows:
        console.say(
            f"{n_known:,} of the {event.n_rows:,} rows are equal, cell by cell, to rows that "
            "trained or chose: are they new rows?",
            "yellow",
        )
