"""Computes what MLflow shows of a study itself: its own run, the parent of its trials'.

Its values are the begins and ends of sweeps, the ensemble, evaluations and tunings of exports.

An evaluation puts scores on the runs of its trials and of the study: `test_loss` with
`test_loss_low` and `test_loss_high`, the ends of its 95 % interval. The names begin with
`validation_` on rows by which trials were chosen, and with `out_of_fold_` for trials with folds.
The study's run has the scores of the first model and those of the baselines (`test_loss_linear`).
For a refit no trial has a run: the study's run has the refit's scores, and the trial's those of its
own model.

A tuning of an export puts figures on the study's run: `export_p50_seconds_onnx_2_threads` for one
row at a time, and `export_rows_per_second_…`, whose step is the number of rows of a call.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automl.config import STUDY_NAME_PATTERN
from automl.config.range_text import range_text
from automl.record.event_log import read_events
from automl.record.study_files import (
    CONFIG_FILE,
    PLOTS_FOLDER,
)
from automl.record.study_record import StudyRecord, edit_lines, record_from_events
from automl.record.texts import counted
from automl.record.trial_record import ERROR_SUFFIX, TrialRecord, metrics_from_settings
from automl.tracking.view.run_update import (
    CAUSE_TAG,
    KIND_TAG,
    NOTE_TAG,
    STATE_TAG,
    STUDY_TAG,
    TRIAL_TAG,
    VALUE_METRIC,
    RunUpdate,
    StudyRef,
    clean_key,
    clean_tags,
    nan_if_infinite,
    to_ms,
)
from automl.tracking.view.shared_view import (
    named_value,
    searched_params,
    shared_view_tag,
)
from automl.trial import (
    EnsembleBuilt,
    ExportTuned,
    LoggedPoint,
    ModelsEvaluated,
    ReportWritten,
    ScoreDifference,
    StudyEdited,
    SweepEnded,
    SweepStarted,
    TrialState,
    standard_error,
    trial_name,
)


@dataclass(frozen=True)
class StudyRun:
    """A study's own run, computed from all its sweeps so far, delivered or not."""

    study: StudyRecord
    """The record of the study, with at least one sweep."""
    ref: StudyRef
    """The study's present uuid and name: it may have been renamed or copied since."""

    @property
    def first(self) -> SweepStarted:
        return self.study.sweeps[0].start

    @property
    def key(self) -> dict[str, str]:
        """Return the tags by which the run is found again."""
        return {STUDY_TAG: self.ref.uuid, KIND_TAG: "study" if self.refit_of is None else "refit"}

    @property
    def refit_of(self) -> str | None:
        """Return the study whose winner is trained again, and whose experiment is used."""
        name = self.study.settings.get("refit.of", "")
        return name if STUDY_NAME_PATTERN.fullmatch(name) else None

    @property
    def experiment(self) -> str:
        """Return the name of the experiment that the study's runs are made in."""
        return self.refit_of or self.ref.name

    @property
    def run_name(self) -> str:
        return self.ref.name if self.refit_of is None else f"refit-{self.ref.name}"

    def trial_update(self, update: RunUpdate, number: int) -> RunUpdate:
        """Return the update of a trial's run as it stands in the experiment.

        A trial's final value also stands under the name of the study's metric. A refit's trial has
        a name of its own, and no final value, which would not compare with those of the study.
        """
        if self.refit_of is None:
            name = named_value(self.study.settings)
            known = {point.name for point in update.metrics}
            if name == VALUE_METRIC or name in known:  # several metrics are all there already
                return update
            named = (
                point._replace(name=name) for point in update.metrics if point.name == VALUE_METRIC
            )
            return replace(update, metrics=(*update.metrics, *named), once=(*update.once, name))
        metrics = tuple(point for point in update.metrics if point.name != VALUE_METRIC)
        part = "seed" if _refitted_trial(self.study.settings) else "member"
        return replace(update, name=f"{self.run_name}-{part}-{number}", metrics=metrics)

    def shared_view(self, best: Sequence[TrialRecord]) -> str:
        """Return the view of the study's runs for its experiment, by its best trials so far."""
        params = [list(trial.params) for trial in best]
        return shared_view_tag(self.first.settings, to_ms(self.first.time), params)

    def update(
        self, events: Sequence[SweepStarted | SweepEnded], user: str, files: Sequence[str] = ()
    ) -> RunUpdate:
        """Return the changes of the run by `events`, which are the last of the record.

        The settings are no params, as each would be a column among those of the trials. `files`
        (the config) are stored when a sweep begins. The note is written once, so that the user may
        change it.
        """
        begins = any(isinstance(event, SweepStarted) for event in events)
        last = events[-1]
        state, status = _sweep_state(last)
        tags = {STATE_TAG: state}
        tags |= {f"automl.changed.{key}": value for key, value in self.study.changed.items()}
        if code := self.study.code_changes():
            tags["automl.changed_code"] = "\n".join(code)
        if self.study.edits:
            tags[_TAGS[StudyEdited]] = edits_text(self.study.edits)
        if isinstance(last, SweepEnded) and last.best_trial is not None:
            tags["automl.best_trial"] = trial_name(last.best_trial)
            if last.front:
                tags[FRONT_TAG] = ", ".join(map(trial_name, last.front))
        if isinstance(last, SweepEnded) and last.reason:
            tags[CAUSE_TAG] = last.reason
        still_first = status == "RUNNING" and len(self.study.sweeps) == 1
        note = study_note(self.first.settings)
        return RunUpdate(
            name=self.run_name,
            start_ms=to_ms(self.first.time),
            key=self.key,
            birth_tags={"mlflow.user": user, **clean_tags({NOTE_TAG: note})},
            params={},
            begins=begins,
            tags=clean_tags(tags),
            metrics=tuple(_summary_points(events)),
            status=None if still_first else status,
            end_ms=to_ms(last.time) if status in ("FINISHED", "FAILED") else None,
            files=files if begins else (),
        )


