"""`evaluate_models`: scores models of a study on rows that no sweep saw, with their uncertainty.

Every metric of the task gets a 95 % interval, with baselines beside it. For several models it says
whether their difference is more than chance; for a refit, whether it is worse than the trial it
repeats. The scores are kept in the event log, and from there on the runs in MLflow. They are
computed in `models/evaluation_scores.py`.

A study with `data.sweep_rows` is also checked for whether a part of the rows ranks trials as more
rows do. A part exists to avoid training on all rows, so the check goes the other way: the best
trials are trained again on a quarter and on a half of the part, and scored on the same rows. If
their order is the same from a half on, or earlier, more rows need not change it either; if it
changes up to the last, the part may be too small to choose by.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automl.commands.command_call import CommandCall
from automl.commands.models.evaluation_scores import Judge, ScoringResult, score_models
from automl.commands.models.study_opening import (
    deliver_evaluation,
    fetch_shared_study,
    record_evaluation,
)
from automl.commands.models.which_model import (
    ModelChoice,
    as_searched,
    best_checkpoint_file,
    choose_models,
    network_builder,
    open_model,
)
from automl.config import Config
from automl.config.command_arguments import EvaluateArguments
from automl.config.which_models import REFIT, WhichModels, parse_which
from automl.data.load import write_parts
from automl.data.scoring.evaluation import EvaluationRows, evaluation_loss, take_training_share
from automl.errors import ConfigError
from automl.in_trial.seeds import evaluation_seed
from automl.objectives.training_plan import SessionSetup, TrainingPlan
from automl.record.studies import read_study, study_path
from automl.record.study_directory import settle_place_unlocked, study_command
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, counted, fit_line, say_on_stdout
from automl.record.trial_record import TrialRecord
from automl.terminal.console import open_console
from automl.terminal.machine_output import write_answer
from automl.tracking.long_step import long_step
from automl.trial import (
    ENSEMBLE_NAME,
    ModelsEvaluated,
    RowsKind,
    TrialState,
    refit_name,
    standard_error,
    trial_name,
)

N_TRIALS = 3
"""Number of best trials whose order is checked if `which` names none."""
SHARES = (0.25, 0.5)
"""Shares of the trials' training rows that the trials are trained on again."""
MIN_PART_ROWS = 40
"""The fewest training rows of which a quarter can still be trained on."""


@dataclass(frozen=True)
class PartLosses:
    """Losses of trials by the share of the part that they were trained on, the whole part last."""

    trials: tuple[int, ...]
    n_rows: tuple[int, ...]
    losses: tuple[tuple[float, ...], ...]
    """Losses as a row for each number of rows, and a column for each trial."""


def compare_parts(which: WhichModels, record: StudyRecord) -> list[TrialRecord]:
    """Return the trials to compare, the best first; pruned ones were trained for shorter and are
    left out."""
    numbers = [model.number for model in which.models if model.number is not None]
    finished = [t for t in record.ranking() if t.state is TrialState.FINISHED]
    return [t for t in finished if t.number in numbers] if numbers else finished[:N_TRIALS]


def rank_parts(
    trials: Sequence[TrialRecord], evaluation: EvaluationRows, directory: Path, config: Config
) -> PartLosses:
    """Train the trials again on the shares, and score them beside their own models.

    Raises AutoMLError.
    """
    from automl.objectives.model_scoring import retrain_trial

    plan, rows = TrainingPlan.from_config(config), evaluation.part.rows
    build = network_builder(config)
    own = [
        open_model(config, ModelChoice(best_checkpoint_file(directory, trial), trial))
        for trial in trials
    ]
    n_rows, losses = [], []
    for share in SHARES:
        part = take_training_share(evaluation, share, config.data.split_seed)
        setup = SessionSetup(plan, part.dataset, config.execution.threads_per_trial)
        models = [
            retrain_trial(setup, trial.number, trial.params, config.study.seed, build)
            for trial in trials
        ]
        n_rows.append(len(part.dataset.train))
        losses.append(tuple(evaluation_loss(part, model.outputs(rows)) for model in models))
    return PartLosses(
        tuple(trial.number for trial in trials),
        (*n_rows, len(evaluation.dataset.train)),
        (
            *losses,
            tuple(evaluation_loss(evaluation, model.predictor.outputs(rows)) for model in own),
        ),
    )


