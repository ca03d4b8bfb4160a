"""What MLflow is told of the study itself: its parent run. Pure, like `trial_view.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from automl.tracking.cleaning import clean_params, clean_tags, finite, to_ms
from automl.tracking.run_update import KIND, STATE, STUDY, MetricPoint, RunUpdate, StudyRef
from automl.tracking.trial_view import trial_name
from automl.trial import SweepEnded, SweepStarted, TrialState


class StudyView:
    """A study as its sweeps so far tell it, whether their events are delivered or not."""

    def __init__(self, first: SweepStarted, ref: StudyRef | None = None) -> None:
        """`ref`: which study it is now, if it was renamed or copied since."""
        self.first = first
        self.name = first.study if ref is None else ref.name
        self.uuid = first.study_uuid if ref is None else ref.uuid
        self._start_ms = to_ms(first.time)
        self._settings = first.settings
        """Of the first sweep: MLflow lets no param change, so later ones go into tags."""
        self._changed: dict[str, str] = {}
        self._n_sweeps = 0

    @property
    def key(self) -> dict[str, str]:
        """Tags that the study's run is found again by."""
        return {STUDY: self.uuid, KIND: "study"}

    def take(self, event: SweepStarted | SweepEnded) -> None:
        """Learn from the next event, the first one included."""
        if isinstance(event, SweepStarted):
            self._n_sweeps += 1
            for key, value in event.settings.items():
                if self._settings.get(key) != value or key in self._changed:
                    self._changed[key] = value

    def update(self, events: Sequence[SweepStarted | SweepEnded], user: str) -> RunUpdate:
        """What `events`, the last that were taken, change about the study's run."""
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
            birth_tags={"mlflow.user": user},
            params=clean_params(self._settings),
            begins=any(isinstance(event, SweepStarted) for event in events),
            tags=clean_tags(tags),
            metrics=tuple(_summary(events)),
            status=None if status == "RUNNING" and self._n_sweeps == 1 else status,
            end_ms=to_ms(last.time) if status in ("FINISHED", "FAILED") else None,
        )


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
