"""Computes the scores of a study's models, on its table or on the user's own rows (`data=python`).

Models are scored only on rows that they have not learned from; this file checks which rows these
are. It neither prints nor stores the scores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from automl.commands.models.which_model import (
    ModelChoice,
    TableModel,
    best_checkpoint_file,
    find_model_trial,
    open_array_model,
    open_model,
    outdated_model_note,
)
from automl.config import Config, DataKind
from automl.config.command_arguments import ALL_ROWS, TRAIN_ROWS
from automl.config.metrics import JUDGED_PREFIX
from automl.data.dataset import Dataset, UserDataFacts
from automl.data.scoring.evaluation import (
    N_RESAMPLES,
    EvaluationRows,
    ScoredRows,
    open_evaluation,
    score_predictions,
)
from automl.data.scoring.label_thresholds import THRESHOLD_METRICS, LabelThresholds
from automl.data.scoring.metrics import Floats, Threshold
from automl.errors import ConfigError
from automl.models.model_file import RefitFacts
from automl.objectives.model_scoring import outputs_on_part
from automl.objectives.training_plan import TrainingPlan, make_users_metric
from automl.record.studies import study_path
from automl.record.study_files import REFIT_MODEL_FILE, StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import counted
from automl.trial import ModelsEvaluated, RowsKind, refit_name, trial_name

if TYPE_CHECKING:
    from automl.models.array_predictor import ArrayPredictor
    from automl.models.predictor import Predictor


class KnownRowsError(ConfigError):
    """Raised when a refit is to be scored, and there are no rows that it has not seen."""


def check_same_table(dataset: Dataset, models: Sequence[TableModel], config: Config) -> None:
    """Raise ConfigError where the table, or its split, is not the one that the models learned from:
    some of its test rows may have trained them."""
    for model in models:
        predictor, refitted = model.predictor, model.refitted
        digest = predictor.data_digest if refitted is None else refitted.data
        # Old model files have no digest: their columns are compared.
        same = digest == dataset.digest if digest else predictor.columns == dataset.columns
        if not same:
            where = f"data.path={config.data.path}" if config.data.path else "the data"
            raise ConfigError(
                f"study.name={config.study.name}: {where} is not what {model.name} learned from "
                "(other content, or split by other data.* settings), so that nobody knows which "
                "rows no sweep saw. Put the table of then back, and change no data.* but "
                "data.path (where it lies now) and data.test (rows that came later)."
            )


def check_same_arrays(
    facts: UserDataFacts, models: Mapping[str, ArrayPredictor], config: Config
) -> None:
    """Raise ConfigError where the user's own rows are not the ones that the models learned from.
    Tensors are compared by content; of a Dataset only sizes are known."""
    for name, model in models.items():
        digest = model.data_digest if model.refitted is None else model.refitted.data
        if digest not in ("", facts.digest):
            raise ConfigError(
                f"study.name={config.study.name}: data.source={config.data.source} gives other "
                f"data than {name} learned from, so that nobody knows which rows no sweep "
                "saw. Have it give what it gave then: seed what it draws, its split above all."
            )


def rows_learned_from(refitted: RefitFacts | None, kind: RowsKind) -> bool:
    """Return whether a refit trained on rows of this kind; None stands for a trial, which did
    not."""
    if refitted is None:
        return False
    if kind is RowsKind.OUT_OF_FOLD:
        return True
    if kind is RowsKind.VALIDATION:
        return refitted.rows != TRAIN_ROWS
    return kind is RowsKind.KEPT and refitted.rows == ALL_ROWS


def scorable_models(
    models: Sequence[TableModel], evaluation: EvaluationRows, config: Config, *, asks_refit: bool
) -> tuple[list[TableModel], str]:
    """Return the models that have not learned from the rows, and a note on the model that has.
    Raises KnownRowsError where that model was asked for."""
    known_model = next((m for m in models if rows_learned_from(m.refitted, evaluation.kind)), None)
    if known_model is None:
        return list(models), ""
    assert known_model.refitted is not None
    note = known_rows_note(known_model.refitted, config, asks_refit=asks_refit)
    return [model for model in models if model is not known_model], note


def known_rows_note(refitted: RefitFacts, config: Config, *, asks_refit: bool) -> str:
    """Return a note on a refit that has learned from the rows. Raises KnownRowsError where it was
    asked for."""
    remedy = "data.test=FILE"
    if config.data.kind is DataKind.python:
        remedy = f'as part "test" of {config.data.source}'
    note = (
        f"{REFIT_MODEL_FILE} was trained on these rows, too (rows={refitted.rows}): give "
        f"rows that came "
        f"later, {remedy}, to score it"
    )
    if asks_refit:
        raise KnownRowsError(f"which=refit: {note}, or refit with fewer rows.")
    return note


Judge: TypeAlias = Callable[[EvaluationRows], ScoredRows]
NOTED_SHARE, REFUSED_SHARE = 0.02, 0.2
"""Shares of the rows that equal rows that trained or chose, beyond chance: from the first on a note
says so, from the second on given rows are refused."""


@dataclass(frozen=True)
class ScoringResult:
    """The scores of models, the rows that they were computed on, and notes on them."""

    event: ModelsEvaluated
    source: str
    """Where the rows come from, in words for the user."""
    table: EvaluationRows | None = None
    """The scored rows of a table; None for the user's own rows."""
    notes: tuple[str, ...] = ()
    """Notes on the scores: a model that was left out, or that is of another trial than expected;
    rows that the models know."""