def edits_text(edits: Sequence[StudyEdited]) -> str:
    """Return who changed what, a line for each edit."""
    return "\n".join(f"{edit.user}: {'; '.join(edit_lines(edit))}" for edit in edits)


def study_note(settings: Mapping[str, str]) -> str:
    """Return a text about the study in Markdown, from settings that never change."""
    if "refit.of" in settings:
        return _refit_note(settings)
    goals = [
        f"{metric.direction.value}s `{metric.name}`"
        for metric in metrics_from_settings(settings).metrics
    ]
    limits = [
        f"{limit.name} ≤ {limit.largest:g}" for limit in metrics_from_settings(settings).limits
    ]
    is_builtin = settings.get("objective.kind", "builtin") == "builtin"
    shown = (("data", "data.kind"),) if is_builtin else (("objective", "objective.target"),)
    about = [f"{word} {settings[key]}" for word, key in shown if key in settings]
    lines = [
        f"Study of automl: {', '.join((*goals, *limits))}"
        + "".join(f", {text}" for text in about)
        + f". All settings: `{CONFIG_FILE}` among the artifacts.",
        "",
        "| param | searched |",
        "|---|---|",
        *(f"| {name} | {_range_text(settings, name)} |" for name in searched_params(settings)),
    ]
    return "\n".join(lines if len(lines) > 4 else lines[:1])


def _refit_note(settings: Mapping[str, str]) -> str:
    rows, n_seeds = (
        settings.get("refit.rows", ""),
        settings.get("refit.seeds", settings.get("refit.n_seeds", "1")),
    )
    trial, epochs = _refitted_trial(settings), settings.get("training.epochs", "")
    return (
        f"Refit of {f'trial {trial}' if trial else 'the ensemble'} of study "
        f"`{settings['refit.of']}`: rows {rows}, epochs {'' if trial else 'up to '}{epochs}, seeds "
        f"{n_seeds}. All settings of the study: `{CONFIG_FILE}` among the artifacts."
    )


