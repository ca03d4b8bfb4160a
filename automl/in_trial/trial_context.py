"""The API for a user's own training: `TrialContext`, its exceptions and `@objective`.

It imports no torch, because a user's module and the parent process import it. Reports and
checkpoints are kept in `reports/trial_reports.py`; an objective is found in `user_code.py` and
called in `function_call.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar

from automl.errors import AutoMLError
from automl.record.disk import flush_folder, make_folder, storage_errors
from automl.trial import Params, TrialSpec

CheckpointState: TypeAlias = Mapping[str, Any]
"""The state that a checkpoint holds: tensors, numbers, strings, None, and lists, tuples and dicts
of these. Arrays are stored and come back as tensors, paths as strings, dataclasses as dicts."""

Function = TypeVar("Function", bound=Callable[..., Any])
_DECLARED = "__automl_declared__"


class TrialStopped(BaseException):  # BaseException: `except Exception` in an objective lets it pass
    """Root of the exceptions that `TrialContext.report` raises to end a trial early."""


class TrialPruned(TrialStopped):
    """Raised by `report` when other trials are better. An objective may raise it itself, too.

    Optuna's exception of this name has the same meaning when an objective raises it.
    """


class TrialInterrupted(TrialStopped):
    """Raised by `report` when the sweep stops. The trial continues from its checkpoint later."""


class MissingParamError(KeyError):
    """Raised when an objective looks up a param that the trial does not have."""

    def __init__(self, name: object, params: Mapping[str, object]) -> None:
        super().__init__(name)
        self.name = name
        self._known = ", ".join(params) or "none"

    def __str__(self) -> str:
        return f"{self.name!r} is not among the trial's params: {self._known}"


class NoRunningTrialError(AutoMLError):
    """Raised by `automl.report` where no trial runs."""


class UnfitObjectiveError(Exception):
    """Raised when an objective does something that is wrong in every trial of a sweep."""


class _TrialParams(dict[str, Any]):
    """The params of a trial: a dict whose error for a missing key lists the keys that exist."""

    def __missing__(self, name: str) -> Any:
        raise MissingParamError(name, self)


class ReportRecorder(Protocol):
    """Receives the reports and tags of a `TrialContext`; `TrialReports` implements it."""

    @property
    def last_step(self) -> int | None:
        """The step that was reported last; None: there is none."""

    def restore(self) -> dict[str, Any] | None: ...

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: Callable[[], CheckpointState] | None,
        get_best: Callable[[], CheckpointState] | None,
        get_scores: Callable[[], Mapping[str, float]] | None = None,
    ) -> None: ...

    def set_tag(self, name: str, value: object) -> None: ...


class TrialContext:
    """One trial as an objective sees it, for use in one thread.

    The trial's value is the number that the objective returns, or `study.metric` in a dict of
    metrics that it returns. If it returns None, the value is the best reported `study.metric`.
    """

    def __init__(
        self,
        spec: TrialSpec,
        *,
        devices: tuple[str, ...],
        seed: int,
        record: ReportRecorder,
        surveying: bool = False,
        refit: bool = False,
    ) -> None:
        self.number: int = spec.trial
        """The trial's number in its study, from 0."""
        self.params: dict[str, Any] = _TrialParams(spec.params)
        """The hyperparameters of this trial by name; a param whose `when` is not met is absent."""
        self.device: str = devices[0]
        """The device to train on: `cpu`, or `cuda:0`."""
        self.devices: tuple[str, ...] = devices
        """All devices of the trial, `device` first; nearly always `device` is the only one."""
        self.seed: int = seed
        """A number below 2³², made from the study's seed and the trial's number. Seed every random
        generator from it."""
        self.surveying: bool = surveying
        """The call is no training but measures how much memory the objective will need. Nothing is
        computed on the device, and values read from there are made up."""
        self.refit: bool = refit
        """The call is the final training of a study's winner (`refit`), with all available devices.
        The objective decides on which rows it trains, and for how long."""
        self._directory = Path(spec.checkpoint_dir)
        self._record = record

    def with_params(self, params: Params) -> TrialContext:
        """Return the same trial with other params."""
        other = copy.copy(self)
        other.params = _TrialParams(params)
        return other

    @property
    def directory(self) -> Path:
        """The folder for this trial's own files, which also holds `last.pt` and `best.pt`.

        Raises StorageError, at which the sweep stops, if it cannot be made.
        """
        with storage_errors(self._directory, "the trial's folder could not be made"):
            for folder in make_folder(self._directory):
                flush_folder(folder)
        return self._directory

    def restore(self) -> dict[str, Any] | None:
        """Return the state of the last checkpoint (tensors on the CPU) after an interruption.

        Returns None if there is no checkpoint. Raises TrialPruned or TrialInterrupted if the trial
        need not continue.
        """
        return self._record.restore()

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        checkpoint: Callable[[], CheckpointState] | None = None,
        best: Callable[[], CheckpointState] | None = None,
        scores: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Report the metrics of one step (an epoch, say), and learn whether to continue.

        `step` is a whole number from 0 to 2**53. Several calls for one step make one report; if a
        metric is reported twice for a step, the first value counts. `checkpoint` returns the state
        to continue from. It is called only when a file is written or the step is the best so far.
        `best` returns the content of `best.pt`, if that differs. `scores` returns more metrics of
        the best step so far; it is called only when `best.pt` is written. `last.pt` is written at
        most every `training.checkpoint_every_seconds`, and always at the end, on pruning and on
        interruption.

        Raises TrialPruned or TrialInterrupted (after writing the checkpoint), and ValueError or
        TypeError for an invalid step, metric or state.
        """
        self._record.report(step, metrics, checkpoint, best, scores)

    def set_tag(self, name: str, value: object) -> None:
        """Record a text about the trial, as a tag of its run in MLflow. Credentials are masked.

        A later value of the same name replaces it, and it survives an interruption. Raises
        ValueError for a reserved name (`automl.…`, `mlflow.…`), a name or value that is too long,
        and more than 100 names.
        """
        self._record.set_tag(name, value)


_running_trial: ContextVar[TrialContext | None] = ContextVar("running_trial", default=None)


@contextmanager
def running_trial(trial: TrialContext) -> Iterator[None]:
    """Have `report` mean the trial, in this thread, while the block runs."""
    token = _running_trial.set(trial)
    try:
        yield
    finally:
        _running_trial.reset(token)


def report(
    metrics: Mapping[str, float],
    step: SupportsIndex | None = None,
    checkpoint: Callable[[], CheckpointState] | None = None,
    best: Callable[[], CheckpointState] | None = None,
    scores: Callable[[], Mapping[str, float]] | None = None,
) -> None:
    """Report metrics of the trial that runs in this thread, as `TrialContext.report` does.

    For code that is not given the trial. Without `step` the report is of the step after the last
    one. Raises NoRunningTrialError where no trial runs.
    """
    trial = _running_trial.get()
    if trial is None:
        raise NoRunningTrialError(
            "automl.report: no trial runs in this thread. A sweep calls the function that trains "
            "(automl train=FILE.py:FUNCTION, or automl.sweep(FUNCTION, …)), and reports belong "
            "there; to another thread or process give the trial itself, and call trial.report. "
            "A program prints its metrics: val_loss: 0.3."
        )
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"automl.report({metrics!r}, …): the metrics come first, as a dict, and then the step: "
            'automl.report({"val_loss": 0.3}, 7).'
        )
    last = trial._record.last_step
    following = 0 if last is None else last + 1
    trial.report(following if step is None else step, metrics, checkpoint, best, scores)


@dataclass(frozen=True)
class ObjectiveArguments:
    """The arguments of the `@objective` decorator; None: not declared."""

    params: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()
    metrics: tuple[str, ...] | None = None


def objective(
    *,
    params: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    optional: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """Declare what an objective takes, so that a wrong space is refused before the first trial.

    The space must have all `params`, may have the `optional` ones, and no others. `metrics` are the
    metrics that the objective reports; `study.metric` must be one of them. An argument that is left
    out is not checked.
    """
    if isinstance(params, str) or isinstance(metrics, str) or isinstance(optional, str):
        raise TypeError("@automl.objective takes lists of names, such as params=['lr', 'depth'].")
    declared = ObjectiveArguments(
        params=None if params is None else tuple(params),
        optional=tuple(optional),
        metrics=None if metrics is None else tuple(metrics),
    )

    def declare(function: Function) -> Function:
        setattr(function, _DECLARED, declared)
        return function

    return declare


def declared_arguments(function: Callable[..., Any]) -> ObjectiveArguments:
    """Return what the function's decorator declared; all is None or empty without a decorator."""
    declared = getattr(function, _DECLARED, ObjectiveArguments())
    assert isinstance(declared, ObjectiveArguments)
    return declared
