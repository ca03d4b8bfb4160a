"""Keeps the runs that one trial's objective makes in MLflow, as the objective sees them. Pure.

The objective sees several runs, each with the names and steps that it gave. The sweep sees a single
run: the trial's. Where two runs log under one name, no value is lost: the steps of metrics are
counted on, and a param gets a name that begins with the run's.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from automl.record.texts import cut_text
from automl.tracking.view.run_update import MAX_PARAM_CHARACTERS, clean_key
from automl.trial import LoggedPoint, Params, ParamValue

MAX_HISTORY = 10_000
"""Number of the newest values kept of each metric of a run, for an objective that reads back."""
FIRST_RUN_PREFIX = "logged"
"""Prefix of a param of the first run whose name the trial has with another value."""


class ChangedParamError(ValueError):
    """Raised when a run logs a param again with another text, as in MLflow."""


class LoggedCall(NamedTuple):
    """Holds the values of one call that are passed on to the trial."""

    points: Sequence[LoggedPoint]
    params: Mapping[str, str]
    remarks: Sequence[str]
    """Remarks for the user, each to be shown once."""


@dataclass
class LoggedRun:
    """A run as MLflow shows it to the objective."""

    name: str
    label: str
    """Label that sets the run's params and files apart; empty for the first run of a trial."""
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
    """Data sets of the run, as MLflow's own objects."""

    def remember(self, point: LoggedPoint) -> None:
        """Keep a value so that the objective can read it back."""
        name = point.name
        if name not in self.history:
            self.history[name] = deque(maxlen=MAX_HISTORY)
        self.history[name].append(point)
        if name not in self.latest or _order(point) >= _order(self.latest[name]):
            self.latest[name] = point


class TrialRuns:
    """All runs of one execution of a trial. Use it from one thread at a time."""

    def __init__(self, trial_params: Params) -> None:
        self._trial_params = trial_params
        self._runs: dict[str, LoggedRun] = {}
        self._passed_steps: dict[str, set[int]] = {}
        """Steps of each metric that were passed on to the trial."""
        self._largest_steps: dict[str, int] = {}
        """Largest step of each metric that was passed on."""
        self._passed_params: dict[str, str] = {}
        """Params that were passed on to the trial, by their names there."""

    def __iter__(self) -> Iterator[LoggedRun]:
        return iter(self._runs.values())

    def get(self, run_id: str) -> LoggedRun | None:
        return self._runs.get(run_id)

    def begin(self, name: str | None, *, experiment_id: str, user: str, start_ms: int) -> LoggedRun:
        """Begin a new run; a run without a name gets its number as name."""
        number = len(self._runs) + 1
        label = "" if number == 1 else self._free_label(name or f"run-{number}")
        run = LoggedRun(name or f"run-{number}", label, experiment_id, user, start_ms)
        self._runs[run.id] = run
        return run

    def log(
        self, run: LoggedRun, points: Sequence[LoggedPoint], params: Mapping[str, str]
    ) -> LoggedCall:
        """Take the values that a call logs in a run; return those for the trial."""
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
        passed = dict(
            p for n, t in new.items() if (p := self._passed_param(run, n, t, remarks)) is not None
        )
        for point in points:
            run.remember(point)
        return LoggedCall([self._with_free_step(p, remarks) for p in points], passed, remarks)

    def _with_free_step(self, point: LoggedPoint, remarks: list[str]) -> LoggedPoint:
        """Return the point at a step that the metric lacks, as many objectives name none."""
        name, step = point.name, point.step
        steps = self._passed_steps.setdefault(name, set())
        if step in steps:
            step = self._largest_steps[name] + 1
            if point.step:
                remarks.append(
                    f"{clean_key(name)} is logged at a step more than once: its steps are counted "
                    "on, as all runs of a trial are one"
                )
        steps.add(step)
        self._largest_steps[name] = max(self._largest_steps.get(name, step), step)
        return point if step == point.step else point._replace(step=step)

    def _passed_param(
        self, run: LoggedRun, name: str, text: str, remarks: list[str]
    ) -> tuple[str, str] | None:
        """Return name and text for the trial's run; None if the run has them already."""
        own = name in self._trial_params
        if own and is_same_param(self._trial_params[name], text):
            return None
        if (
            not own
            and (known := self._passed_params.get(name)) is not None
            and is_same_param(known, text)
        ):
            return None
        key = name
        if own or name in self._passed_params:
            key = self._free_param_name(f"{run.label or FIRST_RUN_PREFIX}.{name}", text)
            what = "the trial has" if own else "another run of the trial has"
            remarks.append(f"param {name} is logged with another value than {what}, as {key}")
        if key in self._passed_params:
            return None
        self._passed_params[key] = text
        return key, cut_text(text, MAX_PARAM_CHARACTERS)

    def _free_param_name(self, key: str, text: str) -> str:
        number, free = 1, key
        while (
            free in self._trial_params or free in self._passed_params
        ) and self._passed_params.get(free) != text:
            number += 1
            free = f"{key}.{number}"
        return free

    def _free_label(self, name: str) -> str:
        name = clean_key(name).replace("/", "_")
        taken = {run.label for run in self}
        label, number = name, 1
        while label in taken:
            number += 1
            label = f"{name}-{number}"
        return label


def is_same_param(value: ParamValue, text: str) -> bool:
    """Return whether a logged text means the param's value: `0.010` is 0.01, `true` is True."""
    known = str(value)
    if known == text or (isinstance(value, bool) and known.lower() == text.lower()):
        return True
    if isinstance(value, bool):
        return False
    try:
        return float(known) == float(text)
    except ValueError:
        return False


def _order(point: LoggedPoint) -> tuple[float, ...]:
    """Return the key by which MLflow finds the latest value: step, then time, then value."""
    return point.step, point.time_ms, point.value
