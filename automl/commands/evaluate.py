"""`evaluate`: models of a study scored on rows that no sweep saw, with how sure that is.

Every metric of the task with a 95 % interval, baselines beside them, and for several models whether
their difference is more than chance: of a refit, whether it is worse than the trial it repeats.
Kept in the event log, and so on the runs in MLflow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from automl.commands.evaluation.keep import deliver, keep
from automl.commands.evaluation.parts import LEAST_ROWS, compared, ranked, said
from automl.commands.evaluation.rows import check_data, scorable
from automl.commands.evaluation.shown import COLUMNS, lines_after, part_table, table_of
from automl.commands.which_model import (
    Choice,
    TableModel,
    best_file,
    choose_several,
    open_model,
    outdated,
    trial_of,
)
from automl.config import Config
from automl.data.evaluation import Evaluation, open_evaluation, score
from automl.data.scores import Floats
from automl.errors import ConfigError
from automl.record.directory import command_line
from automl.record.place import settle_unlocked
from automl.record.studies import read_study, study_path
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
    """The scores of the models that `evaluate.*` names; shown in tables, if they are to be. Raises
    AutoMLError."""
    choices = choose_several(config)
    directory = study_path(config.study)
    place = settle_unlocked(directory, config.study)
    scoring = _score(config, directory, choices)
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
    notes: tuple[str, ...]
    """Of models that were left out, or are of another trial than one would think."""


def _score(config: Config, directory: Path, choices: Sequence[Choice]) -> _Scoring:
    record = read_study(directory)
    evaluation = open_evaluation(config.data, record.settings.get("data.test_path"))
    models = _with_repeated([open_model(config, one) for one in choices], record, config)
    models, left_out = scorable(models, evaluation, config)
    check_data(evaluation.dataset, models, config)
    n_repeats, n_rows = evaluation.n_repeats, len(evaluation.part)
    if config.data.test_path is not None and n_repeats > TOO_MANY * n_rows:
        raise ConfigError(
            f"data.test_path={config.data.test_path}: {n_repeats:,} of its {n_rows:,} rows are "
            "rows that trained or chose, which the models know: give rows that no sweep saw."
        )
    outputs = [_outputs(model.predictor, evaluation) for model in models]
    of = list(zip(models, outputs, strict=True))
    event = score(
        evaluation,
        {model.trial: out for model, out in of if model.refitted is None},
        refit=next(((model.trial, out) for model, out in of if model.refitted), None),
        n_resamples=config.evaluate.n_resamples,
        seed=config.study.seed,
    )
    late = [outdated(config, model) for model in models]
    return _Scoring(event, evaluation, n_repeats, record, tuple(filter(None, [left_out, *late])))


def _with_repeated(
    models: list[TableModel], record: StudyRecord, config: Config
) -> list[TableModel]:
    """A refit stands beside the trial that it repeats."""
    if len(models) > 1 or models[0].refitted is None:
        return models
    trial = trial_of(record, config.study, "refit.trial", models[0].trial)
    file = best_file(study_path(config.study), trial)
    return [*models, open_model(config, Choice(file, trial))]


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
    for note in scoring.notes:
        console.say(note, "yellow")
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
