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
import enum
import functools
import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import UnionType
from typing import Any, TypeAlias, get_args, get_origin, get_type_hints

from automl.config.renamed import rename_settings
from automl.errors import StorageError
from automl.record.append_only import AppendOnlyFile, file_error_text, is_line_damaged, seal_line
from automl.record.disk import nonblocking_opener
from automl.record.study_record import StudyRecordBuilder
from automl.record.texts import (
    MAX_CAUSE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cut_text,
    cut_text_middle,
    fit_line,
    fit_text,
    parse_json,
    redact_settings,
    redact_tag,
)
from automl.trial import Event, StudyEdited, events

EVENT_KINDS: dict[str, type[Any]] = {
    "Started": events.TrialStarted,
    "Suggested": events.ParamsSuggested,
    "Reported": events.MetricsReported,
    "Tagged": events.TrialTagged,
    "Logged": events.ValuesLogged,
    "Checkpointed": events.CheckpointWritten,
    "MemoryPeak": events.MemoryPeakMeasured,
    "Finished": events.FinishedOutcome,
    "Pruned": events.PrunedOutcome,
    "TooLarge": events.TooLargeOutcome,
    "Interrupted": events.InterruptedOutcome,
    "Paused": events.PausedOutcome,
    "Failed": events.FailedOutcome,
    "OutOfMemory": events.OutOfMemoryOutcome,
    "SweepStarted": events.SweepStarted,
    "SweepEnded": events.SweepEnded,
    "Paced": events.PaceMeasured,
    "Evaluated": events.ModelsEvaluated,
    "Ensembled": events.EnsembleBuilt,
    "Tuned": events.ExportTuned,
    "ReportPage": events.ReportWritten,
    "Waited": events.TrialsWaited,
    "Edited": StudyEdited,
    "FilesRemoved": events.TrialFilesRemoved,
}
"""The class of each event by its name in event logs. Logs of earlier versions have the same names,
so a class may be renamed and a name here may not."""
EVENT_NAMES = {kind: name for name, kind in EVENT_KINDS.items()}
_EDIT_LINE, _SWEEP_LINE = (f'{{"event":"{name}"'.encode() for name in ("Edited", "SweepStarted"))
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in EVENT_KINDS.values()
}
# `json.dumps` with separators builds an encoder per call, which doubles its time.
_encode = json.JSONEncoder(
    separators=(",", ":"),
    default=lambda value: value.value if isinstance(value, enum.Enum) else dict(value),
).encode


class UnreadableLineError(ValueError):
    """Raised when a line of an event log is damaged, or no event of this version."""


def encode_event(event: Event, attempt: int | None = None) -> bytes:
    """Return the line of `event`, its texts cut and masked, with the trial's current attempt."""
    kind = type(event)
    fields: dict[str, object] = {"event": EVENT_NAMES[kind]}
    for name in _FIELDS[kind]:
        fields[name] = getattr(event, name)
    match event:
        case events.MetricsReported():
            fields["metrics"] = {key: float(value) for key, value in event.metrics.items()}
        case events.TrialTagged():
            fields |= redact_tag(event.name, event.text)
        case events.ValuesLogged():
            fields["params"] = redact_settings(event.params)
        case events.FailedOutcome():
            fields |= {"cause": fit_line(event.cause), "details": fit_text(event.details)}
        case events.InterruptedOutcome() | events.OutOfMemoryOutcome() | events.TooLargeOutcome():
            fields["cause"] = fit_line(event.cause)
        case events.SweepStarted():
            fields["settings"] = redact_settings(event.settings)
        case events.ExportTuned():
            fields["model"] = fit_line(event.model)
        case events.SweepEnded():
            fields["n_by_state"] = {state.value: n for state, n in event.n_by_state.items()}
    if attempt is not None:
        fields["attempt"] = attempt
    return seal_line(_encode(fields).encode("ascii")) + b"\n"


_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


def decode_event(line: bytes) -> Event:
    """Return the event of a line. Raises UnreadableLineError."""
    if is_line_damaged(line.rstrip(b"\n")):
        raise UnreadableLineError("it is not what its checksum was made of")
    try:
        fields = parse_json(line)
        name = fields["event"]
        event: Event = EVENT_KINDS[name](**_values(name, fields))
    except _UNREADABLE as error:
        raise UnreadableLineError(f"{type(error).__name__}: {error}") from error
    return event