def _refitted_trial(settings: Mapping[str, str]) -> str:
    """Return the number of the trial that is trained again; empty for an ensemble's members."""
    return settings.get("refit.trial", "")


def _range_text(settings: Mapping[str, str], name: str) -> str:
    entry = {key: settings.get(f"space.{name}.{key}") for key in ("low", "high", "choices")}
    if entry["choices"] is not None:
        return entry["choices"].strip("[]")
    step = settings.get(f"space.{name}.step")
    is_log = settings.get(f"space.{name}.log") == "True"
    return range_text(
        entry["low"], entry["high"], log=is_log, step=None if step == "None" else step
    )


def _sweep_state(event: SweepStarted | SweepEnded) -> tuple[str, str]:
    """Return the state of the sweep in our word and in MLflow's."""
    if isinstance(event, SweepStarted):
        return "running", "RUNNING"
    if event.failed or (event.done and not event.n_by_state.get(TrialState.FINISHED)):
        return "failed", "FAILED"
    if not event.done:
        return "interrupted", "SCHEDULED"
    return "done", "FINISHED"


def _summary_points(events: Iterable[SweepStarted | SweepEnded]) -> Iterable[LoggedPoint]:
    for event in events:
        if not isinstance(event, SweepEnded):
            continue
        time_ms = to_ms(event.time)
        for state, n in event.n_by_state.items():
            yield LoggedPoint(f"trials_{state.value}", float(n), 0, time_ms)
        if event.best_value is not None:
            yield LoggedPoint("best_value", nan_if_infinite(event.best_value), 0, time_ms)


FRONT_TAG = "automl.front"
"""Tag of a trial's run, `true` or `false`, and of the study's run: the trials of the front."""
_TAGS = {
    EnsembleBuilt: "automl.ensemble",
    ModelsEvaluated: "automl.evaluated",
    ExportTuned: "automl.export",
    StudyEdited: "automl.edits",
    ReportWritten: "automl.report",
}
"""The tag of each event: the ensemble's members with their weights; the rows of an evaluation, and
how the other models compare; the runtime chosen for an export, and its model; the page's name."""


def ensemble_run_update(
    event: EnsembleBuilt, study: StudyRef, file: Sequence[str], plots: Sequence[str]
) -> RunUpdate:
    """Return the update of the study's run with the ensemble, by the paths of its files."""
    members = ", ".join(f"{trial_name(n)} {weight:.3g}" for n, weight in event.members.items())
    points = [_point(event, f"ensemble_{metric}", v) for metric, v in event.scores.items()]
    return replace(
        study_update(event, study, f"{members}; chosen by {counted(event.n_rows, 'row')}", points),
        files=file,
        own_files=[(path, PLOTS_FOLDER) for path in plots],
    )


def front_trial_update(event: SweepEnded, number: int, study_uuid: str) -> RunUpdate:
    """Return the update of a trial's run with whether it is on the front of several metrics."""
    return RunUpdate(
        name=trial_name(number),
        start_ms=to_ms(event.time),
        key={STUDY_TAG: study_uuid, TRIAL_TAG: str(number)},
        tags={FRONT_TAG: str(number in event.front).lower()},
    )


def evaluated_trial_update(event: ModelsEvaluated, number: int, study_uuid: str) -> RunUpdate:
    """Return the update of a trial's run with its scores."""
    name = trial_name(number)
    text = event.rows
    if differences := event.differences.get(name):
        text += f"\nagainst {event.models[0]}: {_comparison_text(differences)}"
    return RunUpdate(
        name=name,
        start_ms=to_ms(event.time),
        key={STUDY_TAG: study_uuid, TRIAL_TAG: str(number)},
        tags=clean_tags({_TAGS[ModelsEvaluated]: text}),
        metrics=[
            *model_score_points(event, name),
            *(repeated_score_points(event) if event.repeated_trial == number else ()),
        ],
    )