class JudgedRowsCache:
    """Keeps the rows with their baselines, one of which is fitted, for several evaluations on the
    same rows."""

    def __init__(self) -> None:
        self._rows: ScoredRows | None = None
        self._rows_key: tuple[str, str] | None = None

    def __call__(self, table: EvaluationRows) -> ScoredRows:
        key = table.digest, table.dataset.digest
        if self._rows is None or self._rows_key != key:
            self._rows, self._rows_key = table.judged(), key
        return self._rows


def score_models(
    config: Config,
    record: StudyRecord,
    choices: Sequence[ModelChoice],
    judge: Judge = EvaluationRows.judged,
    at: Callable[[str], None] = lambda stage: None,
    *,
    asks_refit: bool = False,
) -> ScoringResult:
    """Return the scores of the models; `at` is called with the name of each stage. Raises
    AutoMLError; `asks_refit` makes a refit that knows the rows an error, and not a note."""
    if config.data.kind is DataKind.python:
        return _score_arrays(config, record, choices, asks_refit=asks_refit)
    return _score_table(config, record, choices, judge, at, asks_refit=asks_refit)


def _score_table(
    config: Config,
    record: StudyRecord,
    choices: Sequence[ModelChoice],
    judge: Judge,
    at: Callable[[str], None],
    *,
    asks_refit: bool,
) -> ScoringResult:
    at("reading the table")
    own_test = record.settings.get("data.test")
    users_metric = make_users_metric(config)
    table = open_evaluation(config.data, own_test, config.training.value_loss, users_metric)
    models = _with_compared_model(
        [open_model(config, choice) for choice in choices], record, config
    )
    models, left_out = scorable_models(models, table, config, asks_refit=asks_refit)
    check_same_table(table.dataset, models, config)
    repeats_note = _repeats_note(table, config)
    outputs = []
    for number, model in enumerate(models):
        at(f"asking {model.name}, {number + 1} of {counted(len(models), 'model')}")
        outputs.append(_outputs(model, table))
    outputs_by_model = list(zip(models, outputs, strict=True))
    at("fitting the baselines")
    scored_rows = judge(table)
    at("finding the intervals")
    event = score_predictions(
        scored_rows,
        {m.trial: out for m, out in outputs_by_model if m.refitted is None and not m.is_ensemble},
        refit=next(
            (
                (m.trial if not m.is_ensemble else None, out)
                for m, out in outputs_by_model
                if m.refitted
            ),
            None,
        ),
        ensemble=next(
            (out for m, out in outputs_by_model if m.is_ensemble and m.refitted is None), None
        ),
        thresholds={
            model.name: _threshold(model.predictor, out, table, config.study.leading_metric)
            for model, out in outputs_by_model
        },
        n_resamples=N_RESAMPLES,
        seed=config.study.seed,
    )
    notes = (left_out, *(outdated_model_note(config, model) for model in models), repeats_note)
    return ScoringResult(event, table.source, table, tuple(filter(None, notes)))