def _values(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    readers = _readers(kind).items()
    values = {name: read(fields[name]) for name, read in readers if name in fields}
    if "cause" in values:  # earlier versions wrote texts of any length
        values["cause"] = cut_text(values["cause"], MAX_CAUSE_CHARACTERS)
    if "settings" in values:
        renamed = rename_settings(values["settings"])  # a value of today may be a list
        values["settings"] = {key: str(value) for key, value in renamed.items()}
    if "details" in values:
        values["details"] = cut_text_middle(values["details"], MAX_TEXT_CHARACTERS)
    return values


_Reader: TypeAlias = Callable[[Any], Any]


@functools.cache
def _readers(kind: str) -> Mapping[str, _Reader]:
    """Return for each field of a kind of event a function that reads its value from JSON.

    The function raises TypeError or ValueError for a value of another type, whichever program wrote
    it: making records relies on the types.
    """
    hints = get_type_hints(EVENT_KINDS[kind])
    return {name: _reader(hints[name]) for name in _FIELDS[EVENT_KINDS[kind]]}


def _reader(expected: Any) -> _Reader:
    origin, arguments = get_origin(expected), get_args(expected)
    if expected is float:
        return _number
    if origin is Mapping:
        read_value = _reader(arguments[1])
        if arguments[0] is str:
            return lambda values: {key: read_value(value) for key, value in values.items()}
        read_key = arguments[0]  # an integer or an enum, which JSON has as text
        return lambda values: {read_key(key): read_value(value) for key, value in values.items()}
    if origin is tuple:
        read = _reader(arguments[0])
        return lambda values: tuple(map(read, values))
    if origin is UnionType and len(arguments) > 2:  # a param
        return lambda value: value
    if origin is UnionType:
        read = _reader(arguments[0])
        return lambda value: None if value is None else read(value)
    if issubclass(expected, enum.Enum):
        return lambda value: expected(value)
    if issubclass(expected, tuple):
        readers = [*map(_reader, get_type_hints(expected).values())]
        return lambda values: expected(*(r(v) for r, v in zip(readers, values, strict=True)))
    return functools.partial(_instance, expected)


def _number(value: Any) -> float:
    return float(_instance((int, float), value))


def _instance(expected: type[Any] | tuple[type[Any], ...], value: Any) -> Any:
    if not isinstance(value, expected):
        raise TypeError(f"{value!r:.100} is no {expected}")
    return value


_OF_STUDY = events.SweepStarted | events.SweepEnded | StudyEdited
_FLUSHED_AT_ONCE = events.TrialOutcome | _OF_STUDY

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
                    path,
                    offset,
                    error,
                )
                continue
            yield event, offset


def read_edits(path: Path, *, since_sweep: bool = False) -> tuple[StudyEdited, ...]:
    """Return the edits of a study from its event log, without decoding its other lines.

    `since_sweep`: only those that came after the last sweep began, whose settings contain the
    others. Raises StorageError.
    """
    edits: dict[str, StudyEdited] = {}
    try:
        with suppress(FileNotFoundError), open(path, "rb", opener=nonblocking_opener) as file:
            for line in file:
                if since_sweep and line.startswith(_SWEEP_LINE):
                    edits.clear()
                if line.startswith(_EDIT_LINE) and line.endswith(b"\n"):
                    with suppress(UnreadableLineError):
                        edit = decode_event(line)
                        assert isinstance(edit, StudyEdited)
                        edits.setdefault(edit.id, edit)
    except OSError as error:
        raise StorageError(file_error_text(path, "read", error)) from error
    return tuple(edits.values())


def read_sweep_config(path: Path) -> str:
    """Return the text of `config.yaml` as the last sweep stored it, from the event log of a study;
    empty: the log has none. Raises StorageError."""
    found = ""
    try:
        with suppress(FileNotFoundError), open(path, "rb", opener=nonblocking_opener) as file:
            for line in file:
                if line.startswith(_SWEEP_LINE):
                    with suppress(UnreadableLineError):
                        found = getattr(decode_event(line), "config", "") or found
    except OSError as error:
        raise StorageError(file_error_text(path, "read", error)) from error
    return found


