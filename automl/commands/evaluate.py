"""`evaluate`: models of a study scored on rows that no sweep saw, with how sure that is.

Every metric of the task with a 95 % interval, baselines beside them, and for several trials whether
their difference is more than chance. Kept in the event log, and so on the runs in MLflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.evaluation.keep import deliver, keep
from automl.commands.evaluation.models import check_data, chosen, load_models, refuse_others
from automl.commands.evaluation.parts import LEAST_ROWS, compared, ranked, said
from automl.commands.evaluation.shown import COLUMNS, lines_after, part_table, table_of
from automl.commands.which_study import study_path
from automl.config import Config
from automl.data.evaluation import Evaluation, open_evaluation, score
from automl.data.scores import Floats
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.record.place import settle_unlocked
from automl.record.studies import read_study
from automl.record.study import StudyRecord
from automl.record.texts import fit_line
from automl.running.console import open_console
from automl.tracking.say import Say, say_on_stdout
from automl.trial import Evaluated, RowsKind

if TYPE_CHECKING:
    from automl.training.predictor import Predictor

WORTH_A_WORD, TOO_MANY = 0.02, 0.2
"""Shares of the rows that are as others that trained or chose, beyond chance."""


def run(config: Config, stored_config: str) -> int:
    """Score, show and keep. Raises AutoMLError."""
    evaluate(config, say_on_stdout)
    return 0


def evaluate(config: Config, say: Say, *, show: bool = True) -> Evaluated:
    """The scores of `evaluate.trials`; shown in tables, if they are to be. Raises AutoMLError."""
    refuse_others(config)
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    scoring = _score(config, directory)
    if show:
        _show(scoring, config)
    if keep(scoring.event, config):
        deliver(directory, config, place, say)
    else:
        again = command_line("evaluate", config.study)
        say(f"a sweep works on the study, so that these scores are kept nowhere; after it: {again}")
    if show:
        _show_parts(scoring, directory, config)
    return scoring.event


@dataclass(frozen=True)
class _Scoring:
    """The scores, and what they are of."""

    event: Evaluated
    evaluation: Evaluation
    n_repeats: int
    """Rows that are as others that trained or chose, beyond chance."""
    record: StudyRecord


def _score(config: Config, directory: Path) -> _Scoring:
    record = read_study(directory)
    trials = chosen(config, record)
    evaluation = open_evaluation(config.data, record.settings.get("data.test_path"))
    models = load_models(directory, trials, config)
    check_data(evaluation.dataset, models, config)
    n_repeats, n_rows = evaluation.n_repeats, len(evaluation.part)
    if config.data.test_path is not None and n_repeats > TOO_MANY * n_rows:
        raise ConfigError(
            f"data.test_path={config.data.test_path}: {n_repeats:,} of its {n_rows:,} rows are "
            "rows that trained or chose, which the models know: give rows that no sweep saw."
        )
    outputs = {number: _outputs(model, evaluation) for number, model in models.items()}
    event = score(
        evaluation, outputs, n_resamples=config.evaluate.n_resamples, seed=config.study.seed
    )
    return _Scoring(event, evaluation, n_repeats, record)


def _outputs(model: Predictor, evaluation: Evaluation) -> Floats:
    """What it says of the rows; out-of-fold, by those of its models that never saw them."""
    if evaluation.kind is not RowsKind.OUT_OF_FOLD:
        return model.outputs(evaluation.part.rows)
    from automl.training.folds.judged import judged_outputs

    return judged_outputs(model.trained, evaluation.dataset)


def _show(scoring: _Scoring, config: Config) -> None:
    event, console = scoring.event, open_console()
    source = fit_line(scoring.evaluation.source)
    console.say(f"{config.study.name}: {event.rows} ({source})", "bold")
    console.table(COLUMNS, table_of(event), n_left=2)
    for line in lines_after(event):
        console.say(line, "dim")
    if scoring.n_repeats > WORTH_A_WORD * event.n_rows:
        console.say(
            f"{scoring.n_repeats:,} of these {event.n_rows:,} rows are equal, cell by cell, to "
            "rows that trained or chose",
            "yellow",
        )


def _show_parts(scoring: _Scoring, directory: Path, config: Config) -> None:
    """Whether `data.sweep_rows` ranks as more rows do, where a study has it."""
    trials = compared(config, scoring.record)
    too_few = len(trials) < 2 or len(scoring.evaluation.dataset.train) < LEAST_ROWS
    if config.data.sweep_rows is None or too_few:
        return
    found = ranked(trials, scoring.evaluation, directory, config)
    columns, rows = part_table(found)
    console = open_console()
    console.say("loss on the same rows, of the same trials trained on fewer", "bold")
    console.table(columns, rows)
    console.say(said(found), "dim")
