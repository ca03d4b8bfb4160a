"""What a user's own training sees of automl: `TrialContext`, two exceptions and a decorator.

No torch here: a user's module imports this, and so may the parent process. What the context does
with reports and checkpoints is in `reports.py`; how an objective is found is in `user_code.py`, how
it is called in `function_call.py`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, SupportsIndex, TypeAlias, TypeVar

from automl.record.disk import flush_folder, make_folder
from automl.trial import Params, TrialSpec

CheckpointState: TypeAlias = Mapping[str, Any]
"""What a checkpoint holds: tensors, numbers, strings, None, and lists, tuples and dicts of them.
What else these can tell whole is stored, and comes back, as them: arrays as tensors, paths as
strings, dataclasses as dicts."""

Function = TypeVar("Function", bound=Callable[..., Any])
_DECLARED = "__automl_declared__"


class TrialStopped(BaseException):  # BaseException: `except Exception` in an objective lets it pass
    """The root of what `TrialContext.report` raises to end a trial early."""


class TrialPruned(TrialStopped):
    """Raised by `report` when other trials are better; an objective may raise it by itself.

    Optuna's exception of this name, raised by an objective, means the same.
    """


class TrialInterrupted(TrialStopped):
    """Raised by `report` when the sweep stops; the trial goes on from its checkpoint later."""


class MissingParamError(KeyError):
    """Raised when an objective looks up a param that the trial does not have."""

    def __init__(self, name: object, params: Mapping[str, object]) -> None:
        super().__init__(name)
        self.name = name
        self._given = ", ".join(params) or "none"

    def __str__(self) -> str:
        return f"{self.name!r} is not among the trial's params: {self._given}"


class UnfitObjectiveError(Exception):
    """Raised when what an objective does can be right in no trial of a sweep."""


class _TrialParams(dict[str, Any]):
    """The params of a trial: a dict that says which there are when asked for another."""

    def __missing__(self, name: str) -> Any:
        raise MissingParamError(name, self)


class ReportRecorder(Protocol):
    """What becomes of a trial's reports; see `reports.py`."""

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
    """One trial, as an objective sees it; for one thread.

    A trial's value is what the objective returns (a number, or `study.metric` of a dict of
    metrics), else the best value of `study.metric` among its reports.
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
        self.number: int = spec.number
        """The trial's number in its study, from 0."""
        self.params: dict[str, Any] = _TrialParams(spec.params)
        """The hyperparameters of this trial by name; those whose `when` is not met are absent."""
        self.device: str = devices[0]
        """Where to train: `cpu`, or `cuda:0`."""
        self.devices: tuple[str, ...] = devices
        """All devices of the trial, `device` the first; nearly always that one alone."""
        self.seed: int = seed
        """Below 2³², from the study's seed and the trial's number: seed everything from it."""
        self.surveying: bool = surveying
        """This is no training: the objective is called to see how much memory it will want. Nothing
        is computed on the device, and values read from there are made up."""
        self.refit: bool = refit
        """This is the final training of a study's winner (`refit`), with all devices that there
        are. On which rows, and how long, is for the objective to say."""
        self._directory = Path(spec.checkpoint_dir)
        self._record = record

    def with_params(self, params: Params) -> TrialContext:
        """The same trial, seen with other params."""
        seen = copy.copy(self)
        seen.params = _TrialParams(params)
        return seen

    @property
    def directory(self) -> Path:
        """A folder for files of this trial's own; `last.pt` and `best.pt` stand there too."""
        for folder in make_folder(self._directory):
            flush_folder(folder)
        return self._directory

    def restore(self) -> dict[str, Any] | None:
        """The state of the last checkpoint (tensors on the CPU) after an interruption, else None.

        Raises TrialPruned or TrialInterrupted where the trial need not go on.
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
        """Tell the metrics of one step (an epoch, say), and learn whether to go on.

        `step` is a whole number from 0 to 2**53. What is told of one step in several calls is one
        report; of a metric that is told twice the first value counts. `checkpoint` gives what is
        needed to go on; it is called only when a file is written or the step is the best so far.
        `best` gives what `best.pt` shall hold where that differs, and `scores` more metrics, which
        are told of the best so far alone, where its `best.pt` is written. A `last.pt` is written at
        most every `training.checkpoint_every_seconds`, and always at the end, on pruning and
        interruption.

        Raises TrialPruned or TrialInterrupted (after writing the checkpoint), and ValueError or
        TypeError for what is no step, no metric or no state.
        """
        self._record.report(step, metrics, checkpoint, best, scores)

    def set_tag(self, name: str, value: object) -> None:
        """Note something about the trial, as text: a tag of its run in MLflow. Credentials are
        masked. A later value of the same name replaces it, and it stays after an interruption.

        Raises ValueError for a name that is taken (`automl.`, `mlflow.`), too long a name or value,
        and more than 100 names.
        """
        self._record.set_tag(name, value)


@dataclass(frozen=True)
class ObjectiveArguments:
    """What `@objective` was told; None: nothing."""

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

    `params` must be in the space, `optional` ones may be, others are refused; `metrics` are those
    it reports, of which `study.metric` must be one. What is left out is not checked.
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
    """What the function's decorator declared; nothing where it has none."""
    declared = getattr(function, _DECLARED, ObjectiveArguments())
    assert isinstance(declared, ObjectiveArguments)
    return declared
