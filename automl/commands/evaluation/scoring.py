"""Models scored: of a study of a table, or of the user's own rows (`data=python`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.commands.evaluation.rows import (
    check_arrays,
    check_data,
    learned_from,
    said_of_known,
    scorable,
)
from automl.commands.which_model import (
    Choice,
    TableModel,
    best_file,
    open_array_model,
    open_model,
    outdated,
    trial_of,
)
from automl.config import Config, DataKind
from automl.data.evaluation import Evaluation, Judged, open_evaluation, score
from automl.data.scores import Floats
from automl.data.thresholds import second_of_two, thresholds_elsewhere
from automl.errors import ConfigError
from automl.record.files import StudyFiles
from automl.record.studies import study_path
from automl.record.study import StudyRecord
from automl.training.plan import TrainingPlan
from automl.training.tested import outputs_on
from automl.trial import Evaluated, RowsKind, refit_name, trial_name

if TYPE_CHECKING:
    from automl.training.predictor import Predictor

Judge: TypeAlias = Callable[[Evaluation], Judged]
WORTH_A_WORD, TOO_MANY = 0.02, 0.2
"""Shares of the rows that are as others that trained or chose, beyond chance."""


@dataclass(frozen=True)
class Scoring:
    """The scores, and what they are of."""

    event: Evaluated
    source: str
    """Where the rows are from, for people."""
    table: Evaluation | None = None
    """None: they are the user's own."""
    notes: tuple[str, ...] = ()
    """What a score does not tell: whose model was left out, or is of another trial than one would
    think; rows that are known to the models."""


class JudgedOnce:
    """The rows and their baselines, one of which is fitted, for several evaluations on the same."""

    def __init__(self) -> None:
        self._kept: Judged | None = None
        self._of: tuple[str, str] | None = None

    def __call__(self, table: Evaluation) -> Judged:
        of = table.digest, table.dataset.digest
        if self._kept is None or self._of != of:
            self._kept, self._of = table.judged(), of
        return self._kept


def scored(
    config: Config,
    record: StudyRecord,
    choices: Sequence[Choice],
    judge: Judge = Evaluation.judged,
    at: Callable[[str], None] = lambda stage: None,
) -> Scoring:
    """The scores of the models; `at` is told what is done next. Raises AutoMLError."""
    if config.data.kind is DataKind.python:
        return _score_arrays(config, record, choices)
    return _score_table(config, record, choices, judge, at)


def _score_table(
    config: Config,
    record: StudyRecord,
    choices: Sequence[Choice],
    judge: Judge,
    at: Callable[[str], None],
) -> Scoring:
    at("reading the table")
    own_test_path = record.settings.get("data.test_path")
    table = open_evaluation(config.data, own_test_path, config.training.value_loss)
    models = _with_repeated([open_model(config, one) for one in choices], record, config)
    models, left_out = scorable(models, table, config)
    check_data(table.dataset, models, config)
    repeated = _repeats(table, config)
    outputs = []
    for number, model in enumerate(models):
        at(f"asking {model.name}, {number + 1} of {len(models)} models")
        outputs.append(_outputs(model, table))
    of = list(zip(models, outputs, strict=True))
    at("fitting the baselines")
    judged = judge(table)
    at("finding the intervals")
    event = score(
        judged,
        {m.trial: out for m, out in of if m.refitted is None and not m.joined},
        refit=next(((m.trial if not m.joined else None, out) for m, out in of if m.refitted), None),
        ensemble=next((out for m, out in of if m.joined and m.refitted is None), None),
        thresholds={model.name: _threshold(model.predictor, out, table) for model, out in of},
        n_resamples=config.evaluate.n_resamples,
        seed=config.study.seed,
    )
    notes = (left_out, *(outdated(config, model) for model in models), repeated)
    return Scoring(event, table.source, table, tuple(filter(None, notes)))


def _threshold(model: Predictor, outputs: Floats, table: Evaluation) -> float | Floats | None:
    """That of its labels; where it was found on these rows, each row's by the others."""
    if model.threshold is None or table.kind.unseen:
        return model.threshold
    return thresholds_elsewhere(second_of_two(outputs), table.part.y)


def _outputs(model: TableModel, table: Evaluation) -> Floats:
    """What it says of the rows; out-of-fold, by those of its models that never saw them."""
    predictor = model.predictor
    if model.refitted is not None or table.kind is not RowsKind.OUT_OF_FOLD:
        return outputs_on(predictor, table.dataset, table.part, table.frame)
    from automl.training.folds.judged import judged_outputs

    return judged_outputs(predictor.trained, table.dataset)


def _score_arrays(config: Config, record: StudyRecord, choices: Sequence[Choice]) -> Scoring:
    from automl.data.load import refuse_table_settings
    from automl.training.own_data.evaluation import open_evaluation as open_own

    refuse_table_settings(config.data)
    own = open_own(TrainingPlan.of(config))
    opened = [(choice, open_array_model(config, choice)) for choice in choices]
    trials = {choice.trial.number: model for choice, model in opened if choice.trial is not None}
    refits = {m.refitted.trial: m for _, m in opened if m.refitted is not None}
    if refits and not trials:  # a refit stands beside the trial that it repeats
        trial = trial_of(record, config.study, "refit.trial", next(iter(refits)))
        choice = Choice(best_file(study_path(config.study), trial), trial)
        trials[trial.number] = open_array_model(config, choice)
    named = {trial_name(number): model for number, model in trials.items()}
    named |= {refit_name(number): model for number, model in refits.items()}
    check_arrays(own.facts, named, config)
    notes = [
        said_of_known(model.refitted, config)
        for model in refits.values()
        if model.refitted is not None and learned_from(model.refitted, own.judged.kind)
    ]
    refit = None if notes else next(iter(refits.items()), None)
    event = score(
        own.judged,
        {number: own.outputs(model) for number, model in trials.items()},
        refit=None if refit is None else (refit[0], own.outputs(refit[1])),
        n_resamples=config.evaluate.n_resamples,
        seed=config.study.seed,
    )
    return Scoring(event, f"of {config.data.source}", notes=tuple(notes))


def _with_repeated(
    models: list[TableModel], record: StudyRecord, config: Config
) -> list[TableModel]:
    """A refit stands beside the trial, or the ensemble, that it repeats, an ensemble beside the
    best."""
    first, path = models[0], study_path(config.study)
    if len(models) > 1 or (first.refitted is None and not first.joined):
        return models
    ensemble = StudyFiles(path).ensemble
    if first.joined and first.refitted is not None and ensemble.exists():
        return [*models, open_model(config, Choice(ensemble, None, joined=True))]
    number = None if first.joined else first.trial
    trial = trial_of(record, config.study, "refit.trial", number)
    file = best_file(path, trial)
    return [*models, open_model(config, Choice(file, trial))]


def _repeats(table: Evaluation, config: Config) -> str:
    """What to say of rows that are as those that trained. Raises ConfigError where the rows that
    were given are mostly such."""
    n_repeats, n_rows = table.n_repeats, len(table.part)
    if config.data.test_path is not None and n_repeats > TOO_MANY * n_rows:
        raise ConfigError(
            f"data.test_path={config.data.test_path}: {n_repeats:,} of its {n_rows:,} rows are "
            "rows that trained or chose, which the models know: give rows that no sweep saw."
        )
    if n_repeats <= WORTH_A_WORD * n_rows:
        return ""
    return (
        f"{n_repeats:,} of these {n_rows:,} rows are equal, cell by cell, to rows that trained or "
        "chose"
    )
