"""What MLflow is told of the study itself: its parent run. Pure, like `trial_run.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from automl.config import STUDY_NAME
from automl.record.study_files import CONFIG
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
    """A study's run, as its sweeps so far tell it, whether their events are delivered or not."""

    study: StudyRecord
    """With one sweep at least."""
    ref: StudyRef
    """Which study it is now: it may have been renamed or copied since."""

    @property
    def first(self) -> SweepStarted:
        return self.study.sweeps[0].start

    @property
    def key(self) -> dict[str, str]:
        """Tags that it is found again by."""
        return {STUDY_TAG: self.ref.uuid, KIND_TAG: "study" if self.refit_of is None else "refit"}

    @property
    def refit_of(self) -> str | None:
        """The study whose winner is trained again here, in whose experiment this run stands."""
        name = self.study.settings.get("refit.of", "")
        return name if STUDY_NAME.fullmatch(name) else None

    @property
    def experiment(self) -> str:
        """The name of the experiment that its runs are made in."""
        return self.refit_of or self.ref.name

    @property
    def run_name(self) -> str:
        return self.ref.name if self.refit_of is None else f"refit-{self.ref.name}"

    def own(self, update: RunUpdate, number: int) -> RunUpdate:
        """Of a trial's run as it stands in the experiment: with its final value by the name of the
        study's metric, too. Among the trials of a study its refits have a name of their own, and
        no final value, which would compare with none."""
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
        """The view of its runs that its experiment keeps, by its best trials so far."""
        params = [list(trial.params) for trial in best]
        return shared_view_tag(self.first.settings, to_ms(self.first.time), params)

    def update(
        self, events: Sequence[SweepStarted | SweepEnded], user: str, files: Sequence[str] = ()
    ) -> RunUpdate:
        """What `events`, the last of the record's, change about the run.

        The settings are no params: each would be a column among those of the trials. `files` (the
        config) are stored when a sweep begins; the note is the user's to change from then on.
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
            metrics=tuple(_summary(events)),
            status=None if still_first else status,
            end_ms=to_ms(last.time) if status in ("FINISHED", "FAILED") else None,
            files=files if begins else (),
        )


def study_note(settings: Mapping[str, str]) -> str:
    """What the study is about, in Markdown, from what cannot change while it lasts."""
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
        + f". All settings: `{CONFIG}` among the artifacts.",
        "",
        "| param | searched |",
        "|---|---|",
        *(f"| {name} | {_searched(settings, name)} |" for name in searched_params(settings)),
    ]
    return "\n".join(lines if len(lines) > 4 else lines[:1])


def _refit_note(settings: Mapping[str, str]) -> str:
    rows, n_seeds = settings.get("refit.rows", ""), settings.get("refit.n_seeds", "1")
    trial, epochs = _refitted_trial(settings), settings.get("training.epochs", "")
    return (
        f"Refit of {f'trial {trial}' if trial else 'the ensemble'} of study "
        f"`{settings['refit.of']}`: rows {rows}, epochs {'' if trial else 'up to '}{epochs}, seeds "
        f"{n_seeds}. All settings of the study: `{CONFIG}` among the artifacts."
    )


def _refitted_trial(settings: Mapping[str, str]) -> str:
    """The number of the trial that is trained again; empty: the members of the ensemble are."""
    return settings.get("refit.trial", "")


def _searched(settings: Mapping[str, str], name: str) -> str:
    entry = {key: settings.get(f"space.{name}.{key}") for key in ("low", "high", "choices")}
    if entry["choices"] is not None:
        return entry["choices"].strip("[]")
    log = ", log" if settings.get(f"space.{name}.log") == "True" else ""
    return f"{entry['low']} to {entry['high']}{log}"


def _sweep_state(event: SweepStarted | SweepEnded) -> tuple[str, str]:
    """Our word and MLflow's."""
    if isinstance(event, SweepStarted):
        return "running", "RUNNING"
    if event.failed or (event.done and not event.n_by_state.get(TrialState.FINISHED)):
        return "failed", "FAILED"
    if not event.done:
        return "interrupted", "SCHEDULED"
    return "done", "FINISHED"


def _summary(events: Iterable[SweepStarted | SweepEnded]) -> Iterable[MetricPoint]:
    for event in events:
        if not isinstance(event, SweepEnded):
            continue
        time_ms = to_ms(event.time)
        for state, n in event.n_by_state.items():
            yield MetricPoint(f"trials_{state.value}", float(n), time_ms, 0)
        if event.best_value is not None:
            yield MetricPoint("best_value", nan_if_infinite(event.best_value), time_ms, 0)
