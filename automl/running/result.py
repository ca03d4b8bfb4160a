"""How good the model is that a sweep ends with: out-of-fold, and on test rows where there are some,
beside what says the same of all rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.data.baselines import simplest
from automl.data.dataset import Dataset
from automl.data.scores import predictions
from automl.execution.remote import call_in_child
from automl.record.files import StudyFiles
from automl.record.study import StudyRecord
from automl.running.best_table import N_MORE, READ
from automl.running.prepared import Prepared
from automl.tracking.long_step import long_step
from automl.tracking.say import Say
from automl.training.tested import Tested, TestRows
from automl.trial import ENSEMBLE_NAME, CheckpointKind, Direction, Ensembled, Entry

SCORE = "automl.training.tested:score"
REFIT_NAME = "its refit"
Scores = Mapping[str, float]


@dataclass(frozen=True)
class Result:
    """The model, and its scores where it was judged."""

    name: str
    file: Path
    scores: Scores


def result_of(record: StudyRecord, joined: Ensembled | None, files: StudyFiles) -> Result | None:
    """The ensemble that was made, else the best trial; None: none has ended with a value."""
    if joined is not None:
        return Result(ENSEMBLE_NAME, files.ensemble, joined.scores)
    if (best := record.best()) is None:
        return None
    scores = {n.removeprefix("val_"): value for n, value in best.best_metrics.items()}
    return Result(
        f"trial {best.number}", files.checkpoint(best.number, CheckpointKind.BEST), scores
    )


def tested(prepared: Prepared, result: Result, refit: Path | None, say: Say) -> Tested | None:
    """On test rows, with its refit if there is one; None: none are kept. Raises AutoMLError."""
    data = prepared.config.data
    if data.test_path is None and not data.test_fraction:
        return None
    files = {result.name: result.file} | ({} if refit is None else {REFIT_NAME: refit})
    paths = {name: str(file) for name, file in files.items()}
    with long_step(f"scoring {' and '.join(files)} on test rows", say):
        answer = call_in_child(Entry(SCORE, TestRows(paths, data)))
    assert isinstance(answer, Tested)
    return answer


def baseline_of(dataset: Dataset) -> tuple[str, Scores]:
    """What says the same of all rows, and its scores where the study's models were judged."""
    ((name, outputs),) = simplest(dataset, dataset.judged.rows).items()
    unit = dataset.target_mean, dataset.target_scale
    return name, predictions(dataset.task, outputs, dataset.judged.y, *unit, dataset.loss).scored()


def table_of(
    result: Result,
    dataset: Dataset,
    baseline: tuple[str, Scores],
    test: Tested | None,
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


def no_better(
    result: Result, dataset: Dataset, baseline: tuple[str, Scores], metric: str, towards: Direction
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
    more = [name for read in READ if (name := read.removeprefix("val_")) in known and name != own]
    return [own] * (own in known) + more[:N_MORE]
