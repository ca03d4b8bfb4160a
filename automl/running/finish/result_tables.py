"""The texts and tables with which a sweep begins and ends: greeting, best trials, scores, disk
usage.

The scores are those of the model that the sweep ends with, out-of-fold and on test rows if there
are any, beside a constant prediction. Nothing is trained or stored here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from automl.config import UNLIMITED_N_TRIALS, Config, ObjectiveKind, StudyConfig
from automl.data.dataset import Dataset
from automl.data.scoring.evaluation import simplest_baseline
from automl.data.scoring.metrics import make_predictions
from automl.execution.child_calls import call_in_child
from automl.objectives.model_scoring import HeldOutScores, HeldOutScoringJob
from automl.record.study_directory import study_command
from automl.record.study_files import BEST_CHECKPOINT_FILE, StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, counted, fit_line, size_text
from automl.running.display.console import (
    aligned_lines,
    duration_text,
    open_console,
    params_text,
    value_text,
)
from automl.running.display.view import BestRow
from automl.running.setup.parts import SweepParts
from automl.running.setup.prepared_config import PreparedStudy
from automl.running.setup.several_metrics import metrics_text
from automl.search.domains import ChoiceDomain
from automl.search.search_space import parse_space
from automl.tracking.long_step import long_step
from automl.trial import (
    ENSEMBLE_NAME,
    CheckpointKind,
    Direction,
    EnsembleBuilt,
    ProcessEntry,
    TrialState,
)

READABLE_METRICS = ("val_loss", "val_error", "val_auc", "val_rmse", "val_r2")
"""Metrics that people read. The study's own metric is shown before them."""
N_MORE_METRICS = 2


def print_best(
    best: Sequence[tuple[BestRow, str]],
    metric: str,
    metrics: Mapping[int, Mapping[str, float]] | None = None,
    *,
    out_of_fold: bool = False,
) -> None:
    """Print the best trials, each with its state.

    `metrics`: further metrics of each trial's best report, by trial number.
    """
    console = open_console()
    console.print("best trials" + f", {fit_line(metric)} out-of-fold" * out_of_fold)
    for others in (metrics or {}, {}):
        table = _best_table(best, metric, others)
        if console.width_of(table) <= console.width:
            console.print(table)
            return
    columns, rows = _best_metrics(best, metric, metrics or {})  # too many params for columns
    with_params = [
        (*cells, state, params_text(row.params))
        for cells, (row, state) in zip(rows, best, strict=True)
    ]
    columns = (*columns, "state", "params")
    console.table(columns, with_params, n_left=len(columns))


