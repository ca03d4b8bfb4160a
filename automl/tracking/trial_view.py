"""What MLflow is told of a trial. Pure: events in, plain values out.

All that happened to a trial since the last delivery becomes one `RunUpdate`. Asked again with the
same events it is the same update, so that it can be repeated after any failure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from automl.config import KeepCheckpoints
from automl.record.files import CHECKPOINT_NAMES, StudyFiles
from automl.record.texts import cut, cut_middle
from automl.tracking.cleaning import (
    MAX_TAG_CHARACTERS,
    clean_key,
    clean_params,
    clean_tags,
    finite,
    to_ms,
)
from automl.tracking.run_update import (
    CAUSE,
    DEVICE,
    MEMORY_PEAK,
    NOTE,
    PARENT,
    STATE,
    STUDY,
    TRIAL,
    VALUE,
    RunUpdate,
)
from automl.tracking.run_update import MetricPoint as Point
from automl.trial import (
    MAX_STEP,
    Checkpointed,
    CheckpointKind,
    Failed,
    Finished,
    Interrupted,
    MemoryPeak,
    Outcome,
    OutOfMemory,
    Params,
    Pruned,
    Reported,
    Started,
    TrialEvent,
    TrialState,
    trial_name,
)

_STATES = {
    Started: TrialState.RUNNING,
    Finished: TrialState.FINISHED,
    Pruned: TrialState.PRUNED,
    Failed: TrialState.FAILED,
    Interrupted: TrialState.INTERRUPTED,
    OutOfMemory: TrialState.INTERRUPTED,
}
_STATUS = {
    TrialState.RUNNING: "RUNNING",
    TrialState.INTERRUPTED: "SCHEDULED",
    TrialState.FINISHED: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAILED: "FAILED",
}
_FENCE = "``````"
"""Longer than what stands in a traceback."""
_NOTE_DETAILS_CHARACTERS = MAX_TAG_CHARACTERS - 1000


class TrialView:
    """A trial as its events so far tell it, whether they are delivered or not."""

    def __init__(self, number: int, time_seconds: float, fresh: bool) -> None:
        self.number = number
        self.fresh = fresh
        """No earlier process can have made a run for it."""
        self._start_ms = to_ms(time_seconds)
        self._params: Params = {}
        self._device = "?"
        self._state = TrialState.RUNNING
        self._n_starts = 0
        self._last_step = 0
        self._peak_bytes = 0
        self._infinite: set[str] = set()
        self._checkpoints: dict[CheckpointKind, str] = {}

    @property
    def ended(self) -> bool:
        """For good: no event of this trial follows."""
        return self._state not in (TrialState.RUNNING, TrialState.INTERRUPTED)

    def take(self, event: TrialEvent) -> None:
        """Learn from the next event."""
        self._state = _STATES.get(type(event), self._state)
        match event:
            case Started():
                self._params, self._device = event.params, event.device
                self._n_starts += 1
            case Reported():
                if event.step <= MAX_STEP:  # older versions took what no store can hold
                    self._last_step = max(self._last_step, event.step)
                self._infinite |= {k for k, v in event.metrics.items() if math.isinf(v)}
            case Checkpointed():
                self._checkpoints[event.kind] = event.path
            case MemoryPeak():
                self._peak_bytes = max(self._peak_bytes, event.peak_bytes)

    def update(
        self, events: Sequence[TrialEvent], study_uuid: str, parent: str, keep: KeepCheckpoints
    ) -> RunUpdate:
        """What `events`, the last that were taken, change about the trial's run.

        `parent` is the id of the study's own run.
        """
        begins = any(isinstance(event, Started) for event in events)
        turns = begins or any(isinstance(event, Outcome) for event in events)
        still_first = self._state is TrialState.RUNNING and self._n_starts <= 1
        kinds = self._kept(keep) if self.ended else ()
        kept = [own_checkpoint(self._checkpoints[kind], self.number, kind) for kind in kinds]
        return RunUpdate(
            name=trial_name(self.number),
            start_ms=self._start_ms,
            key={STUDY: study_uuid, TRIAL: str(self.number)},
            birth_tags={PARENT: parent},
            params=clean_params({name: str(value) for name, value in self._params.items()}),
            begins=begins,
            tags=clean_tags(self._tags(events, begins, turns)),
            metrics=tuple(self._metrics(events)),
            status=_STATUS[self._state] if turns and not still_first else None,
            end_ms=to_ms(events[-1].time) if self.ended else None,
            artifacts=[path for path in kept if path is not None],
            refused=[
                f"the path {self._checkpoints[kind][:200]!r} of {CHECKPOINT_NAMES[kind]} is none "
                "of the study's checkpoints; it was not stored"
                for kind, path in zip(kinds, kept, strict=True)
                if path is None
            ],
        )

    def _tags(self, events: Sequence[TrialEvent], begins: bool, turns: bool) -> dict[str, str]:
        tags = {}
        if turns:
            tags[STATE] = self._state.value
        if begins:
            tags[DEVICE] = self._device
            if self._n_starts > 1:
                tags[CAUSE] = ""  # of the interruption that is over
        for event in events:
            match event:
                case Failed() | Interrupted() | OutOfMemory():
                    tags[CAUSE] = event.cause
                    if isinstance(event, Failed) and event.details:
                        tags[NOTE] = _note(event)
        if self._infinite and turns:
            names = ", ".join(sorted(self._infinite))
            tags["automl.infinite"] = f"shown as NaN where infinite: {names}"
        return tags

    def _metrics(self, events: Iterable[TrialEvent]) -> Iterable[Point]:
        for event in events:
            time_ms = to_ms(event.time)
            match event:
                case Reported():
                    for name, value in event.metrics.items():
                        yield Point(clean_key(name), finite(value), time_ms, event.step)
                case Finished() | Pruned():
                    yield Point(VALUE, finite(event.value), time_ms, self._last_step)
            if isinstance(event, Outcome) and self.ended and self._peak_bytes:
                peak = float(self._peak_bytes)
                yield Point(MEMORY_PEAK, peak, time_ms, self._last_step)

    def _kept(self, keep: KeepCheckpoints) -> Sequence[CheckpointKind]:
        kept = {
            KeepCheckpoints.all: (CheckpointKind.LAST, CheckpointKind.BEST),
            KeepCheckpoints.best: (CheckpointKind.BEST,),
            KeepCheckpoints.none: (),
        }[keep]
        return [kind for kind in kept if kind in self._checkpoints]


def own_checkpoint(path: str, number: int, kind: CheckpointKind) -> str | None:
    """Where the trial's checkpoint stands below its study; None for a path that is another file's.

    The log may be a stranger's, and a study may have been moved since: an absolute path says where
    it stood then, and only its end is believed.
    """
    own = PurePosixPath(StudyFiles(Path()).checkpoint(number, kind))
    said = PurePosixPath(path)
    if ".." in said.parts or (said != own and not said.is_absolute()):
        return None
    return str(own) if said.parts[-3:] == own.parts else None


def _note(event: Failed) -> str:
    details = cut_middle(event.details, _NOTE_DETAILS_CHARACTERS)
    # As code: `***` and `a_b` are no Markdown there.
    cause = cut(event.cause, 500).replace("`", "'")
    return f"**`{cause}`**\n\n{_FENCE}\n{details}\n{_FENCE}"
