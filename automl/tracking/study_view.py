"""What MLflow is told of the study itself: its parent run. Pure, like `trial_view.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from automl.record.files import CONFIG
from automl.tracking.cleaning import clean_tags, finite, to_ms
from automl.tracking.run_update import (
    KIND,
    NOTE,
    STATE,
    STUDY,
    MetricPoint,
    RunUpdate,
    StudyRef,
)
from automl.tracking.shared_view import minimizes, searched_params, shared_view
from automl.trial import SweepEnded, SweepStarted, TrialState, trial_name


class StudyView:
    """A study as its sweeps so far tell it, whether their events are delivered or not."""

    def __init__(self, first: SweepStarted, ref: StudyRef | None = None) -> None:
        """`ref`: which study it is now, if it was renamed or copied since."""
        self.first = first
        self.name = first.study if ref is None else ref.name
        self.uuid = first.study_uuid if ref is None else ref.uuid
        self._start_ms = to_ms(first.time)
        self._settings = first.settings
        """Of the first sweep; what later ones change is told in tags."""
        self._changed: dict[str, str] = {}
        self._n_sweeps = 0

    @property
    def key(self) -> dict[str, str]:
        """Tags that the study's run is found again by."""
        return {STUDY: self.uuid, KIND: "study"}

    @property
    def shared_view(self) -> str:
        """The view of its runs that its experiment keeps."""
        return shared_view(self._settings, self._start_ms)

    def take(self, event: SweepStarted | SweepEnded) -> None:
        """Learn from the next event, the first one included."""
        if isinstance(event, SweepStarted):
            self._n_sweeps += 1
            for key, value in event.settings.items():
                if self._settings.get(key) != value or key in self._changed:
                    self._changed[key] = value

    def update(
        self, events: Sequence[SweepStarted | SweepEnded], user: str, files: Sequence[str] = ()
    ) -> RunUpdate:
        """What `events`, the last that were taken, change about the study's run.

        The settings are no params: each would be a column among those of the trials. `files` (the
        config) are stored when a sweep begins; the note is the user's to change from then on.
        """
        begins = any(isinstance(event, SweepStarted) for event in events)
        last = events[-1]
        state, status = _sweep_state(last)
        tags = {STATE: state}
        tags |= {f"automl.changed.{key}": value for key, value in self._changed.items()}
        if isinstance(last, SweepEnded) and last.best_trial is not None:
            tags["automl.best_trial"] = trial_name(last.best_trial)
        return RunUpdate(
            name=self.name,
            start_ms=self._start_ms,
            key=self.key,
            birth_tags={"mlflow.user": user, **clean_tags({NOTE: study_note(self._settings)})},
            params={},
            begins=begins,
            tags=clean_tags(tags),
            metrics=tuple(_summary(events)),
            status=None if status == "RUNNING" and self._n_sweeps == 1 else status,
            end_ms=to_ms(last.time) if status in ("FINISHED", "FAILED") else None,
            files=files if begins else (),
        )


def study_note(settings: Mapping[str, str]) -> str:
    """What the study is about, in Markdown, from what cannot change while it lasts."""
    metric = settings.get("study.metric", "the metric")
    about = [
        f"{word} {settings[key]}"
        for word, key in (("data", "data.kind"), ("objective", "objective.target"))
        if key in settings
    ]
    lines = [
        f"Study of automl: {'minimizes' if minimizes(settings) else 'maximizes'} `{metric}`"
        + "".join(f", {text}" for text in about)
        + f". All settings: `{CONFIG}` among the artifacts.",
        "",
        "| param | searched |",
        "|---|---|",
        *(f"| {name} | {_searched(settings, name)} |" for name in searched_params(settings)),
    ]
    return "\n".join(lines if len(lines) > 4 else lines[:1])


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
            yield MetricPoint("best_value", finite(event.best_value), time_ms, 0)