def _best_table(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row, _ in best for name in row.params))
    columns, rows = _best_metrics(best, metric, metrics)
    for column in (*columns, *names, "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for own, (row, state) in zip(rows, best, strict=True):
        cells = (value_text(row.params[n]) if n in row.params else "" for n in names)
        table.add_row(*own, *cells, state)
    return table


def _best_metrics(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the columns and rows of the trials' numbers, values and further metrics."""
    reported = {name for row, _ in best for name in metrics.get(row.number, ())}
    more = [name for name in READABLE_METRICS if name in reported and name != metric][
        :N_MORE_METRICS
    ]
    several = [name for row, _ in best for name in row.values if name != metric]
    more = list(dict.fromkeys(several)) or more
    rows: list[Sequence[str]] = []
    for row, _ in best:
        own = {**metrics.get(row.number, {}), **row.values}
        others = (f"{own[n]:.5g}" if n in own else "" for n in more)
        rows.append((str(row.number), row.value_text, *others))
    return ("trial", fit_line(metric), *more), rows


SCORE = "automl.objectives.model_scoring:score"
REFIT_NAME = "its refit"
Scores = Mapping[str, float]


@dataclass(frozen=True)
class SweepResult:
    """The model that a sweep ends with, and its scores on the judged rows."""

    name: str
    file: Path
    scores: Scores


def sweep_result(
    record: StudyRecord, joined: EnsembleBuilt | None, files: StudyFiles
) -> SweepResult | None:
    """Return the ensemble that was made, or else the best trial. None if no trial has ended with a
    value."""
    if joined is not None:
        return SweepResult(ENSEMBLE_NAME, files.ensemble, joined.scores)
    if (best := record.best()) is None:
        return None
    scores = {n.removeprefix("val_"): value for n, value in best.best_metrics.items()}
    return SweepResult(
        f"trial {best.number}", files.checkpoint(best.number, CheckpointKind.BEST), scores
    )


def score_on_test_rows(
    prepared: PreparedStudy, result: SweepResult, refit: Path | None, say: Say
) -> HeldOutScores | None:
    """Return the scores on test rows, with those of the refit if there is one. None without test
    rows. Raises AutoMLError."""
    data = prepared.config.data
    if data.test_path is None and not data.test_fraction:
        return None
    files = {result.name: result.file} | ({} if refit is None else {REFIT_NAME: refit})
    paths = {name: str(file) for name, file in files.items()}
    with long_step(f"scoring {' and '.join(files)} on test rows", say):
        answer = call_in_child(ProcessEntry(SCORE, HeldOutScoringJob(paths, data)))
    assert isinstance(answer, HeldOutScores)
    return answer


def baseline_scores(dataset: Dataset) -> tuple[str, Scores]:
    """Return the name and scores of the constant prediction on the rows that judge the study's
    models."""
    ((name, outputs),) = simplest_baseline(dataset, dataset.judged.rows).items()
    unit = dataset.target_mean, dataset.target_scale
    return name, make_predictions(
        dataset.task, outputs, dataset.judged.y, *unit, dataset.loss
    ).scored()


def result_table(
    result: SweepResult,
    dataset: Dataset,
    baseline: tuple[str, Scores],
    test: HeldOutScores | None,
    metric: str,
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return the columns and rows of the table of scores. `metric` is the study's."""
    name, simple = baseline
    shown = _shown(metric, result.scores.keys() & simple.keys())
    judged = "out-of-fold" if dataset.folds else "validation"
    rows = [
        (f"{len(dataset.judged):,} {judged}", result.name, result.scores),
        ("", name, simple),
    ]
    if test is not None:
        named = [*test.scores.items(), (name, test.baseline)]
        first = f"{test.n_rows:,} test"
        rows += [("" if n else first, model, scores) for n, (model, scores) in enumerate(named)]
    cells: list[Sequence[str]] = [
        (where, model, *(f"{scores[m]:.5g}" for m in shown)) for where, model, scores in rows
    ]
    return ("rows", "model", *shown), cells


def no_skill_warning(
    result: SweepResult,
    dataset: Dataset,
    baseline: tuple[str, Scores],
    metric: str,
    towards: Direction,
) -> str:
    """Return the warning that a result is no better than a constant prediction by the study's
    `metric`.

    The text is empty if the result is better, or if the scores cannot be compared.
    """
    own, (name, simple) = metric.removeprefix("val_"), baseline
    ours, theirs = result.scores.get(own), simple.get(own)
    if ours is None or theirs is None or towards.better(ours, theirs):
        return ""
    return (
        f"{result.name} is no better than {name} ({own} {ours:.5g} against {theirs:.5g}), which "
        f"says the same of all rows: the columns tell nothing of {dataset.target or 'the target'}, "
        "or there was too little time."
    )


def _shown(metric: str, known: set[str]) -> list[str]:
    """Return the study's own metric, and others that people read."""
    own = metric.removeprefix("val_")
    more = [
        name
        for read in READABLE_METRICS
        if (name := read.removeprefix("val_")) in known and name != own
    ]
    return [own] * (own in known) + more[:N_MORE_METRICS]


def disk_usage_line(path: Path) -> str:
    """Return the disk usage of a study's folder as a line.

    `on disk: 34.1 MB in studies/any; its largest model 1.2 MB`
    """
    sizes = dict(_sizes(path))
    models = [size for file, size in sizes.items() if file.name == BEST_CHECKPOINT_FILE]
    largest = f"; its largest model {size_text(max(models))}" if models else ""
    return f"on disk: {size_text(sum(sizes.values()))} in {os.path.relpath(path)}{largest}"


def _sizes(path: Path) -> Iterator[tuple[Path, int]]:
    """Yield the files below a folder with their sizes in bytes. Files that vanish meanwhile are
    left out."""
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield Path(folder, name), Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue


MAX_COLUMNS_SHOWN = 20
"""Largest number of a table's columns that are shown."""
COLUMNS = ("column", "taken as", "why")


def greeting_lines(parts: SweepParts) -> Iterator[str]:
    """Yield lines that say what the sweep works on, and how to continue it."""
    yield from parts.prepared.notes
    if (reason := parts.prepared.sampler_decision.reason) is not None:
        yield reason
    if parts.config.refit.of is None:
        yield from notes_of_config(parts.config)
    if not parts.study.n_asked and parts.config.refit.of is None:
        yield from columns_table(parts.prepared.dataset, parts.config.study)
    yield from parts.others.greeting()
    n_gpus = parts.config.admission.devices_per_trial
    if n_gpus > 1 and all(device.on_host for device in parts.reader.addresses):
        yield f"admission.devices_per_trial={n_gpus} counts GPUs: here a trial has the host"
    config, study = parts.config.study, parts.study
    before = study.n_asked
    if parts.config.refit.of is not None:
        yield f"if it is interrupted: {parts.prepared.how_to_go_on()}"
        return
    n_open = sum(study.counts()[state] for state in (TrialState.RUNNING, TrialState.PAUSED))
    if before >= config.decided_n_trials and not n_open:
        yield (
            f"study {study.name} has {counted(before, 'trial')} already, "
            f"study.n_trials={config.decided_n_trials} asks for no more; go on with: "
            f"{parts.prepared.how_to_go_on(n_trials=before + 20)}"
        )
        return
    is_builtin = parts.config.objective.kind is ObjectiveKind.builtin
    has_packs = is_builtin and parts.executor.can.packs
    yield (
        f"study {study.name}: {how_far(config)}"
        f"{f', {before} of them from before' if before else ''}, up to {parts.n_places} "
        f"{'trials or packs ' if has_packs else ''}at once; if it is interrupted: "
        f"{parts.prepared.how_to_go_on()}"
    )


def notes_of_config(config: Config) -> Iterator[str]:
    """Yield what an objective's value is called, and which choices may be meant as a range."""
    if config.study.metrics.are_several:
        yield metrics_text(config)
    from_python = config.objective.kind is ObjectiveKind.called
    is_own = from_python or config.objective.kind in (ObjectiveKind.python, ObjectiveKind.optuna)
    if is_own and not config.study.metrics.are_several:
        size = "large" if config.study.decided_direction is Direction.maximize else "small"
        setting = "" if from_python else "study."
        other = f"; {setting}metric=NAME names another, {setting}direction= turns it"
        yield (
            f"{config.objective.target} is judged by {config.study.metric}: the number it returns, "
            f"or what it reports by that name; {size} values are good"
            f"{other if config.study.metric == StudyConfig.metric else ''}"
        )
    for param in parse_space(config.space).params:
        if isinstance(param.domain, ChoiceDomain) and (ends := param.domain.far_apart()):
            yield f"space.{param.name}: {_as_range(param.name, ends, from_python=from_python)}"


def _as_range(name: str, ends: tuple[float, float], *, from_python: bool) -> str:
    low, high = ends
    written = f"{{low: {low}, high: {high}{', log: true' if low > 0 else ''}}}"
    if from_python:
        written = (
            f'{{"low": {low}, "high": {high}, "log": True}}' if low > 0 else f"({low}, {high})"
        )
    line = f"space={{{name!r}: {written}}}" if from_python else f"space.{name}='{written}'"
    return f"{low} and {high} are two choices, and nothing between is tried; a range is {line}"


def columns_table(dataset: Dataset | None, study: StudyConfig) -> Iterator[str]:
    """Yield lines that say how each column was taken. Among many columns those that are not plain
    numbers come first."""
    if dataset is None or not dataset.column_rows:
        return
    rows = [*dataset.column_rows]
    if len(rows) > MAX_COLUMNS_SHOWN:
        rows.sort(key=lambda row: row.is_plain)
    shown = [(fit_line(r.name, 40), r.kind, fit_line(r.why, 100)) for r in rows[:MAX_COLUMNS_SHOWN]]
    yield from aligned_lines(COLUMNS, shown, n_left=3)
    if (n_more := len(rows) - MAX_COLUMNS_SHOWN) > 0:
        yield f"and {counted(n_more, 'more column')}: {study_command('columns', study)}"


def how_far(study: StudyConfig) -> str:
    """Return how far a sweep goes: `to 20 trials`, or as many trials as its time limit allows."""
    if study.decided_n_trials < UNLIMITED_N_TRIALS or study.timeout_seconds is None:
        return f"to {counted(study.decided_n_trials, 'trial')}"
    return f"as many trials as {duration_text(study.timeout_seconds)} allow"