def score_repeats(
    config: Config,
    trial: TrialRecord,
    n: int,
    evaluation: EvaluationRows,
    at: Callable[[str], None],
) -> Mapping[str, tuple[float, ...]]:
    """Train a trial again with `n` fresh seeds; return the scores of the trainings by metric.

    Raises AutoMLError.
    """
    from automl.models.mean_model import judged_outputs
    from automl.objectives.model_scoring import retrain_trial

    data = evaluation.dataset
    plan = replace(TrainingPlan.from_config(config), n_models=data.n_models, repeats=1)
    setup = SessionSetup(plan, data, config.execution.threads_per_trial)
    build = network_builder(config)
    found: dict[str, list[float]] = defaultdict(list)
    for repeat in range(n):
        at(f"training trial {trial.number} again, {repeat + 1} of {n}")
        seed = evaluation_seed(config.study.seed, repeat)
        model = retrain_trial(setup, trial.number, trial.params, seed, build)
        outputs = (
            judged_outputs(model.trained_model, data)
            if evaluation.kind is RowsKind.OUT_OF_FOLD
            else model.outputs(evaluation.part.rows)
        )
        for metric, score in evaluation.scored(outputs, model.threshold).items():
            found[metric].append(score)
    return {metric: tuple(scores) for metric, scores in found.items()}


def repeated_table(event: ModelsEvaluated) -> list[tuple[str, ...]]:
    """Return a row for each metric of a trial that was trained again: the mean, its standard error,
    the lowest and the highest score, and the score of the trial's own model."""
    own = event.scores[trial_name(event.repeated_trial or 0)]
    rows: list[tuple[str, ...]] = []
    for metric, scores in event.repeated_scores.items():
        figure = _formatter_for(own[metric].value)
        mean, error = sum(scores) / len(scores), standard_error(scores) or 0.0
        spread = _interval_text(min(scores), max(scores), figure)
        rows.append((metric, f"{figure(mean)} ± {error:.2g}", spread, figure(own[metric].value)))
    return rows


def parts_sentence(losses: PartLosses) -> str:
    """Return a sentence that says what the losses mean for `data.sweep_rows`."""
    orders = [tuple(sorted(range(len(row)), key=row.__getitem__)) for row in losses.losses]
    n_same = next(i for i in range(len(orders)) if len(set(orders[i:])) == 1)
    if n_same < len(orders) - 1:
        return (
            f"their order is the same from {losses.n_rows[n_same]:,} rows on: more rows have not "
            "changed it"
        )
    best = {losses.trials[order[0]] for order in orders[-2:]}
    if len(best) == 1:
        return f"trial {best.pop()} is the best on a half and on all; the order behind it changes"
    return (
        f"on {losses.n_rows[-2]:,} rows another trial is the best than on {losses.n_rows[-1]:,}: "
        "the part may be too small to choose by; take a larger data.sweep_rows in a new study"
    )


EVALUATION_COLUMNS = ("metric", "model", "score", "95 % interval", "difference", "")


def evaluation_table(event: ModelsEvaluated) -> list[tuple[str, ...]]:
    """Return a row for each metric of each model: the first model, then the models compared with
    it."""
    names = model_names(event)
    first = event.models[0]
    rows: list[tuple[str, ...]] = []
    for metric in event.scores[first]:
        figure = _formatter_for(event.scores[first][metric].value)
        for name in names:
            score = event.scores[name][metric]
            shown = metric if name == first else ""
            cells = (
                shown,
                names[name],
                figure(score.value),
                _interval_text(score.low, score.high, figure),
            )
            rows.append((*cells, *_against_first(event, name, metric, figure)))
    return rows


def model_names(event: ModelsEvaluated) -> dict[str, str]:
    """Return the name of each model in a table, by its name in the event."""
    models = {trial_name(number): f"trial {number}" for number in event.trials}
    if event.ensembled:
        models = {ENSEMBLE_NAME: ENSEMBLE_NAME} | models
    if event.refit_of_ensemble:
        models = {refit_name(None): f"refit of {ENSEMBLE_NAME}"} | models
    if event.refit_of is not None:
        models = {refit_name(event.refit_of): f"refit of {event.refit_of}"} | models
    return models | {name: name for name in event.scores if name not in models}


def score_records(event: ModelsEvaluated) -> list[dict[str, Any]]:
    """Return a row for each metric of each model, as plain values."""
    rows = []
    for metric in event.scores[event.models[0]]:
        for name, model in model_names(event).items():
            score = event.scores[name][metric]
            row = {"metric": metric, "model": model, "score": score.value}
            row |= {"low": score.low, "high": score.high}
            if (difference := event.differences.get(name, {}).get(metric)) is not None:
                row |= {"difference": difference.value, "difference_low": difference.low}
                row |= {"difference_high": difference.high, "verdict": difference.verdict}
            rows.append(row | {"rows": event.rows})
    return rows


def part_ranking_table(losses: PartLosses) -> tuple[list[str], list[list[str]]]:
    """Return columns and rows of a table of how trials rank on parts of the rows."""
    figure = _formatter_for(losses.losses[-1][0])
    columns = ["trained on", *(f"trial {number}" for number in losses.trials)]
    rows = zip(losses.n_rows, losses.losses, strict=True)
    return columns, [[counted(n, "row"), *map(figure, losses)] for n, losses in rows]


def closing_lines(event: ModelsEvaluated) -> Iterator[str]:
    """Yield the sentences below a table of scores: what a difference is, and what flatters the
    scores."""
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
            "sweep saw: data.test=FILE"
        )


