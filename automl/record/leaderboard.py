"""The leaderboard of a study of a table: one row for each model, with its scores and its costs.

The page of a report and `automl.fit(…).leaderboard()` show these rows. What an earlier version did
not record is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from automl.config.metrics import JUDGED_PREFIX, METRIC_OF_LOSS, METRICS_OF_TASK
from automl.record.study_files import StudyFiles
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.trial import (
    ENSEMBLE_NAME,
    FAMILY_PARAM,
    CheckpointKind,
    ModelsEvaluated,
    ScoreInterval,
    refit_name,
    trial_name,
)

REFIT = "refit"
MAIN_METRICS = ("loss", "error", "auc", "rmse")
"""The metrics that a leaderboard shows besides the study's own, where they are known."""


@dataclass(frozen=True)
class LeaderboardRow:
    """A model of a study, or the baseline that says the same of all rows."""

    name: str
    """`refit`, `ensemble`, the name of a trial (`trial-00003`), or that of the baseline."""
    trial: int | None = None
    """Number of the trial; None: the model is no single trial's."""
    family: str | None = None
    value: float | None = None
    """The value by the study's metric, on the rows that judge the trials."""
    standard_error: float | None = None
    """The standard error of the value over folds or repeats."""
    scores: Mapping[str, ScoreInterval] = field(default_factory=dict)
    """The main metrics on the rows that judge the trials; ends are NaN where they are unknown."""
    test: ScoreInterval | None = None
    """The study's metric on rows that no sweep saw, or the loss if the metric is none of ours, by
    the newest evaluation that has the model."""
    fit_seconds: float | None = None
    """The time in which the trial ran; of an ensemble that of its members together."""
    rows_per_second: float | None = None
    size_bytes: int | None = None
    """Size of the model's file."""
    weight: float | None = None
    """Weight in the ensemble; 0: the model is no member."""
    is_baseline: bool = False


def model_file_sizes(files: StudyFiles, numbers: Iterable[int]) -> Mapping[str, int]:
    """Return the sizes of the model files that exist, in bytes, by the names of their rows."""
    paths = {REFIT: files.refit, ENSEMBLE_NAME: files.ensemble}
    paths |= {trial_name(n): files.checkpoint(n, CheckpointKind.BEST) for n in numbers}
    return {name: path.stat().st_size for name, path in paths.items() if path.is_file()}


def leaderboard(record: StudyRecord, sizes: Mapping[str, int]) -> Sequence[LeaderboardRow]:
    """Return the rows of a study: its refit, its ensemble, its trials with a value, the best first,
    and its baseline. `sizes` are those of `model_file_sizes`."""
    joined = (_refit_row(record, sizes), _ensemble_row(record, sizes))
    trials = [_trial_row(record, trial, sizes) for trial in record.ranking()]
    return [row for row in chain(joined, trials, (_baseline_row(record),)) if row is not None]


def _refit_row(record: StudyRecord, sizes: Mapping[str, int]) -> LeaderboardRow | None:
    if REFIT not in sizes:
        return None
    best = record.best()
    names = [refit_name(None), *([] if best is None else [refit_name(best.number)])]
    tests = [test for name in names if (test := _test_score(record, name)) is not None]
    return LeaderboardRow(REFIT, test=next(iter(tests), None), size_bytes=sizes[REFIT])


def _ensemble_row(record: StudyRecord, sizes: Mapping[str, int]) -> LeaderboardRow | None:
    if (ensemble := record.ensemble) is None:
        return None
    members, speeds = ensemble.members, ensemble.rows_per_second
    seconds = [record.trials[n].seconds for n in members if n in record.trials]
    known = [speeds[n] for n in members if speeds.get(n, 0.0) > 0]
    is_whole = len(known) == len(members)
    return LeaderboardRow(
        ENSEMBLE_NAME,
        value=ensemble.scores.get(record.metric.name.removeprefix(JUDGED_PREFIX)),
        scores=_scores(record, ensemble.scores, ensemble.intervals.get(ENSEMBLE_NAME, {})),
        test=_test_score(record, ENSEMBLE_NAME),
        fit_seconds=sum(seconds) if len(seconds) == len(members) else None,
        rows_per_second=1 / sum(1 / speed for speed in known) if is_whole else None,
        size_bytes=sizes.get(ENSEMBLE_NAME),
    )


def _trial_row(record: StudyRecord, trial: TrialRecord, sizes: Mapping[str, int]) -> LeaderboardRow:
    name, ensemble = trial_name(trial.number), record.ensemble
    family = trial.params.get(FAMILY_PARAM)
    scores = {n.removeprefix(JUDGED_PREFIX): value for n, value in trial.best_metrics.items()}
    intervals = {} if ensemble is None else ensemble.intervals.get(name, {})
    return LeaderboardRow(
        name,
        trial=trial.number,
        family=None if family is None else str(family),
        value=trial.value,
        standard_error=trial.standard_error,
        scores=_scores(record, scores, intervals),
        test=_test_score(record, name),
        fit_seconds=None if trial.ended is None else trial.seconds,
        rows_per_second=None if ensemble is None else ensemble.rows_per_second.get(trial.number),
        size_bytes=sizes.get(name),
        weight=None if ensemble is None else ensemble.members.get(trial.number, 0.0),
    )


def _baseline_row(record: StudyRecord) -> LeaderboardRow | None:
    """Return the baseline of the newest sweep that has one."""
    ends = [sweep.end for sweep in record.sweeps if sweep.end is not None and sweep.end.baseline]
    if not ends:
        return None
    name, value = next(iter(ends[-1].baseline.items()))
    return LeaderboardRow(
        name,
        value=value,
        scores=_scores(record, ends[-1].baseline_scores, {}),
        test=_test_score(record, name),
        is_baseline=True,
    )


def _scores(
    record: StudyRecord, values: Mapping[str, float], intervals: Mapping[str, ScoreInterval]
) -> dict[str, ScoreInterval]:
    """Return the study's metric and the main ones, with an interval where there is one."""
    known = {name: ScoreInterval(v, math.nan, math.nan) for name, v in values.items()}
    both = {**known, **intervals}
    shown = dict.fromkeys((record.metric.name.removeprefix(JUDGED_PREFIX), *MAIN_METRICS))
    return {name: both[name] for name in shown if name in both}


def _test_score(record: StudyRecord, name: str) -> ScoreInterval | None:
    """Return the score of a model in the newest evaluation on unseen rows that has it."""
    evaluations: list[ModelsEvaluated] = [e for e in record.evaluations if e.kind.unseen]
    metric = test_metric(record)
    scores = [e.scores[name][metric] for e in evaluations if metric in e.scores.get(name, {})]
    return ScoreInterval(*scores[-1]) if scores else None


def test_metric(record: StudyRecord) -> str:
    """Return the name of the metric on unseen rows: the study's own, or the loss if it is none of
    the metrics of tables."""
    own = record.metric.name.removeprefix(JUDGED_PREFIX)
    known = {name for names in METRICS_OF_TASK.values() for name in names}
    if "study.metric_function" in record.settings:
        known.add(own)
    return own if own in known | {*METRIC_OF_LOSS.values()} else "loss"
