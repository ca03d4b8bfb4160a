"""What of a study's own is to be delivered: how its sweeps began and ended, what was measured of
exports, its ensemble. Of a shared study whoever is elected has them.

What MLflow is told of an ensemble: its members and scores on the run of the study. Pure.

What MLflow is told of an evaluation: scores on the runs of its trials and of the study. Pure.

`test_loss` with `test_loss_low` and `test_loss_high`, the ends of its 95 % interval; of rows by
which trials were chosen `validation_loss`, of trials with folds `out_of_fold_loss`. The study's run
has those of the first model, and the baselines' beside them (`test_loss_linear`). Of a refit there
is no run of a trial: the study's has its scores, and the trial's those of its own model.

What MLflow is told of an export's tuning: figures on the study's run. Pure.

`export_p50_seconds_onnx_2_threads`, one row at a time, and `export_rows_per_second_…`, whose step
is the rows of a call.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from automl.record.event_log import read_events
from automl.record.study_files import PLOT_NAMES, PLOTS, StudyFiles
from automl.record.study_record import fold_events
from automl.tracking.deliver.mlflow_runs import is_path_below
from automl.tracking.view.run_update import (
    KIND_TAG,
    STUDY_TAG,
    TRIAL_TAG,
    MetricPoint,
    RunUpdate,
    StudyRef,
    clean_key,
    clean_tags,
    nan_if_infinite,
    to_ms,
)
from automl.tracking.view.study_run import StudyRun
from automl.trial import (
    EnsembleBuilt,
    Event,
    ExportTuned,
    ModelsEvaluated,
    ScoreDifference,
    SweepEnded,
    SweepStarted,
    trial_name,
)

ENSEMBLE = "automl.ensemble"
"""The tag that names the members with their weights."""


def ensemble_run_update(
    event: EnsembleBuilt, study: StudyRef, file: Sequence[str], plots: Sequence[str]
) -> RunUpdate:
    """What is new about the study's run; `file` is the ensemble's path below the study, `plots`
    are those of the pictures of what it found."""
    members = ", ".join(f"{trial_name(n)} {weight:.3g}" for n, weight in event.members.items())
    # A later one has a later time at the same step, and is the one that is shown.
    points = [
        MetricPoint(clean_key(f"ensemble_{metric}"), nan_if_infinite(value), to_ms(event.time), 0)
        for metric, value in event.scores.items()
    ]
    return RunUpdate(
        name=study.name,
        start_ms=to_ms(event.time),
        key={STUDY_TAG: study.uuid, KIND_TAG: "study"},
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({ENSEMBLE: f"{members}; chosen by {event.n_rows:,} rows"}),
        metrics=tuple(points),
        files=file,
        own_files=[(path, PLOTS) for path in plots],
    )


EVALUATED = "automl.evaluated"
"""The tag that says on which rows, and how others compare."""


def evaluated_trial_update(event: ModelsEvaluated, number: int, study_uuid: str) -> RunUpdate:
    """What is new about the trial's run."""
    name = trial_name(number)
    lines = [event.rows]
    if compared := event.differences.get(name):
        lines.append(f"against {event.models[0]}: {_compared(compared)}")
    key = {STUDY_TAG: study_uuid, TRIAL_TAG: str(number)}
    return _update(event, name, key, lines, model_score_points(event, name))


def evaluated_study_update(event: ModelsEvaluated, study: StudyRef) -> RunUpdate:
    """What is new about the study's own run."""
    names = event.models
    first = names[0] if names else ""
    lines = [f"{first} on {event.rows}"]
    lines += [f"{name} against it: {_compared(of)}" for name, of in event.differences.items()]
    points = [*model_score_points(event, first)]
    points += [
        _point(event, f"{metric}_{name}", score.value)
        for name, scores in event.scores.items()
        if name not in names
        for metric, score in scores.items()
    ]
    return _update(event, study.name, {STUDY_TAG: study.uuid, KIND_TAG: "study"}, lines, points)


def _update(
    event: ModelsEvaluated,
    name: str,
    key: Mapping[str, str],
    lines: Iterable[str],
    points: Iterable[MetricPoint],
) -> RunUpdate:
    return RunUpdate(
        name=name,
        start_ms=to_ms(event.time),
        key=key,
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({EVALUATED: "\n".join(lines)}),
        metrics=tuple(points),
    )


def model_score_points(event: ModelsEvaluated, name: str) -> Iterable[MetricPoint]:
    """The scores of one model."""
    for metric, score in event.scores.get(name, {}).items():
        yield _point(event, metric, score.value)
        yield _point(event, f"{metric}_low", score.low)
        yield _point(event, f"{metric}_high", score.high)


