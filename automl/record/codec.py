"""An event as a line of JSON and back. The line says its kind in `event`, then its fields by name,
and last its checksum.

Floats go through `json` as Python writes them: `NaN` and `Infinity` are read back as such. A field
that a newer version added is ignored, one that it left out takes its default.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from types import NoneType
from typing import Any

from automl.record.redact import redact_settings, redact_tag
from automl.record.sealed import is_damaged, seal
from automl.record.texts import (
    MAX_CAUSE_CHARACTERS,
    MAX_TEXT_CHARACTERS,
    cut,
    cut_middle,
    fit,
    fit_line,
)
from automl.trial import (
    Checkpointed,
    CheckpointKind,
    DeviceKind,
    Difference,
    Ensembled,
    Evaluated,
    Event,
    Failed,
    Finished,
    Interrupted,
    Interval,
    Logged,
    LoggedPoint,
    MemoryPeak,
    OutOfMemory,
    Paced,
    Pruned,
    Reported,
    RequestSource,
    RowsKind,
    Started,
    Suggested,
    SweepEnded,
    SweepStarted,
    Tagged,
    TooLarge,
    TrialState,
    Tuned,
)

_KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        *(Started, Suggested, Reported, Tagged, Logged, Checkpointed, MemoryPeak),
        *(Finished, Pruned, TooLarge, Interrupted, Failed, OutOfMemory),
        *(SweepStarted, SweepEnded, Paced, Evaluated, Ensembled, Tuned),
    )
}
_FIELDS = {
    kind: tuple(field.name for field in dataclasses.fields(kind)) for kind in _KINDS.values()
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
"""What each field is, whoever wrote it: what is folded from events relies on it."""
_TYPED = {
    kind: tuple((name, _TYPES[name]) for name in names if name in _TYPES)
    for kind, names in _FIELDS.items()
}
# `json.dumps` with separators builds an encoder per call, which doubles its time.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class UnreadableLineError(ValueError):
    """Raised when a line of an event log is damaged, or no event of this version."""


def encode(event: Event, attempt: int | None = None) -> bytes:
    """The line of `event`, newline included, in ASCII; its texts are cut and masked.

    `attempt` is the trial's, in a study that several sweeps may work on.
    """
    kind = type(event)
    fields: dict[str, object] = {"event": kind.__name__}
    for name in _FIELDS[kind]:
        fields[name] = getattr(event, name)
    match event:
        case Reported():
            fields["metrics"] = {key: float(value) for key, value in event.metrics.items()}
        case Tagged():
            fields |= redact_tag(event.name, event.text)
        case Logged():
            fields["params"] = redact_settings(event.params)
        case Started() | Suggested():
            fields["params"] = dict(event.params)
        case Checkpointed():
            fields["kind"] = event.kind.value
        case MemoryPeak():
            fields["source"] = None if event.source is None else event.source.value
        case Failed():
            fields |= {"cause": fit_line(event.cause), "details": fit(event.details)}
        case Interrupted() | OutOfMemory() | TooLarge():
            fields["cause"] = fit_line(event.cause)
        case SweepStarted():
            fields["settings"] = redact_settings(event.settings)
        case Tuned():
            fields["model"] = fit_line(event.model)
        case Paced() | Evaluated():
            fields["kind"] = event.kind.value
        case SweepEnded():
            fields["n_by_state"] = {state.value: n for state, n in event.n_by_state.items()}
    if attempt is not None:
        fields["attempt"] = attempt
    return seal(_encode(fields).encode("ascii")) + b"\n"


def decode(line: bytes) -> Event:
    """The event of a line. Raises UnreadableLineError."""
    if is_damaged(line.rstrip(b"\n")):
        raise UnreadableLineError("it is not what its checksum was made of")
    try:
        fields = json.loads(line)
        kind = _KINDS[fields["event"]]
        event: Event = kind(**_values(kind, fields))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadableLineError(f"{type(error).__name__}: {error}") from error
    return event


def _values(kind: type[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    values = {name: fields[name] for name in _FIELDS[kind] if name in fields}
    for name, wanted in _TYPED[kind]:
        if name in values and not isinstance(values[name], wanted):
            raise TypeError(f"{name} is a {type(values[name]).__name__}")
    if "cause" in values:  # earlier versions wrote them of any length
        values["cause"] = cut(values["cause"], MAX_CAUSE_CHARACTERS)
    if "details" in values:
        values["details"] = cut_middle(values["details"], MAX_TEXT_CHARACTERS)
    if kind is Reported:
        values["metrics"] = {name: float(value) for name, value in values["metrics"].items()}
    elif kind is Logged:
        values["points"] = tuple(LoggedPoint(*point) for point in values.get("points", ()))
        _check_logged(values["points"], values.get("params", {}))
    elif kind is Checkpointed:
        values |= {"kind": CheckpointKind(values["kind"]), "path": str(values["path"])}
    elif kind is MemoryPeak:
        if values.get("source") is not None:
            values["source"] = RequestSource(values["source"])
        values["on_each_bytes"] = tuple(map(int, values.get("on_each_bytes", ())))
    elif kind is Paced:
        values["kind"] = DeviceKind(values["kind"])
    elif kind is Evaluated:
        differences = values.get("differences", {}).items()
        values |= {
            "kind": RowsKind(values["kind"]),
            "trials": tuple(map(int, values["trials"])),
            "scores": {name: _scores(of) for name, of in values["scores"].items()},
            "differences": {name: _differences(of) for name, of in differences},
        }
    elif kind is Tuned:
        values["figures"] = {
            name: {figure: float(value) for figure, value in of.items()}
            for name, of in values["figures"].items()
        }
    elif kind is Ensembled:
        values |= {
            "members": {int(n): float(weight) for n, weight in values["members"].items()},
            "scores": {name: float(value) for name, value in values["scores"].items()},
            "rows_per_second": {
                int(n): float(speed) for n, speed in values.get("rows_per_second", {}).items()
            },
            "alone": {
                int(n): {name: float(value) for name, value in of.items()}
                for n, of in values.get("alone", {}).items()
            },
        }
    elif kind is SweepEnded:
        n_by_state = values["n_by_state"].items()
        values["n_by_state"] = {TrialState(state): n for state, n in n_by_state}
    return values


def _scores(metrics: Mapping[str, Any]) -> dict[str, Interval]:
    return {name: Interval(*map(float, three)) for name, three in metrics.items()}


def _differences(metrics: Mapping[str, Any]) -> dict[str, Difference]:
    return {
        name: Difference(float(value), float(low), float(high), str(verdict))
        for name, (value, low, high, verdict) in metrics.items()
    }


def _check_logged(points: Iterable[LoggedPoint], params: Mapping[str, Any]) -> None:
    """Raises TypeError for what is none: whoever wrote it."""
    for point in points:
        numbers = isinstance(point.value, int | float) and isinstance(point.step, int)
        if not (isinstance(point.name, str) and numbers and isinstance(point.time_ms, int)):
            raise TypeError(f"{point} is no value of a metric")
    if not all(isinstance(text, str) for text in params.values()):
        raise TypeError("a param that was logged is text")