def _threshold(
    model: Predictor, outputs: Floats, table: EvaluationRows, metric: str
) -> Threshold | None:
    """Return the threshold of the model's labels. If it was found on these rows, each row gets the
    threshold found on the others."""
    if model.threshold is None or table.kind.unseen:
        return model.threshold
    name = metric.removeprefix(JUDGED_PREFIX)
    if name not in THRESHOLD_METRICS:  # it follows from the costs of wrong labels alone
        return model.threshold
    found = LabelThresholds.find(outputs, table.part.y, name)
    return None if found is None else found.held_out


def _outputs(model: TableModel, table: EvaluationRows) -> Floats:
    """Return the model's outputs for the rows; out-of-fold, the outputs of the folds' models that
    never saw them."""
    predictor = model.predictor
    if model.refitted is not None or table.kind is not RowsKind.OUT_OF_FOLD:
        return outputs_on_part(predictor, table.dataset, table.part, table.frame)
    from automl.models.mean_model import judged_outputs

    return judged_outputs(predictor.trained_model, table.dataset)


def _score_arrays(
    config: Config, record: StudyRecord, choices: Sequence[ModelChoice], *, asks_refit: bool
) -> ScoringResult:
    from automl.data.load import refuse_table_settings
    from automl.objectives.user_data.evaluation import open_array_evaluation

    refuse_table_settings(config.data)
    user_rows = open_array_evaluation(TrainingPlan.from_config(config))
    opened = [(choice, open_array_model(config, choice)) for choice in choices]
    trials = {choice.trial.number: model for choice, model in opened if choice.trial is not None}
    refits = {m.refitted.trial: m for _, m in opened if m.refitted is not None}
    if refits and not trials:  # a refit is compared with the trial that it repeats
        trial = find_model_trial(record, config.study, next(iter(refits)))
        choice = ModelChoice(best_checkpoint_file(study_path(config.study), trial), trial)
        trials[trial.number] = open_array_model(config, choice)
    named = {trial_name(number): model for number, model in trials.items()}
    named |= {refit_name(number): model for number, model in refits.items()}
    check_same_arrays(user_rows.facts, named, config)
    notes = [
        known_rows_note(model.refitted, config, asks_refit=asks_refit)
        for model in refits.values()
        if model.refitted is not None and rows_learned_from(model.refitted, user_rows.judged.kind)
    ]
    refit = None if notes else next(iter(refits.items()), None)
    event = score_predictions(
        user_rows.judged,
        {number: user_rows.outputs(model) for number, model in trials.items()},
        refit=None if refit is None else (refit[0], user_rows.outputs(refit[1])),
        n_resamples=N_RESAMPLES,
        seed=config.study.seed,
    )
    return ScoringResult(event, f"of {config.data.source}", notes=tuple(notes))


def _with_compared_model(
    models: list[TableModel], record: StudyRecord, config: Config
) -> list[TableModel]:
    """Return the models with the one to compare with added: a refit gets the trial or the ensemble
    that it repeats, an ensemble gets the best trial."""
    first, path = models[0], study_path(config.study)
    if len(models) > 1 or (first.refitted is None and not first.is_ensemble):
        return models
    ensemble = StudyFiles(path).ensemble
    if first.is_ensemble and first.refitted is not None and ensemble.exists():
        return [*models, open_model(config, ModelChoice(ensemble, None, is_ensemble=True))]
    number = None if first.is_ensemble else first.trial
    trial = find_model_trial(record, config.study, number)
    file = best_checkpoint_file(path, trial)
    return [*models, open_model(config, ModelChoice(file, trial))]


def _repeats_note(table: EvaluationRows, config: Config) -> str:
    """Return a note on rows that equal rows that trained or chose. Raises ConfigError where most of
    the given rows do."""
    n_repeats, n_rows = table.n_repeats, len(table.part)
    if config.data.test_path is not None and n_repeats > REFUSED_SHARE * n_rows:
        raise ConfigError(
            f"data.test={config.data.test}: {n_repeats:,} of its {n_rows:,} rows are "
            "rows that trained or chose, which the models know: give rows that no sweep saw."
        )
    if n_repeats <= NOTED_SHARE * n_rows:
        return ""
    return (
        f"{n_repeats:,} of these {n_rows:,} rows are equal, cell by cell, to rows that trained or "
        "chose"
    )
