"""Computes what MLflow shows of a trial: its run. Pure: events in, plain values out.

All events of a trial since the last delivery become one `RunUpdate`. The same events always give
the same update, so that it can be repeated after any failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from automl.config import KeepCheckpoints
from automl.record.study_files import CHECKPOINT_NAMES, StudyFiles
from automl.record.texts import cut_text, cut_text_middle
from automl.record.trial_record import TrialRecord, TrialRecordBuilder
from automl.tracking.view.run_update import (
    CAUSE_TAG,
    MAX_TAG_CHARACTERS,
    MEMORY_PEAK_METRIC,
    NOTE_TAG,
    STATE_TAG,
    STUDY_TAG,
    TRIAL_TAG,
    VALUE_METRIC,
    RunUpdate,
    best_key,
    clean_key,
    clean_params,
    clean_tags,
    nan_if_infinite,
    to_ms,
)
from automl.trial import (
    CheckpointKind,
    FailedOutcome,
    FinishedOutcome,
    LoggedPoint,
    MetricsReported,
    ParamsSuggested,
    PrunedOutcome,
    TrialEvent,
    TrialOutcome,
    TrialStarted,
    TrialState,
    TrialTagged,
    ValuesLogged,
    trial_name,
)

DEVICE_TAG, PARENT_TAG = "automl.device", "mlflow.parentRunId"
PEAK_TAG, PREDICTED_TAG, PREDICTED_BY_TAG = (
    "automl.memory_peak",
    "automl.memory_predicted",
    "automl.memory_predicted_by",
)
"""Tags for the bytes that a trial held by itself, the bytes it had asked for, and their source."""
OWN_TAG_PREFIXES = ("automl.", "mlflow.")
"""Prefixes of the tags of the sweep and of MLflow, which no objective's tag has."""
_STATUS = {
    TrialState.RUNNING: "RUNNING",
    TrialState.INTERRUPTED: "SCHEDULED",
    TrialState.PAUSED: "SCHEDULED",
    TrialState.FINISHED: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAILED: "FAILED",
}
_FENCE = "``````"
"""Fence of a code block, longer than any in a traceback."""
_NOTE_DETAILS_CHARACTERS = MAX_TAG_CHARACTERS - 1000


class TrialRun:
    """A trial's run, computed from all events of the trial so far, delivered or not."""

    def __init__(self, first: TrialEvent, *, fresh: bool) -> None:
        self.number = first.trial
        self.fresh = fresh
        """Whether no earlier process can have made the run."""
        self._fold = TrialRecordBuilder(first.trial, first.time)
        self._infinite: set[str] = set()

    @property
    def ended(self) -> bool:
        """Return whether the trial has ended for good, so that no event of it follows."""
        return self._fold.state.is_final

    def take(self, event: TrialEvent) -> None:
        """Take the next event of the trial."""
        self._fold.take(event)
        if isinstance(event, MetricsReported):
            self._infinite |= {k for k, v in event.metrics.items() if math.isinf(v)}
        elif isinstance(event, ValuesLogged):
            self._infinite |= {point.name for point in event.points if math.isinf(point.value)}

    def update(
        self, events: Sequence[TrialEvent], study_uuid: str, parent: str, keep: KeepCheckpoints
    ) -> RunUpdate:
        """Return the run's changes by `events`, the last that were taken."""
        trial = self._fold.record()
        begins = any(isinstance(event, TrialStarted) for event in events)
        has_new_params = any(isinstance(event, ParamsSuggested) for event in events)
        changes_state = begins or any(isinstance(event, TrialOutcome) for event in events)
        still_first = trial.state is TrialState.RUNNING and trial.n_starts <= 1
        artifacts, refused = _checkpoints_to_store(trial, keep)
        return RunUpdate(
            name=trial_name(trial.number),
            start_ms=to_ms(trial.started),
            key={STUDY_TAG: study_uuid, TRIAL_TAG: str(trial.number)},
            birth_tags={PARENT_TAG: parent},
            params=clean_params({name: str(value) for name, value in trial.params.items()}),
            begins=begins or has_new_params,
            logged_params=clean_params(_logged_params(events)),
            tags=clean_tags(
                _objective_tags(events) | (self._tags(trial, events) if changes_state else {})
            ),
            metrics=tuple(_metrics(trial, events)),
            status=_STATUS[trial.state] if changes_state and not still_first else None,
            end_ms=None if trial.ended is None else to_ms(trial.ended),
            artifacts=artifacts,
            refused=refused,
        )

    def _tags(self, trial: TrialRecord, events: Iterable[TrialEvent]) -> dict[str, str]:
        """Return the tags of a trial that began, went on or ended by one of `events`."""
        tags = {STATE_TAG: trial.state.value}
        for event in events:
            if isinstance(event, TrialStarted):
                tags[DEVICE_TAG] = trial.device
                if trial.n_starts > 1:
                    tags[CAUSE_TAG] = ""  # clears the cause of an interruption that is over
            elif isinstance(event, FailedOutcome) and event.details:
                tags[NOTE_TAG] = _failure_note(event)
        if trial.state is not TrialState.RUNNING:
            tags |= _memory_tags(trial)
        if trial.cause is not None:
            tags[CAUSE_TAG] = trial.cause
        if self._infinite:
            names = ", ".join(sorted(self._infinite))
            tags["automl.infinite"] = f"shown as NaN where infinite: {names}"
        return tags