def _against_first(
    event: ModelsEvaluated, name: str, metric: str, figure: Callable[[float], str]
) -> tuple[str, str]:
    difference = event.differences.get(name, {}).get(metric)
    if difference is None:
        return "", ""
    return (
        f"{figure(difference.value)} ({_interval_text(difference.low, difference.high, figure)})",
        difference.verdict,
    )


def _formatter_for(score: float) -> Callable[[float], str]:
    """Return a formatter that gives all figures of a metric as many decimals as four digits of the
    score need."""
    size = math.floor(math.log10(abs(score))) if score and math.isfinite(score) else 0
    decimals = min(max(0, 3 - size), 12) if size < 0 else max(0, 4 - max(size, 0))
    return lambda value: f"{value:.{decimals}f}"


def _interval_text(low: float, high: float, figure: Callable[[float], str]) -> str:
    return f"{figure(low)} to {figure(high)}"


def run(call: CommandCall) -> int:
    """Score the models, print the scores and keep them. Raises AutoMLError."""
    arguments = call.typed_arguments(EvaluateArguments)
    event = evaluate_models(call.config, arguments, say_on_stdout)
    write_answer({"evaluation": event, "rows": event.rows, "models": event.models})
    return 0


def evaluate_models(
    config: Config,
    arguments: EvaluateArguments,
    say: Say,
    *,
    show: bool = True,
    to_mlflow: bool = True,
    judge: Judge = EvaluationRows.judged,
) -> ModelsEvaluated:
    """Score the models that the arguments name, and keep the scores.

    `show` prints them as tables; `to_mlflow=False` leaves the delivery to the caller. `judge` may
    return baselines of rows that were scored before. Raises AutoMLError.
    """
    which = parse_which(arguments.which)
    choices = choose_models(config, which)
    fetch_shared_study(config.study)
    directory = study_path(config.study)
    place = settle_place_unlocked(directory, config.study)
    record = read_study(directory)
    with long_step("loading PyTorch and scoring the models", say) as step:
        asks_refit = REFIT.models[0] in which.models
        scoring = score_models(config, record, choices, judge, step.at, asks_refit=asks_refit)
        scoring = _with_repeats(scoring, record, config, arguments.seeds, step.at)
    if arguments.to is not None:
        folder = Path(arguments.to).expanduser()
        write_parts(as_searched(config, record).data, folder)
        say(f"the parts of the table: {folder}")
    if show:
        _show(scoring, config)
    if record_evaluation(scoring.event, config):
        if to_mlflow:
            deliver_evaluation(directory, config, place, say)
    else:
        command = study_command("evaluate", config.study)
        say(
            f"a sweep works on the study, so that these scores are kept nowhere; after it: "
            f"{command}"
        )
    if show and scoring.table is not None:
        _show_parts(scoring.table, record, which, config)
    return scoring.event


def _with_repeats(
    scoring: ScoringResult,
    record: StudyRecord,
    config: Config,
    n: int,
    at: Callable[[str], None],
) -> ScoringResult:
    """Return the scores with those of `n` fresh trainings of the best trial."""
    table, event = scoring.table, scoring.event
    if not n:
        return scoring
    if table is None or not event.trials:
        raise ConfigError(
            f"seeds={n}: trains a trial of a table again, and no trial of a table is scored: name "
            "one by which=NUMBER, or leave seeds out."
        )
    number = event.trials[0]
    scores = score_repeats(config, record.trials[number], n, table, at)
    repeated = replace(event, repeated_trial=number, repeated_scores=scores)
    return replace(scoring, event=repeated)


def _show(scoring: ScoringResult, config: Config) -> None:
    event, console = scoring.event, open_console()
    console.say(f"{config.study.name}: {event.rows} ({fit_line(scoring.source)})", "bold")
    console.table(EVALUATION_COLUMNS, evaluation_table(event), n_left=2)
    for line in closing_lines(event):
        console.say(line, "dim")
    if event.repeated_trial is not None:
        n = len(next(iter(event.repeated_scores.values())))
        console.say(
            f"trial {event.repeated_trial} trained {counted(n, 'time')} with fresh seeds", "bold"
        )
        columns = ("metric", "mean ± standard error", "lowest to highest", "its own model")
        console.table(columns, repeated_table(event), n_left=1)
    for note in scoring.notes:
        console.say(note, "yellow")


def _show_parts(
    table: EvaluationRows, record: StudyRecord, which: WhichModels, config: Config
) -> None:
    """Print whether `data.sweep_rows` ranks trials as more rows do, if the study has it."""
    trials = compare_parts(which, record)
    too_few = len(trials) < 2 or len(table.dataset.train) < MIN_PART_ROWS
    if config.data.sweep_rows is None or too_few:
        return
    losses = rank_parts(trials, table, study_path(config.study), config)
    columns, rows = part_ranking_table(losses)
    console = open_console()
    console.say("loss on the same rows, of the same trials trained on fewer", "bold")
    console.table(columns, rows)
    console.say(parts_sentence(losses), "dim")
