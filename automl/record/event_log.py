"""The event log of a study: each event once, append-only, encoded as one line of JSON.

`EventLog.append` hands a line to the kernel at once, so that it survives the death of this process.
The line is on disk within 50 ms, or before `append` returns where its loss would cost a trial
(`append_only.py` says how). Another process delivers the log to MLflow; nothing here waits for it.

A line has the kind in `event`, then the fields by name, and last the checksum. Floats are written
as Python's `json` writes them, so `NaN` and `Infinity` are read back. A field that a newer version
added is ignored; a field that it left out takes its default.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, file_error_text, is_line_damaged, seal_line
from automl.record.disk import nonblocking_opener
from automl.record.study_record import StudyFold
from automl.record.texts import (
    MAX_CAUSE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cut_text,
    cut_text_middle,
    fit_line,
    fit_text,
    redact_settings,
    redact_tag,
)
from automl.trial import (
    CheckpointKind,
    CheckpointWritten,
    DeviceKind,
    EnsembleBuilt,
    Event,
    ExportTuned,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    LoggedPoint,
    MemoryPeakMeasured,
    MetricsReported,
    ModelsEvaluated,
    OutOfMemoryOutcome,
    PaceMeasured,
    ParamsSuggested,
    PrunedOutcome,
    ReportWritten,
    RequestSource,
    RowsKind,
    ScoreDifference,
    ScoreInterval,
    SweepEnded,
    SweepStarted,
    TooLargeOutcome,
    TrialOutcome,
    TrialStarted,
    TrialState,
    TrialTagged,
    ValuesLogged,
)

EVENT_KINDS: dict[str, type[Any]] = {
    "Started": TrialStarted,
    "Suggested": ParamsSuggested,
    "Reported": MetricsReported,
    "Tagged": TrialTagged,
    "Logged": ValuesLogged,
    "Checkpointed": CheckpointWritten,
    "MemoryPeak": MemoryPeakMeasured,
    "Finished": FinishedOutcome,
    "Pruned": PrunedOutcome,
    "TooLarge": TooLargeOutcome,
    "Interrupted": InterruptedOutcome,
    "Failed": FailedOutcome,
    "OutOfMemory": OutOfMemoryOutcome,
    "SweepStarted": SweepStarted,
    "SweepEnded": SweepEnded,
    "Paced": PaceMeasured,
    "Evaluated": ModelsEvaluated,
    "Ensembled": EnsembleBuilt,
    "Tuned": ExportTuned,
    "ReportPage": ReportWritten,
}
"""The class of each event by its name in event logs. Logs of earlier versions have the same names,
so a class may be renamed and a name here may not."""
EVENT_NAMES = {kind: name for name, kind in EVENT_KINDS.items()}
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in EVENT_KINDS.values()
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("trial", "step", "peak_bytes", "n_lanes", "n_rows"), int),
    "allocated_bytes": int,
    "predicted_bytes": (int, NoneType),
    "execution": (int, NoneType),
    "refit_of": (int, NoneType),
    **dict.fromkeys(("time", "value", "excess", "step_flops", "step_seconds"), (int, float)),
    **dict.fromkeys(("params", "metrics", "settings", "scores", "members", "figures"), dict),
    **dict.fromkeys(("device", "study", "study_uuid", "name", "text", "digest"), str),
    **dict.fromkeys(("model", "chosen"), str),
}
"""The type that each field must have, whichever program wrote it: folding events relies on it."""
_TYPED = {
    kind: tuple((name, _TYPES[name]) for name in names if name in _TYPES)
    for kind, names in _FIELDS.items()
}
# `json.dumps` with separators builds an encoder per call, which doubles its time.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class UnreadableLineError(ValueError):
    """Raised when a line of an event log is damaged, or no event of this version."""


def encode_event(event: Event, attempt: int | None = None) -> bytes:
    """Return the line of `event` in ASCII, newline included; its texts are cut and masked.

    `attempt` is the current attempt of the trial, in a study that several sweeps may work on.
    """
    kind = type(event)
    fields: dict[str, object] = {"event": EVENT_NAMES[kind]}
    for name in _FIELDS[kind]:
        fields[name] = getattr(event, name)
    match event:
        case MetricsReported():
            fields["metrics"] = {key: float(value) for key, value in event.metrics.items()}
        case TrialTagged():
            fields |= redact_tag(event.name, event.text)
        case ValuesLogged():
            fields["params"] = redact_settings(event.params)
        case TrialStarted() | ParamsSuggested():
            fields["params"] = dict(event.params)
        case CheckpointWritten():
            fields["kind"] = event.kind.value
        case MemoryPeakMeasured():
            fields["source"] = None if event.source is None else event.source.value
        case FailedOutcome():
            fields |= {"cause": fit_line(event.cause), "details": fit_text(event.details)}
        case InterruptedOutcome() | OutOfMemoryOutcome() | TooLargeOutcome():
            fields["cause"] = fit_line(event.cause)
        case SweepStarted():
            fields["settings"] = redact_settings(event.settings)
        case ExportTuned():
            fields["model"] = fit_line(event.model)
        case PaceMeasured() | ModelsEvaluated():
            fields["kind"] = event.kind.value
        case SweepEnded():
            fields["n_by_state"] = {state.value: n for state, n in event.n_by_state.items()}
    if attempt is not None:
        fields["attempt"] = attempt
    return seal_line(_encode(fields).encode("ascii")) + b"\n"


def decode_event(line: bytes) -> Event:
    """Return the event of a line. Raises UnreadableLineError."""
    if is_line_damaged(line.rstrip(b"\n")):
        raise UnreadableLineError("it is not what its checksum was made of")
    try:
        fields = json.loads(line)
        kind = EVENT_KINDS[fields["event"]]
        event: Event = kind(**_values(kind, fields))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableLineError(f"{type(error).__name__}: {error}") from error
    return event


def _values(kind: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: fields[name] for name in _FIELDS[kind] if name in fields}
    for name, expected_type in _TYPED[kind]:
        if name in values and not isinstance(values[name], expected_type):
            raise TypeError(f"{name} is a {type(values[name]).__name__}")
    if "cause" in values:  # earlier versions wrote texts of any length
        values["cause"] = cut_text(values["cause"], MAX_CAUSE_CHARACTERS)
    if "details" in values:
        values["details"] = cut_text_middle(values["details"], MAX_TEXT_CHARACTERS)
    if kind is MetricsReported:
        values["metrics"] = {name: float(value) for name, value in values["metrics"].items()}
    elif kind is ValuesLogged:
        values["points"] = tuple(LoggedPoint(*point) for point in values.get("points", ()))
        _check_logged(values["points"], values.get("params", {}))
    elif kind is CheckpointWritten:
        values |= {"kind": CheckpointKind(values["kind"]), "path": str(values["path"])}
    elif kind is MemoryPeakMeasured:
        if values.get("source") is not None:
            values["source"] = RequestSource(values["source"])
        values["on_each_bytes"] = tuple(map(int, values.get("on_each_bytes", ())))
    elif kind is PaceMeasured:
        values["kind"] = DeviceKind(values["kind"])
    elif kind is ModelsEvaluated:
        differences = values.get("differences", {}).items()
        values |= {
            "kind": RowsKind(values["kind"]),
            "trials": tuple(map(int, values["trials"])),
            "scores": {model: _scores(metrics) for model, metrics in values["scores"].items()},
            "differences": {model: _differences(metrics) for model, metrics in differences},
        }
    elif kind is ExportTuned:
        values["figures"] = {
            variant: {name: float(value) for name, value in figures.items()}
            for variant, figures in values["figures"].items()
        }
    elif kind is EnsembleBuilt:
        values |= {
            "members": {int(n): float(weight) for n, weight in values["members"].items()},
            "scores": {name: float(value) for name, value in values["scores"].items()},
            "rows_per_second": {
                int(n): float(speed) for n, speed in values.get("rows_per_second", {}).items()
            },
            "alone": {
                int(n): {name: float(value) for name, value in scores.items()}
                for n, scores in values.get("alone", {}).items()
            },
        }
    elif kind is SweepEnded:
        n_by_state = values["n_by_state"].items()
        values["n_by_state"] = {TrialState(state): n for state, n in n_by_state}
    return values


def _scores(metrics: Mapping[str, Any]) -> dict[str, ScoreInterval]:
    return {name: ScoreInterval(*map(float, bounds)) for name, bounds in metrics.items()}


def _differences(metrics: Mapping[str, Any]) -> dict[str, ScoreDifference]:
    return {
        name: ScoreDifference(float(value), float(low), float(high), str(verdict))
        for name, (value, low, high, verdict) in metrics.items()
    }


def _check_logged(points: Iterable[LoggedPoint], params: Mapping[str, Any]) -> None:
    """Raise TypeError for points or params of the wrong types: a stranger may have written them."""
    for point in points:
        numbers = isinstance(point.value, int | float) and isinstance(point.step, int)
        if not (isinstance(point.name, str) and numbers and isinstance(point.time_ms, int)):
            raise TypeError(f"{point} is no value of a metric")
    if not all(isinstance(text, str) for text in params.values()):
        raise TypeError("a param that was logged is text")


_FLUSHED_AT_ONCE = (TrialOutcome, SweepStarted, SweepEnded)

logger = logging.getLogger(__name__)


def read_events(path: Path, offset: int = 0) -> Iterator[tuple[Event, int]]:
    """Yield each event from byte `offset` on, with the offset after it; whole lines only.

    A line that is no event of this version is skipped with a warning. A missing file has no events.
    """
    with suppress(FileNotFoundError), open(path, "rb", opener=nonblocking_opener) as file:
        if offset:
            file.seek(offset)
        for line in file:
            if not line.endswith(b"\n"):
                return  # still being written, or torn
            offset += len(line)
            try:
                event = decode_event(line)
            except UnreadableLineError as error:
                logger.warning(
                    "%s: the line before byte %d is no event and is left out (%s)",
                    *(path, offset, error),
                )
                continue
            yield event, offset


class EventLog:
    """The open event log of a study; appends events from any thread.

    Only the process that holds the study directory's lock may open it. After a failed write every
    later `append` raises StorageError.
    """

    def __init__(self, path: Path, file: AppendOnlyFile, fold: StudyFold) -> None:
        self.record = fold.record()
        """The study as the log told it when it was opened, for taking trials over."""
        self._path = path
        self._file = file
        self._lock = threading.Lock()  # guards `_history`, and keeps it equal to the file
        self._history = fold.history

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open or make the log; a torn last line is cut off and kept in a file beside it.

        Raises StudyInUseError when another process has it open, StorageError when the file cannot
        be opened, read or mended.
        """
        file, fold = AppendOnlyFile.open(path), StudyFold()
        try:
            for event, _ in read_events(path):
                fold.take(event)
        except OSError as error:
            file.close()
            raise StorageError(file_error_text(path, "read", error)) from error
        return cls(path, file, fold)

    def append(self, event: Event) -> bool:
        """Write the part of `event` that the log lacks; return whether there was one.

        Metrics and tags that are logged already, and events of a trial that has ended, are not
        written again. The call returns when the line is with the kernel; for an outcome, and for
        the begin and end of a sweep, when it is on disk. Raises StorageError when the line cannot
        be written, and at every later call.
        """
        line = self._line(event)
        with self._lock:
            self._file.check()  # before the history takes a step that the file will not have
            new = self._history.new_part(event)
            if new is None:
                return False
            if new is not event:
                line = self._line(new)
            append_number = self._file.append(line)
        if isinstance(event, _FLUSHED_AT_ONCE):
            self._file.flush(append_number)
        else:
            self._file.flush_soon()
        return True

    def attempt(self, trial: int) -> int:
        """Return the trial's current attempt number; 0: no other sweep can have the trial."""
        return 0

    def close(self) -> None:
        """Flush and close the file; a second call does nothing.

        Raises StorageError when a flush failed and no call has raised the failure yet.
        """
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _line(self, event: Event) -> bytes:
        return encode_event(self._with_relative_path(event))

    def _with_relative_path(self, event: Event) -> Event:
        """Return `event` with a checkpoint's path relative to the study, which may move."""
        if not isinstance(event, CheckpointWritten):
            return event
        path, folder = Path(event.path), self._path.parent
        inside = path.is_relative_to(folder)
        return replace(event, path=str(path.relative_to(folder))) if inside else event