def _objective_tags(events: Iterable[TrialEvent]) -> dict[str, str]:
    """Return the objective's tags, without those of the sweep, which a stranger's log may name."""
    tags = {event.name: event.text for event in events if isinstance(event, TrialTagged)}
    return {name: text for name, text in tags.items() if not name.startswith(OWN_TAG_PREFIXES)}


def _logged_params(events: Iterable[TrialEvent]) -> dict[str, str]:
    """Return the params that the objective logged beside those of the trial."""
    return {
        name: text
        for event in events
        if isinstance(event, ValuesLogged)
        for name, text in event.params.items()
    }


def _memory_tags(trial: TrialRecord) -> dict[str, str]:
    """Return tags for the memory that the trial held and had asked for, as far as known."""
    if not trial.peak_bytes:
        return {}
    predicted, source = trial.predicted_bytes, trial.predicted_by
    return (
        {PEAK_TAG: str(trial.peak_bytes)}
        | ({} if predicted is None else {PREDICTED_TAG: str(predicted)})
        | ({} if source is None else {PREDICTED_BY_TAG: source.value})
    )


def _metrics(trial: TrialRecord, events: Iterable[TrialEvent]) -> Iterable[LoggedPoint]:
    for event in events:
        time_ms = to_ms(event.time)
        match event:
            case MetricsReported():
                for name, value in event.metrics.items():
                    yield LoggedPoint(clean_key(name), nan_if_infinite(value), event.step, time_ms)
            case ValuesLogged():
                for name, value, step, at_ms in event.points:
                    yield LoggedPoint(clean_key(name), nan_if_infinite(value), step, at_ms)
            case FinishedOutcome() | PrunedOutcome():
                value = nan_if_infinite(event.value)
                yield LoggedPoint(VALUE_METRIC, value, trial.last_step, time_ms)
                for name, each in event.values.items():
                    shown = nan_if_infinite(each)
                    yield LoggedPoint(best_key(name), shown, trial.last_step, time_ms)
                if trial.standard_error is not None:
                    error = f"{VALUE_METRIC}_se"
                    yield LoggedPoint(error, trial.standard_error, trial.last_step, time_ms)
        if isinstance(event, TrialOutcome) and event.state.is_final and trial.peak_bytes:
            peak = float(trial.peak_bytes)
            yield LoggedPoint(MEMORY_PEAK_METRIC, peak, trial.last_step, time_ms)


def _checkpoints_to_store(trial: TrialRecord, keep: KeepCheckpoints) -> tuple[list[str], list[str]]:
    """Return paths of the checkpoints to store, and texts about those that are not stored."""
    stored, refused = [], []
    for kind in stored_kinds(keep) if trial.state.is_final else ():
        if kind not in trial.checkpoints:
            continue
        path = own_checkpoint(trial.checkpoints[kind], trial.number, kind)
        if path is not None:
            stored.append(path)
            continue
        refused.append(
            f"the path {trial.checkpoints[kind][:200]!r} of {CHECKPOINT_NAMES[kind]} is none "
            "of the study's checkpoints; it was not stored"
        )
    return stored, refused


def stored_kinds(keep: KeepCheckpoints) -> Sequence[CheckpointKind]:
    return {
        KeepCheckpoints.all: (CheckpointKind.LAST, CheckpointKind.BEST),
        KeepCheckpoints.best: (CheckpointKind.BEST,),
        KeepCheckpoints.none: (),
    }[keep]


def own_checkpoint(path: str, number: int, kind: CheckpointKind) -> str | None:
    """Return the path of a trial's checkpoint below its study; None if `path` is another file's.

    The log may be a stranger's, and the study may have been moved since: an absolute path names the
    place at that time, and only its end counts.
    """
    own = PurePosixPath(StudyFiles(Path()).checkpoint(number, kind))
    logged_path = PurePosixPath(path)
    if ".." in logged_path.parts or (logged_path != own and not logged_path.is_absolute()):
        return None
    return str(own) if logged_path.parts[-3:] == own.parts else None


def _failure_note(event: FailedOutcome) -> str:
    details = cut_text_middle(event.details, _NOTE_DETAILS_CHARACTERS)
    # The cause is shown as code, in which `***` and `a_b` are no Markdown.
    cause = cut_text(event.cause, 500).replace("`", "'")
    return f"**`{cause}`**\n\n{_FENCE}\n{details}\n{_FENCE}"