def _point(event: ModelsEvaluated, metric: str, value: float) -> MetricPoint:
    """A later evaluation has a later time at the same step, and is the one that is shown."""
    part = "test" if event.kind.unseen else event.kind.value
    return MetricPoint(clean_key(f"{part}_{metric}"), nan_if_infinite(value), to_ms(event.time), 0)


def _compared(differences: Mapping[str, ScoreDifference]) -> str:
    return ", ".join(
        f"{metric} {of.value:+.4g} ({of.low:+.4g} to {of.high:+.4g}; {of.verdict})"
        for metric, of in differences.items()
    )


FASTEST = "automl.export"
"""The tag that says which way was chosen, of which model."""


def tuning_run_update(event: ExportTuned, study: StudyRef) -> RunUpdate:
    """What is new about the study's own run."""
    chosen = f"{event.model}: {event.chosen}" if event.chosen else f"{event.model}: none chosen"
    return RunUpdate(
        name=study.name,
        start_ms=to_ms(event.time),
        key={STUDY_TAG: study.uuid, KIND_TAG: "study"},
        birth_tags={},
        params={},
        begins=False,
        tags=clean_tags({FASTEST: chosen}),
        metrics=tuple(_points(event)),
    )


def _points(event: ExportTuned) -> Iterator[MetricPoint]:
    for way, figures in event.figures.items():
        slug = "_".join(re.findall(r"\w+", way))
        for name, value in figures.items():
            figure, _, n_rows = name.partition("@")
            step = int(n_rows) if re.fullmatch(r"\d{1,9}", n_rows, re.ASCII) else 0
            key = clean_key(f"export_{figure}_{slug}")
            yield MetricPoint(key, nan_if_infinite(value), to_ms(event.time), step)


Write = Callable[[str, RunUpdate], None]
"""To a run that is there."""


class StudyValues:
    """Those that were read and are not delivered; each is kept until it is."""

    def __init__(self, files: StudyFiles) -> None:
        self._files = files
        self.sweeps: list[SweepStarted | SweepEnded] = []
        self._evaluations: list[ModelsEvaluated | ExportTuned] = []
        self._ensemble: EnsembleBuilt | None = None
        """Of several the newest."""

    def take(self, event: Event) -> None:
        """Those of trials are none of them."""
        if isinstance(event, SweepStarted | SweepEnded):
            self.sweeps.append(event)
        elif isinstance(event, ModelsEvaluated | ExportTuned):
            self._evaluations.append(event)
        elif isinstance(event, EnsembleBuilt):
            self._ensemble = event

    def clear(self) -> None:
        """Another delivers them."""
        self.sweeps.clear()
        self._evaluations.clear()
        self._ensemble = None

    def sweeps_update(self, study: StudyRun) -> RunUpdate:
        """Of the study's run, where there are sweeps to tell."""
        return study.update(self.sweeps, delivering_user(), self._own_file(self._files.config))

    def deliver_ensemble(self, study: StudyRun, parent: str, write: Write) -> None:
        if self._ensemble is not None:
            file = self._own_file(self._files.ensemble)
            plots = [p for n in PLOT_NAMES for p in self._own_file(self._files.plots / n)]
            write(parent, ensemble_run_update(self._ensemble, study.ref, file, plots))
            self._ensemble = None

    def deliver_evaluations(
        self,
        study: StudyRun,
        parent: str,
        find: Callable[[int, RunUpdate], str | None],
        write: Write,
    ) -> None:
        """`find` says which run a trial has."""
        while self._evaluations:
            event = self._evaluations[0]
            if isinstance(event, ExportTuned):
                write(parent, tuning_run_update(event, study.ref))
                del self._evaluations[0]
                continue
            write(parent, evaluated_study_update(event, study.ref))
            for number in event.trials:
                update = evaluated_trial_update(event, number, study.ref.uuid)
                if (run_id := find(number, update)) is not None:  # a stranger's log may name any
                    write(run_id, update)
            del self._evaluations[0]

    def _own_file(self, path: Path) -> Sequence[str]:
        """A file of the study; a link could name any file of ours in one that was given to us."""
        below = path.relative_to(self._files.path).as_posix()
        return (below,) if path.is_file() and is_path_below(self._files.path, below) else ()


def newest_study(log: Path) -> StudyRef | None:
    """The study that the log's last sweep worked on; None: no sweep has begun."""
    study = fold_events(event for event, _ in read_events(log) if isinstance(event, SweepStarted))
    if not study.sweeps:
        return None
    return StudyRef(study.uuid, study.name, study.former_names)


def delivering_user() -> str:
    """Who delivers, as MLflow shows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