def evaluated_study_update(event: ModelsEvaluated, study: StudyRef) -> RunUpdate:
    """Return the update of the study's own run with the scores of an evaluation."""
    names = event.models
    first = names[0] if names else ""
    lines = [f"{first} on {event.rows}"]
    lines += [f"{name} against it: {_comparison_text(d)}" for name, d in event.differences.items()]
    points = model_score_points(event, first)
    points += [
        _evaluation_point(event, f"{metric}_{name}", score.value)
        for name, scores in event.scores.items()
        if name not in names
        for metric, score in scores.items()
    ]
    points += repeated_score_points(event)
    return study_update(event, study, "\n".join(lines), points)


def model_score_points(event: ModelsEvaluated, name: str) -> list[LoggedPoint]:
    """Return the scores of one model, with the ends of their intervals."""
    return [
        _evaluation_point(event, f"{metric}{end}", value)
        for metric, score in event.scores.get(name, {}).items()
        for end, value in (("", score.value), ("_low", score.low), ("_high", score.high))
    ]


def repeated_score_points(event: ModelsEvaluated) -> list[LoggedPoint]:
    """Return the mean scores of the trainings with fresh seeds, with their standard errors."""
    return [
        _evaluation_point(event, f"{metric}_repeats{end}", value)
        for metric, scores in event.repeated_scores.items()
        for end, value in (
            ("", sum(scores) / len(scores)),
            (ERROR_SUFFIX, standard_error(scores) or 0.0),
        )
    ]


def _evaluation_point(event: ModelsEvaluated, metric: str, value: float) -> LoggedPoint:
    return _point(event, f"{'test' if event.kind.unseen else event.kind.value}_{metric}", value)


def _comparison_text(differences: Mapping[str, ScoreDifference]) -> str:
    return ", ".join(
        f"{metric} {diff.value:+.4g} ({diff.low:+.4g} to {diff.high:+.4g}; {diff.verdict})"
        for metric, diff in differences.items()
    )


def tuning_run_update(event: ExportTuned, study: StudyRef) -> RunUpdate:
    """Return the update of the study's own run with the figures of a tuning."""
    points = []
    for runtime, figures in event.figures.items():
        slug = "_".join(re.findall(r"\w+", runtime))
        for name, value in figures.items():
            figure, _, n_rows = name.partition("@")
            step = int(n_rows) if re.fullmatch(r"\d{1,9}", n_rows, re.ASCII) else 0
            points.append(_point(event, f"export_{figure}_{slug}", value, step))
    return study_update(event, study, f"{event.model}: {event.chosen or 'none chosen'}", points)


def study_update(
    event: EnsembleBuilt | ModelsEvaluated | ExportTuned | ReportWritten | StudyEdited,
    study: StudyRef,
    text: str,
    points: Sequence[LoggedPoint] = (),
) -> RunUpdate:
    """Return an update of the study's run by one event, whose tag gets the text."""
    return RunUpdate(
        name=study.name,
        start_ms=to_ms(event.time),
        key={STUDY_TAG: study.uuid, KIND_TAG: "study"},
        tags=clean_tags({_TAGS[type(event)]: text}),
        metrics=points,
    )


def _point(
    event: EnsembleBuilt | ModelsEvaluated | ExportTuned, name: str, value: float, step: int = 0
) -> LoggedPoint:
    """Return a value of the event; MLflow shows that of the later event, at the same step."""
    return LoggedPoint(clean_key(name), nan_if_infinite(value), step, to_ms(event.time))


def newest_study(log: Path) -> StudyRef | None:
    """Return the study that the log's last sweep worked on; None if no sweep has begun."""
    study = record_from_events(
        event for event, _ in read_events(log) if isinstance(event, SweepStarted)
    )
    if not study.sweeps:
        return None
    return StudyRef(study.uuid, study.name, study.former_names)


def delivering_user() -> str:
    """Return the name of the user who delivers, as MLflow shows it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container whose user has no name
        return "unknown"