class EventLog:
    """The open event log of a study; appends events from any thread.

    Only the process that holds the study directory's lock may open it. After a failed write every
    later `append` raises StorageError.
    """

    def __init__(self, path: Path, file: AppendOnlyFile, builder: StudyRecordBuilder) -> None:
        self.record = builder.record()
        """The study as the log told it when it was opened, for taking trials over."""
        self._path = path
        self._file = file
        self._lock = threading.Lock()  # guards what follows, and keeps it equal to the file
        self._history, self._device_time = builder.history, builder.device_time
        self._started = {n for n, trial in self.record.trials.items() if trial.n_starts}

    @classmethod
    def open(cls, path: Path) -> EventLog:
        """Open or make the log; a torn last line is cut off and kept in a file beside it.

        Raises StudyInUseError when another process has it open, StorageError when the file cannot
        be opened, read or mended.
        """
        file, builder = AppendOnlyFile.open(path), StudyRecordBuilder()
        try:
            for event, _ in read_events(path):
                builder.take(event)
        except OSError as error:
            file.close()
            raise StorageError(file_error_text(path, "read", error)) from error
        return cls(path, file, builder)

    def append(self, event: Event) -> bool:
        """Write the part of `event` that the log lacks; return whether there was one.

        Metrics and tags that are logged already, and events of a trial that has ended, are not
        written again. The call returns when the line is with the kernel; for an outcome, and for
        the begin and end of a sweep, when it is on disk. Raises StorageError when the line cannot
        be written, and at every later call.
        """
        append_number = self._write(event)
        if append_number is None:
            return False
        if isinstance(event, _FLUSHED_AT_ONCE):
            self._file.flush(append_number)
        else:
            self._file.flush_soon()
        return True

    def append_all(self, many: Iterable[Event]) -> None:
        """Write many events as `append` writes each, and wait for the disk once, at their end."""
        numbers = [number for event in many if (number := self._write(event)) is not None]
        if numbers:
            self._file.flush(numbers[-1])

    def _write(self, event: Event) -> int | None:
        """Write the part of `event` that the log lacks. Return the number of the write for
        `flush`, or None where there was no such part."""
        line = self._line(event)
        with self._lock:
            self._file.check()  # before the history takes a step that the file will not have
            new = self._history.new_part(event)
            if new is None:
                return None
            if new is not event:
                line = self._line(new)
            append_number = self._file.append(line)
            self._device_time.take(new)
            if isinstance(new, events.TrialStarted):
                self._started.add(new.trial)
        return append_number

    def device_seconds(self, now_seconds: float) -> float:
        """Return the time in which devices had a trial to run, up to now (Unix seconds)."""
        with self._lock:
            return self._device_time.seconds(now_seconds)

    @property
    def n_started(self) -> int:
        """Number of trials that have begun."""
        return len(self._started)

    def outcome(self, trial: int) -> events.TrialOutcome | None:
        """Return how the last execution of the trial ended, as the log has it now; None: it does
        not. Raises StorageError."""
        found = None
        try:
            for event, _ in read_events(self._path):
                if isinstance(event, events.TrialOutcome) and event.trial == trial:
                    found = event
        except OSError as error:
            raise StorageError(file_error_text(self._path, "read", error)) from error
        return found

    def size_bytes(self) -> int:
        """Return the size of `events.log`."""
        return self._path.stat().st_size

    def attempt(self, trial: int) -> int:
        """Return the trial's current attempt number; 0: no other sweep can have the trial."""
        return 0

    def close(self) -> None:
        """Flush and close the file. Raises StorageError for a failure that no call has raised."""
        self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _line(self, event: Event) -> bytes:
        return encode_event(self._with_relative_path(event))

    def _with_relative_path(self, event: Event) -> Event:
        """Return `event` with a checkpoint's path relative to the study, which may move."""
        if not isinstance(event, events.CheckpointWritten):
            return event
        path, folder = Path(event.path), self._path.parent
        inside = path.is_relative_to(folder)
        return replace(event, path=str(path.relative_to(folder))) if inside else event
