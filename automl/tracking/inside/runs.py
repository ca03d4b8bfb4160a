"""The runs that one trial's objective makes in MLflow, as the objective sees them. Pure.

To the objective each is a run of its own, with the names and steps that it gave. To the sweep they
are all one: the trial's. What two of them say of one name is told apart here, so that no value is
lost: metrics are counted on, params get a name of the run's.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from automl.record.texts import cut
from automl.tracking.view.run_update import MAX_PARAM_CHARACTERS, clean_key
from automl.trial import LoggedPoint, Params, ParamValue

MAX_HISTORY = 10_000
"""Of one metric of a run, the newest: what an objective that reads back is answered from."""
OTHER = "logged"
"""Before a param's name that the trial has otherwise, in the first of its runs."""


class ChangedParamError(ValueError):
    """Raised when a run logs a param again, as another text: MLflow refuses that, too."""


class LoggedCall(NamedTuple):
    """What the trial is told of one call."""

    points: Sequence[LoggedPoint]
    params: Mapping[str, str]
    remarks: Sequence[str]
    """For people, once each."""


@dataclass
class LoggedRun:
    """A run as MLflow shows it to the objective."""

    name: str
    label: str
    """What its params and files are told apart by; empty: the first of its trial."""
    experiment_id: str
    user: str
    start_ms: int
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    status: str = "RUNNING"
    end_ms: int | None = None
    deleted: bool = False
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    history: dict[str, deque[LoggedPoint]] = field(default_factory=dict)
    latest: dict[str, LoggedPoint] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)
    """Data sets, as the library has them."""

    def take(self, point: LoggedPoint) -> None:
        """Remember a value, to be read back."""
        name = point.name
        if name not in self.history:
            self.history[name] = deque(maxlen=MAX_HISTORY)
        self.history[name].append(point)
        if name not in self.latest or _age(point) >= _age(self.latest[name]):
            self.latest[name] = point


class TrialRuns:
    """All runs of one execution of a trial. Not for several threads at once."""

    def __init__(self, own: Params) -> None:
        self._own = own
        self._runs: dict[str, LoggedRun] = {}
        self._steps: dict[str, set[int]] = {}
        """Of each metric, those that were told, and the largest:"""
        self._last: dict[str, int] = {}
        self._params: dict[str, str] = {}
        """Those that were told."""

    def __iter__(self) -> Iterator[LoggedRun]:
        return iter(self._runs.values())

    def get(self, run_id: str) -> LoggedRun | None:
        return self._runs.get(run_id)

    def begin(self, name: str | None, *, experiment_id: str, user: str, start_ms: int) -> LoggedRun:
        """A new run; one without a name gets its number."""
        number = len(self._runs) + 1
        label = "" if number == 1 else self._label(name or f"run-{number}")
        run = LoggedRun(name or f"run-{number}", label, experiment_id, user, start_ms)
        self._runs[run.id] = run
        return run

    def log(
        self, run: LoggedRun, points: Sequence[LoggedPoint], params: Mapping[str, str]
    ) -> LoggedCall:
        """Take what a call logs in a run. Raises ChangedParamError before anything is taken."""
        for name, text in params.items():
            if run.params.get(name, text) != text:
                raise ChangedParamError(
                    f"Changing param values is not allowed. Param with key='{name}' was already "
                    f"logged with value='{run.params[name][:200]}'. Attempted logging new value "
                    f"'{text[:200]}'."
                )
        remarks: list[str] = []
        new = {n: t for n, t in params.items() if n not in run.params}
        run.params.update(new)
        told = dict(p for n, t in new.items() if (p := self._param(run, n, t, remarks)) is not None)
        for point in points:
            run.take(point)
        return LoggedCall([self._counted(p, remarks) for p in points], told, remarks)

    def _counted(self, point: LoggedPoint, remarks: list[str]) -> LoggedPoint:
        """At a step that the metric has not yet: without one MLflow says 0 each time."""
        name, step = point.name, point.step
        steps = self._steps.setdefault(name, set())
        if step in steps:
            step = self._last[name] + 1
            if point.step:
                remarks.append(
                    f"{clean_key(name)} is logged at a step more than once: its steps are counted "
                    "on, as all runs of a trial are one"
                )
        steps.add(step)
        self._last[name] = max(self._last.get(name, step), step)
        return point if step == point.step else point._replace(step=step)

    def _param(
        self, run: LoggedRun, name: str, text: str, remarks: list[str]
    ) -> tuple[str, str] | None:
        """Name and text for the trial's run; None: it has them."""
        own = name in self._own
        if own and is_same_param(self._own[name], text):
            return None
        if not own and (known := self._params.get(name)) is not None and is_same_param(known, text):
            return None
        key = name
        if own or name in self._params:
            key = self._other_name(f"{run.label or OTHER}.{name}", text)
            what = "the trial has" if own else "another run of the trial has"
            remarks.append(f"param {name} is logged with another value than {what}, as {key}")
        if key in self._params:
            return None
        self._params[key] = text
        return key, cut(text, MAX_PARAM_CHARACTERS)

    def _other_name(self, key: str, text: str) -> str:
        number, free = 1, key
        while (free in self._own or free in self._params) and self._params.get(free) != text:
            number += 1
            free = f"{key}.{number}"
        return free

    def _label(self, name: str) -> str:
        name = clean_key(name).replace("/", "_")
        taken = {run.label for run in self}
        label, number = name, 1
        while label in taken:
            number += 1
            label = f"{name}-{number}"
        return label


def is_same_param(value: ParamValue, text: str) -> bool:
    """Whether a param is logged as it is: `0.010` is 0.01, `true` is True."""
    known = str(value)
    if known == text or (isinstance(value, bool) and known.lower() == text.lower()):
        return True
    if isinstance(value, bool):
        return False
    try:
        return float(known) == float(text)
    except ValueError:
        return False


def _age(point: LoggedPoint) -> tuple[float, ...]:
    """MLflow's order of what is the latest value: by step, then time, then value."""
    return point.step, point.time_ms, point.value
