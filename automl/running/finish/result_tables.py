"""How good the model is that a sweep ends with: out-of-fold, and on test rows where there are some,
beside what says the same of all rows.

The closing table: the best trials of the study.

What a study takes on disk, for people.

What a sweep says first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from automl.config import MANY_TRIALS, StudyConfig
from automl.data.dataset import Dataset
from automl.data.scoring.baselines import simplest_baseline
from automl.data.scoring.metrics import make_predictions
from automl.execution.child_calls import call_in_child
from automl.models.model_scoring import HeldOutScores, HeldOutScoringJob
from automl.record.study_directory import command_line
from automl.record.study_files import BEST, StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, fit_line
from automl.running.display.console import aligned_lines, duration_text, open_console, value_text
from automl.running.display.rendering import best_text
from automl.running.display.view import BestRow
from automl.running.setup.parts import SweepParts
from automl.running.setup.prepared_config import PreparedStudy
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
"""Metrics that people read; the study's own stands before them."""
N_MORE_METRICS = 2


def print_best(
    best: Sequence[tuple[BestRow, str]],
    metric: str,
    metrics: Mapping[int, Mapping[str, float]] | None = None,
    *,
    out_of_fold: bool = False,
) -> None:
    """The best trials, each with its state; `metrics`: more of the best report of each."""
    console = open_console()
    console.print("best trials" + f", {fit_line(metric)} out-of-fold" * out_of_fold)
    for others in (metrics or {}, {}):
        table = _best_table(best, metric, others)
        if console.width_of(table) <= console.width:
            console.print(table)
            return
    for row, state in best:  # too many params for columns
        # In a terminal words are kept whole, elsewhere lines are.
        text = Text(f"  {state}: {best_text(metric, row)}")
        console.print(text, soft_wrap=not console.is_terminal)


def _best_table(
    best: Sequence[tuple[BestRow, str]], metric: str, metrics: Mapping[int, Mapping[str, float]]
) -> Table:
    table = Table(box=None, pad_edge=False)
    names = list(dict.fromkeys(name for row, _ in best for name in row.params))
    told = {name for row, _ in best for name in metrics.get(row.number, ())}
    more = [name for name in READABLE_METRICS if name in told and name != metric][:N_MORE_METRICS]
    for column in ("trial", fit_line(metric), *more, *names, "state"):
        table.add_column(column, justify="right", no_wrap=True)
    for row, state in best:
        cells = (value_text(row.params[n]) if n in row.params else "" for n in names)
        own = metrics.get(row.number, {})
        others = (f"{own[n]:.5g}" if n in own else "" for n in more)
        table.add_row(str(row.number), f"{row.value:.5g}", *others, *cells, state)
    return table


SCORE = "automl.models.model_scoring:score"
REFIT_NAME = "its refit"
Scores = Mapping[str, float]


@dataclass(frozen=True)
class SweepResult:
    """The model, and its scores where it was judged."""

    name: str
    file: Path
    scores: Scores


def sweep_result(
    record: StudyRecord, joined: EnsembleBuilt | None, files: StudyFiles
) -> SweepResult | None:
    """The ensemble that was made, else the best trial; None: none has ended with a value."""
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
    """On test rows, with its refit if there is one; None: none are kept. Raises AutoMLError."""
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
    """What says the same of all rows, and its scores where the study's models were judged."""
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
    """Columns and rows; `metric` is the study's."""
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
    """What is said of a result that says no more than what is the same for all rows, by the study's
    `metric`; empty: it says more, or nobody can tell."""
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
    """The study's own, and those that people read."""
    own = metric.removeprefix("val_")
    more = [
        name
        for read in READABLE_METRICS
        if (name := read.removeprefix("val_")) in known and name != own
    ]
    return [own] * (own in known) + more[:N_MORE_METRICS]


def disk_usage_line(path: Path) -> str:
    """`on disk: 34.1 MB in studies/any; its largest model 1.2 MB`; of the folder of a study."""
    sizes = dict(_sizes(path))
    models = [size for file, size in sizes.items() if file.name == BEST]
    largest = f"; its largest model {_megabytes(max(models))}" if models else ""
    return f"on disk: {_megabytes(sum(sizes.values()))} in {os.path.relpath(path)}{largest}"


def _sizes(path: Path) -> Iterator[tuple[Path, int]]:
    """Of the files below; one that goes meanwhile has none."""
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                yield Path(folder, name), Path(folder, name).stat().st_size
            except FileNotFoundError:
                continue


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB"


MOST_COLUMNS = 20
"""That are shown of a table's."""
COLUMNS = ("column", "taken as", "why")


def greeting_lines(parts: SweepParts) -> Iterator[str]:
    """What it works on, and how to come back to it; a line each."""
    yield from parts.prepared.notes
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
    if before >= config.total and not study.counts().get(TrialState.RUNNING):
        yield (
            f"study {study.name} has {before} trials already, study.n_trials={config.total} "
            f"asks for no more; go on with: {parts.prepared.how_to_go_on(n_trials=before + 20)}"
        )
        return
    yield (
        f"study {study.name}: {how_far(config)}"
        f"{f', {before} of them from before' if before else ''}, up to "
        f"{parts.n_places} at once; if it is interrupted: {parts.prepared.how_to_go_on()}"
    )


def columns_table(dataset: Dataset | None, study: StudyConfig) -> Iterator[str]:
    """What was taken for what; of many columns those that are not just numbers first."""
    if dataset is None or not dataset.column_rows:
        return
    rows = [*dataset.column_rows]
    if len(rows) > MOST_COLUMNS:
        rows.sort(key=lambda row: row.is_plain)
    shown = [(fit_line(r.name, 40), r.kind, fit_line(r.why, 100)) for r in rows[:MOST_COLUMNS]]
    yield from aligned_lines(COLUMNS, shown, n_left=3)
    if (n_more := len(rows) - MOST_COLUMNS) > 0:
        yield f"and {n_more:,} more columns: {command_line('columns', study)}"


def how_far(study: StudyConfig) -> str:
    """`to 20 trials`, or as many as there is time for."""
    if study.total < MANY_TRIALS or study.timeout_seconds is None:
        return f"to {study.total} trials"
    return f"as many trials as {duration_text(study.timeout_seconds)} allow"
