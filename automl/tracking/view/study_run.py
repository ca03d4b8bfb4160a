"""Computes what MLflow shows of a study itself: its own run, the parent of its trials'. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from automl.config import STUDY_NAME_PATTERN
from automl.record.study_files import CONFIG_FILE
from automl.record.study_record import StudyRecord
from automl.record.trial_record import TrialRecord
from automl.tracking.view.run_update import (
    KIND_TAG,
    NOTE_TAG,
    STATE_TAG,
    STUDY_TAG,
    VALUE_METRIC,
    MetricPoint,
    RunUpdate,
    StudyRef,
    clean_tags,
    nan_if_infinite,
    to_ms,
)
from automl.tracking.view.shared_view import (
    minimizes_metric,
    named_value,
    searched_params,
    shared_view_tag,
)
from automl.trial import SweepEnded, SweepStarted, TrialState, trial_name


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
        """Return the study whose winner is trained again here; None if this is no refit.

        The run of a refit stands in the experiment of that study.
        """
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
            if name == VALUE_METRIC:
                return update
            named = (
                replace(point, key=name) for point in update.metrics if point.key == VALUE_METRIC
            )
            return replace(update, metrics=(*update.metrics, *named), once=(*update.once, name))
        metrics = tuple(point for point in update.metrics if point.key != VALUE_METRIC)
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
        if isinstance(last, SweepEnded) and last.best_trial is not None:
            tags["automl.best_trial"] = trial_name(last.best_trial)
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


def study_note(settings: Mapping[str, str]) -> str:
    """Return a text about the study in Markdown, from settings that never change."""
    if "refit.of" in settings:
        return _refit_note(settings)
    metric = settings.get("study.metric", "the metric")
    about = [
        f"{word} {settings[key]}"
        for word, key in (("data", "data.kind"), ("objective", "objective.target"))
        if key in settings
    ]
    lines = [
        f"Study of automl: {'minimizes' if minimizes_metric(settings) else 'maximizes'} `{metric}`"
        + "".join(f", {text}" for text in about)
        + f". All settings: `{CONFIG_FILE}` among the artifacts.",
        "",
        "| param | searched |",
        "|---|---|",
        *(f"| {name} | {_range_text(settings, name)} |" for name in searched_params(settings)),
    ]
    return "\n".join(lines if len(lines) > 4 else lines[:1])


def _refit_note(settings: Mapping[str, str]) -> str:
    rows, n_seeds = settings.get("refit.rows", ""), settings.get("refit.n_seeds", "1")
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
    log = ", log" if settings.get(f"space.{name}.log") == "True" else ""
    return f"{entry['low']} to {entry['high']}{log}"


def _sweep_state(event: SweepStarted | SweepEnded) -> tuple[str, str]:
    """Return the state of the sweep in our word and in MLflow's."""
    if isinstance(event, SweepStarted):
        return "running", "RUNNING"
    if event.failed or (event.done and not event.n_by_state.get(TrialState.FINISHED)):
        return "failed", "FAILED"
    if not event.done:
        return "interrupted", "SCHEDULED"
    return "done", "FINISHED"


def _summary_points(events: Iterable[SweepStarted | SweepEnded]) -> Iterable[MetricPoint]:
    for event in events:
        if not isinstance(event, SweepEnded):
            continue
        time_ms = to_ms(event.time)
        for state, n in event.n_by_state.items():
            yield MetricPoint(f"trials_{state.value}", float(n), time_ms, 0)
        if event.best_value is not None:
            yield MetricPoint("best_value", nan_if_infinite(event.best_value), time_ms, 0)
