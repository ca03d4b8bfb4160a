"""`evaluate`: models of a study scored on rows that no sweep saw, with how sure that is.

Every metric of the task with a 95 % interval, baselines beside them, and for several models whether
their difference is more than chance: of a refit, whether it is worse than the trial it repeats.
Kept in the event log, and so on the runs in MLflow.

An evaluation as people read it: a table by metric, and a sentence for what it means.

Whether a part of the rows ranks trials as more rows do (`data.sweep_rows`).

Nobody has trained on all rows yet, and to do so is what a part saves. So one looks the other way:
the best trials are trained again on a quarter and on a half of the part, and scored on the same
rows as ever. Where the order is the same from a half on, or earlier, more rows need not change it
either; where it changes up to the last, the part may be too small to choose by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automl.commands.models.evaluation_scores import Judge, ScoringResult, score_models
from automl.commands.models.study_opening import bring_up, deliver_evaluation, record_evaluation
from automl.commands.models.which_model import (
    ModelChoice,
    best_file,
    choose_models,
    network_builder,
    open_model,
)
from automl.config import Config
from automl.data.scoring.evaluation import EvaluationRows, loss_of, with_share
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.record.studies import read_study, study_path
from automl.record.study_directory import command_line
from automl.record.study_place import settle_place_unlocked
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, fit_line, say_on_stdout
from automl.record.trial_record import TrialRecord
from automl.running.display.console import open_console
from automl.tracking.long_step import long_step
from automl.trial import ENSEMBLE_NAME, ModelsEvaluated, TrialState, refit_name, trial_name

N_TRIALS = 3
"""Whose order is looked at, where none are named."""
SHARES = (0.25, 0.5)
"""Of the rows that trials train on."""
LEAST_ROWS = 40
"""Of which a quarter can still be trained on."""


@dataclass(frozen=True)
class PartLosses:
    """Losses of trials by the share of the part that they were trained on, all of it last."""

    trials: tuple[int, ...]
    n_rows: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    """A row for each number of rows, a column for each trial."""


def compare_parts(config: Config, record: StudyRecord) -> list[TrialRecord]:
    """Finished trials, the best first: pruned ones were trained for shorter."""
    numbers = config.evaluate.trials
    finished = [t for t in record.ranking() if t.state is TrialState.FINISHED]
    return [t for t in finished if t.number in numbers] if numbers else finished[:N_TRIALS]


def rank_parts(
    trials: Sequence[TrialRecord], evaluation: EvaluationRows, directory: Path, config: Config
) -> PartLosses:
    """Train the trials again on the shares, and score them beside their own models.

    Raises AutoMLError.
    """
    from automl.models.model_scoring import retrain_trial

    plan, rows = TrainingPlan.from_config(config), evaluation.part.rows
    build = network_builder(config)
    own = [open_model(config, ModelChoice(best_file(directory, trial), trial)) for trial in trials]
    n_rows, losses = [], []
    for share in SHARES:
        part = with_share(evaluation, share, config.data.split_seed)
        setup = SessionSetup(plan, part.dataset, config.execution.threads_per_trial)
        models = [
            retrain_trial(setup, trial.number, trial.params, config.study.seed, build)
            for trial in trials
        ]
        n_rows.append(len(part.dataset.train))
        losses.append(tuple(loss_of(part, model.outputs(rows)) for model in models))
    return PartLosses(
        tuple(trial.number for trial in trials),
        (*n_rows, len(evaluation.dataset.train)),
        (*losses, tuple(loss_of(evaluation, model.predictor.outputs(rows)) for model in own)),
    )


def parts_sentence(found: PartLosses) -> str:
    """What it means, in a sentence."""
    orders = [tuple(sorted(range(len(row)), key=row.__getitem__)) for row in found.losses]
    n_same = next(i for i in range(len(orders)) if len(set(orders[i:])) == 1)
    if n_same < len(orders) - 1:
        return (
            f"their order is the same from {found.n_rows[n_same]:,} rows on: more rows have not "
            "changed it"
        )
    best = {found.trials[order[0]] for order in orders[-2:]}
    if len(best) == 1:
        return f"trial {best.pop()} is the best on a half and on all; the order behind it changes"
    return (
        f"on {found.n_rows[-2]:,} rows another trial is the best than on {found.n_rows[-1]:,}: "
        "the part may be too small to choose by; take a larger data.sweep_rows in a new study"
    )


COLUMNS = ("metric", "model", "score", "95 % interval", "difference", "")


def evaluation_table(event: ModelsEvaluated) -> list[tuple[str, ...]]:
    """A row for each metric of each model; the first model, then what is compared with it."""
    names = model_names(event)
    first = event.models[0]
    rows: list[tuple[str, ...]] = []
    for metric in event.scores[first]:
        figure = _figures_like(event.scores[first][metric].value)
        for name in names:
            score = event.scores[name][metric]
            shown = metric if name == first else ""
            cells = (shown, names[name], figure(score.value), _span(score.low, score.high, figure))
            rows.append((*cells, *_against_first(event, name, metric, figure)))
    return rows


def model_names(event: ModelsEvaluated) -> dict[str, str]:
    """What each model is called in a table, by its name in the event."""
    models = {trial_name(number): f"trial {number}" for number in event.trials}
    if event.ensembled:
        models = {ENSEMBLE_NAME: ENSEMBLE_NAME} | models
    if event.refit_of_ensemble:
        models = {refit_name(None): f"refit of {ENSEMBLE_NAME}"} | models
    if event.refit_of is not None:
        models = {refit_name(event.refit_of): f"refit of {event.refit_of}"} | models
    return models | {name: name for name in event.scores if name not in models}


def score_records(event: ModelsEvaluated) -> list[dict[str, Any]]:
    """A row for each metric of each model, of plain values."""
    rows = []
    for metric in event.scores[event.models[0]]:
        for name, model in model_names(event).items():
            score = event.scores[name][metric]
            row = {"metric": metric, "model": model, "score": score.value}
            row |= {"low": score.low, "high": score.high}
            if (found := event.differences.get(name, {}).get(metric)) is not None:
                row |= {"difference": found.value, "difference_low": found.low}
                row |= {"difference_high": found.high, "verdict": found.verdict}
            rows.append(row | {"rows": event.rows})
    return rows


def part_table(found: PartLosses) -> tuple[list[str], list[list[str]]]:
    """Columns and rows of how trials rank on parts of the rows."""
    figure = _figures_like(found.losses[-1][0])
    columns = ["trained on", *(f"trial {number}" for number in found.trials)]
    rows = zip(found.n_rows, found.losses, strict=True)
    return columns, [[f"{n:,} rows", *map(figure, losses)] for n, losses in rows]


def closing_lines(event: ModelsEvaluated) -> Iterator[str]:
    """What a table does not say by itself."""
    models = event.models
    yield (
        f"difference: from {model_names(event)[models[0]]}, with the 95 % interval of the "
        f"difference "
        "itself (paired bootstrap, the same rows for both)"
        + (", all models together" if len(models) > 2 else "")
    )
    if not event.kind.unseen:
        yield (
            "these rows chose among trials, so that the scores flatter them; give rows that no "
            "sweep saw: data.test_path=FILE"
        )


def _against_first(
    event: ModelsEvaluated, name: str, metric: str, figure: Callable[[float], str]
) -> tuple[str, str]:
    found = event.differences.get(name, {}).get(metric)
    if found is None:
        return "", ""
    return f"{figure(found.value)} ({_span(found.low, found.high, figure)})", found.verdict


def _figures_like(score: float) -> Callable[[float], str]:
    """All figures of a metric with as many decimals: four digits of the score."""
    size = math.floor(math.log10(abs(score))) if score and math.isfinite(score) else 0
    decimals = min(max(0, 3 - size), 12) if size < 0 else max(0, 4 - max(size, 0))
    return lambda value: f"{value:.{decimals}f}"


def _span(low: float, high: float, figure: Callable[[float], str]) -> str:
    return f"{figure(low)} to {figure(high)}"


def run(config: Config, stored_config: str) -> int:
    """Score, show and keep. Raises AutoMLError."""
    evaluate(config, say_on_stdout)
    return 0


def evaluate(
    config: Config,
    say: Say,
    *,
    show: bool = True,
    to_mlflow: bool = True,
    judge: Judge = EvaluationRows.judged,
) -> ModelsEvaluated:
    """The scores of the models that `evaluate.*` names; shown in tables, if they are to be, and
    given to MLflow, unless the caller does that later. `judge` has the baselines of rows that were
    scored before. Raises AutoMLError."""
    choices = choose_models(config)
    bring_up(config.study)
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    record = read_study(directory)
    with long_step("loading PyTorch and scoring the models", say) as step:
        scoring = score_models(config, record, choices, judge, step.at)
    if show:
        _show(scoring, config)
    if record_evaluation(scoring.event, config):
        if to_mlflow:
            deliver_evaluation(directory, config, place, say)
    else:
        again = command_line("evaluate", config.study)
        say(f"a sweep works on the study, so that these scores are kept nowhere; after it: {again}")
    if show and scoring.table is not None:
        _show_parts(scoring.table, record, config)
    return scoring.event


def _show(scoring: ScoringResult, config: Config) -> None:
    event, console = scoring.event, open_console()
    console.say(f"{config.study.name}: {event.rows} ({fit_line(scoring.source)})", "bold")
    console.table(COLUMNS, evaluation_table(event), n_left=2)
    for line in closing_lines(event):
        console.say(line, "dim")
    for note in scoring.notes:
        console.say(note, "yellow")


def _show_parts(table: EvaluationRows, record: StudyRecord, config: Config) -> None:
    """Whether `data.sweep_rows` ranks as more rows do, where a study has it."""
    trials = compare_parts(config, record)
    too_few = len(trials) < 2 or len(table.dataset.train) < LEAST_ROWS
    if config.data.sweep_rows is None or too_few:
        return
    found = rank_parts(trials, table, study_path(config.study), config)
    columns, rows = part_table(found)
    console = open_console()
    console.say("loss on the same rows, of the same trials trained on fewer", "bold")
    console.table(columns, rows)
    console.say(parts_sentence(found), "dim")
