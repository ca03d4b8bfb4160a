"""Scores the model that a sweep ends with, beside a constant prediction.

The scores are out-of-fold, and on test rows if there are any. Nothing is trained or stored here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from automl.data.dataset import Dataset
from automl.data.scoring.evaluation import constant_thresholds, simplest_baseline
from automl.data.scoring.metrics import make_predictions
from automl.errors import AutoMLError
from automl.execution.child_calls import call_in_child
from automl.objectives.model_scoring import HeldOutScores, HeldOutScoringJob
from automl.record.signal_receiver import signal_receiver
from automl.record.study_directory import study_command
from automl.record.study_files import BEST_CHECKPOINT_FILE, StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.texts import Say, size_text
from automl.running.features.feature import ClosingTable, SweepEnding, SweepFeature, SweepSite
from automl.running.prepare.prepared_config import PreparedStudy
from automl.terminal.best_table import N_MORE_METRICS, READABLE_METRICS
from automl.tracking.long_step import long_step
from automl.trial import (
    ENSEMBLE_NAME,
    CheckpointKind,
    Direction,
    EnsembleBuilt,
    ProcessEntry,
)

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
        assert prepared.dataset is not None, "a table has test rows"
        job = HeldOutScoringJob(paths, data, prepared.dataset.users_metric)
        answer = call_in_child(ProcessEntry(SCORE, job))
    assert isinstance(answer, HeldOutScores)
    return answer


def baseline_scores(dataset: Dataset) -> tuple[str, Scores]:
    """Return the name and scores of the constant prediction on the rows that judge the study's
    models."""
    ((name, outputs),) = simplest_baseline(dataset, dataset.judged.rows).items()
    unit = dataset.target_mean, dataset.target_scale
    y, own = dataset.judged.y, dataset.users_metric
    threshold = constant_thresholds(y, own)
    return name, make_predictions(
        dataset.task, outputs, y, *unit, dataset.loss, threshold, own
    ).scored()


def result_table(
    result: SweepResult,
    dataset: Dataset,
    baseline: tuple[str, Scores],
    test: HeldOutScores | None,
    metric: str,
) -> ClosingTable:
    """Return the table of scores. `metric` is the study's."""
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
    return ClosingTable(("rows", "model", *shown), cells)


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


class SweepScores(SweepFeature):
    """Scores the result of a sweep that chooses the family."""

    def __init__(self, site: SweepSite) -> None:
        self._site = site
        self._lines: list[str | ClosingTable] = []

    @classmethod
    def make(cls, site: SweepSite) -> SweepScores | None:
        """Return the feature, or None for a sweep of one family and for a final training."""
        prepared = site.prepared()
        return None if prepared.choice is None or not prepared.purpose.stands_alone else cls(site)

    def end(self, ending: SweepEnding) -> None:
        """Score the ensemble, or else the best trial."""
        prepared, site = self._site.prepared(), self._site
        if not ending.has_result or prepared.dataset is None:
            return
        result = sweep_result(ending.record, ending.joined, site.files)
        if result is None:
            return
        test: HeldOutScores | None = None
        try:
            with signal_receiver().interruptible():
                test = score_on_test_rows(prepared, result, ending.refit, site.say)
        except (AutoMLError, KeyboardInterrupt) as error:
            command = study_command("evaluate", prepared.config.study)
            site.say(f"no test score ({error}); see it by: {command}")
        study, dataset = prepared.config.study, prepared.dataset
        baseline = baseline_scores(dataset)
        self._lines.append(result_table(result, dataset, baseline, test, study.leading_metric))
        warning = no_skill_warning(
            result, dataset, baseline, study.leading_metric, study.decided_direction
        )
        self._lines += [warning] * bool(warning)

    def closing(self, ending: SweepEnding) -> Iterator[str | ClosingTable]:
        if ending.has_result:
            yield disk_usage_line(ending.path)
        yield from self._lines
