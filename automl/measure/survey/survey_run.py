"""Calls an objective once on a pretended GPU, to find the memory that it needs.

`survey` is the work of a process of its own, which `automl.execution.child_calls.call_confined`
starts, because a survey changes torch. The fork server loads this module: the parts of torch that a
survey needs take 1.4 s to load, which each survey would else spend anew. Data loaders are shortened
to the first batches, the largest and the last, read in this process.
"""

from __future__ import annotations

import copy
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, SupportsIndex

import torch
import torch._dynamo
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _DatasetKind, _SingleProcessDataLoaderIter

from automl.in_trial.reports import step_counter
from automl.in_trial.reports.report_values import parse_metric_value
from automl.in_trial.seeds import trial_seed
from automl.in_trial.trial_context import CheckpointState, TrialContext, TrialStopped
from automl.measure.survey.allocator import DeviceStorages, storage_bytes
from automl.measure.survey.pretence import pretend_one_gpu, replace_attribute
from automl.measure.survey.redirect import CudaRedirect
from automl.measure.survey.survey_result import (
    InconclusiveSurvey,
    SurveyEndReason,
    SurveyOverError,
    SurveyResult,
)
from automl.measure.survey.tracker import DeviceMemoryTracker, KnownValues
from automl.objectives.training_plan import SurveySetup
from automl.objectives.training_session import open_objective
from automl.record.texts import fit_line
from automl.trial import TrialSpec

N_STEPS = 3
"""The steps that a survey must see. The first makes the optimizer's state, the second trains beside
that state, and the third repeats the second."""
_N_PASSES = 3
"""The passes over the training data that are enough for an objective without reports."""


@dataclass
class _SteppedOptimizer:
    """The name of an optimizer, and the number of steps that its parameters took."""

    name: str
    n_steps: int = 0


class SurveyProgress:
    """Counts optimizer steps, reports and passes over data."""

    def __init__(self, metric: str) -> None:
        self.n_steps = 0
        self.n_reports = 0
        self._metric = metric
        self._n_evaluations = 0
        self._living: weakref.WeakKeyDictionary[Any, _SteppedOptimizer] = (
            weakref.WeakKeyDictionary()
        )
        self._all: list[_SteppedOptimizer] = []
        """All optimizers, deleted ones included."""
        self._n_passes = self._n_steps_at_pass = 0

    def add_optimizer(self, optimizer: Any) -> None:
        """Count the steps of a new optimizer from now on."""
        self._living[optimizer] = _SteppedOptimizer(type(optimizer).__name__)
        self._all.append(self._living[optimizer])

    def count_step(self, optimizer: Any) -> None:
        """Count a step for all optimizers that share parameters: some optimizers step others."""
        self.n_steps += 1
        own = {id(p) for p in parameters_of(optimizer)}
        for other, counted in self._living.items():
            counted.n_steps += any(id(p) in own for p in parameters_of(other))

    @property
    def parameters(self) -> list[Any]:
        """The parameters that all optimizers train."""
        return [p for optimizer in self._living for p in parameters_of(optimizer)]

    def count_report(self, metrics: Mapping[str, object]) -> bool:
        """Count a report, and return whether the survey may end with it.

        A report of the study's metric means that an epoch with its validation is over.
        """
        self.n_reports += 1
        if self._metric not in metrics:
            return False
        if not self._all and not self.n_steps:  # a loop without torch's optimizers
            return self.n_reports >= N_STEPS
        return self.has_enough_steps

    def count_evaluation(self) -> None:
        """Count a call of a module without gradients, which is nearly always the validation."""
        self._n_evaluations += 1

    def count_pass(self) -> bool:
        """Count a pass over data, and return whether the survey may end before it.

        An objective that only returns its value would else train to its end.
        """
        self._n_passes += self.n_steps > self._n_steps_at_pass
        self._n_steps_at_pass = self.n_steps
        return self.has_enough_steps and self._n_passes >= _N_PASSES and self._n_evaluations > 0

    @property
    def waits_for_steps(self) -> bool:
        """Whether steps of an optimizer of torch's are still to come."""
        return bool(self._all) and not self.has_enough_steps

    @property
    def has_enough_steps(self) -> bool:
        """Whether all needed steps of every optimizer were seen."""
        return self.n_steps >= N_STEPS and self.idle_optimizer is None

    @property
    def idle_optimizer(self) -> str | None:
        """The name of an optimizer with fewer than two steps, whose state may not exist yet."""
        return next((counted.name for counted in self._all if counted.n_steps < 2), None)


def parameters_of(optimizer: Any) -> list[Any]:
    return [p for group in optimizer.param_groups for p in group["params"]]


_N_FIRST = 2
_MAX_BATCHES = 64
"""The most batches until enough steps are taken: gradients may accumulate over many batches."""
_MAX_INDICES = 2**16
"""The most batches searched for the largest and the last; a sampler may have no end."""


def make_short_iter(
    progress: SurveyProgress, end: Callable[[], None]
) -> Callable[[DataLoader[Any]], Iterator[Any]]:
    """Return the `DataLoader.__iter__` of a surveyed objective.

    It calls `end`, which raises, if the survey has seen enough.
    """

    def iterate(loader: DataLoader[Any]) -> Iterator[Any]:
        if progress.count_pass():
            end()
        batches = _in_process_iter(loader)
        indices = batches._sampler_iter
        if loader._dataset_kind == _DatasetKind.Iterable:
            batches._sampler_iter = islice(indices, _N_FIRST + 1)
        else:
            batches._sampler_iter = _shorten(indices, progress)
        return batches

    return iterate


def _in_process_iter(loader: DataLoader[Any]) -> _SingleProcessDataLoaderIter:
    """Return an iterator that loads in this process: few batches are not worth starting workers."""
    without_workers = copy.copy(loader)
    for name, value in (("num_workers", 0), ("timeout", 0), ("pin_memory", False)):
        object.__setattr__(without_workers, name, value)
    return _SingleProcessDataLoaderIter(without_workers)


def _shorten(indices: Iterable[Any], progress: SurveyProgress) -> Iterator[Any]:
    """Yield the first batches, more while steps are missing; then the largest and the last."""
    rest = iter(indices)
    for n, batch in enumerate(rest, start=1):
        yield batch
        if n >= _N_FIRST and not (progress.waits_for_steps and n < _MAX_BATCHES):
            break
    largest: list[Any] = []
    last: deque[Any] = deque(maxlen=1)
    for batch in islice(rest, _MAX_INDICES):
        last.append(batch)
        if not largest or _n_rows(batch) > _n_rows(largest[0]):
            largest = [batch]
    if largest and _n_rows(largest[0]) > _n_rows(last[0]):
        yield largest[0]
    yield from last


def _n_rows(batch: Any) -> int:
    return len(batch) if isinstance(batch, list | tuple) else 1


DEVICE = "cuda:0"


def survey_objective(
    objective: Callable[[TrialContext], object],
    spec: TrialSpec,
    metric: str,
    *,
    refit: bool = False,
) -> SurveyResult | InconclusiveSurvey:
    """Return the memory that the trial needs of a GPU. No error of the objective is raised.

    Unknown booleans are assumed to be false. If the objective then raises (it may assert that
    something holds), it is called again with unknown booleans true.
    """
    first = _SurveyAttempt(metric, truth=False).run(objective, spec, refit=refit)
    if isinstance(first, InconclusiveSurvey):
        second = _SurveyAttempt(metric, truth=True).run(objective, spec, refit=refit)
        return second if isinstance(second, SurveyResult) else first
    return first


class _SurveyAttempt:
    """One call of the objective, with the memory, progress and doubts that it caused."""

    def __init__(self, metric: str, *, truth: bool) -> None:
        self.progress = SurveyProgress(metric)
        self.storages = DeviceStorages()
        self._doubts: list[str] = []
        self.tracker = DeviceMemoryTracker(self.storages, KnownValues(truth), self._doubts.append)
        self._weights_bytes = 0
        self._lbfgs_history: list[torch.Tensor] = []

    def run(
        self, objective: Callable[[TrialContext], object], spec: TrialSpec, *, refit: bool
    ) -> SurveyResult | InconclusiveSurvey:
        trial = TrialContext(
            spec,
            devices=(DEVICE,),
            seed=trial_seed(spec.study_seed, spec.number),
            record=_SurveyRecorder(self),
            surveying=True,
            refit=refit,
        )
        try:
            with self._watching():
                objective(trial)
        except SurveyOverError:
            pass  # `end` has set the reason
        except TrialStopped:
            self._ended = SurveyEndReason.RETURNED
        except BaseException as error:  # noqa: BLE001  SystemExit included
            return InconclusiveSurvey(fit_line(f"{type(error).__name__}: {error}", 300))
        return self._result()

    _ended = SurveyEndReason.RETURNED

    def end(self, ended: SurveyEndReason) -> None:
        """End the survey because it has seen enough. Raises SurveyOverError."""
        self._ended, self.tracker.is_over = ended, True
        raise SurveyOverError

    def _result(self) -> SurveyResult | InconclusiveSurvey:
        """Return the memory that was seen, or the reason why some may have been missed."""
        memory = self.storages.memory
        if self._doubts:
            return InconclusiveSurvey(self._doubts[0])
        if not memory.peak_allocated_bytes:
            return InconclusiveSurvey("it put nothing on the GPU")
        if (idle := self.progress.idle_optimizer) is not None:
            return InconclusiveSurvey(f"the optimizer {idle} was seen to take fewer than two steps")
        return SurveyResult(
            weights_bytes=self._weights_bytes,
            allocated_bytes=memory.peak_allocated_bytes,
            reserved_bytes=memory.peak_reserved_bytes,
            n_steps=self.progress.n_steps,
            ended=self._ended,
        )

    @contextmanager
    def _watching(self) -> Iterator[None]:
        init = torch.optim.Optimizer.__init__

        def init_and_count(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self.progress.add_optimizer(optimizer)

        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # the real training shows them
            stack.enter_context(pretend_one_gpu(self.tracker))
            stack.enter_context(
                replace_attribute(torch.optim.Optimizer, "__init__", init_and_count)
            )
            stack.enter_context(
                replace_attribute(
                    DataLoader,
                    "__iter__",
                    make_short_iter(self.progress, partial(self.end, SurveyEndReason.PASSED)),
                )
            )
            stack.enter_context(step_counter.listen_to_steps(self._on_trainer_step))
            for hook in (
                register_optimizer_step_post_hook(self._on_optimizer_step),
                register_module_forward_pre_hook(self._on_module_call),
            ):
                stack.callback(hook.remove)
            stack.enter_context(CudaRedirect(self.tracker))
            stack.enter_context(self.tracker)
            yield

    def _on_optimizer_step(self, optimizer: Any, args: object, kwargs: object) -> None:
        self.progress.count_step(optimizer)
        if self.progress.n_steps <= 3:
            self._weights_bytes = max(self._weights_bytes, storage_bytes(self.progress.parameters))
        if isinstance(optimizer, torch.optim.LBFGS) and not self._lbfgs_history:
            self._hold_history(optimizer)

    def _hold_history(self, optimizer: torch.optim.LBFGS) -> None:
        """Allocate the full history of LBFGS; whether it keeps a direction depends on values."""
        n = sum(p.numel() for p in self.progress.parameters)
        n_pairs = optimizer.param_groups[0]["history_size"] - 1  # the newest is there already
        example = self.progress.parameters[0].detach()
        self._lbfgs_history = [example.new_empty(n) for _ in range(2 * n_pairs)]

    def _on_trainer_step(self, weights: torch.Tensor) -> bool:
        self.progress.n_steps += 1
        self._weights_bytes = max(self._weights_bytes, storage_bytes([weights]))
        return self.progress.has_enough_steps

    def _on_module_call(self, module: object, args: object) -> None:
        if not torch.is_grad_enabled():
            self.progress.count_evaluation()


class _SurveyRecorder:
    """A `ReportRecorder` of a survey, which discards reports and tags."""

    last_step: int | None = None
    """Not kept: a survey does not look at steps."""

    def __init__(self, attempt: _SurveyAttempt) -> None:
        self._attempt = attempt

    def restore(self) -> None:
        return None

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: Callable[[], CheckpointState] | None,
        get_best: Callable[[], CheckpointState] | None,
        get_scores: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Call for the states, which may take memory, and end the survey if it saw enough."""
        for name, value in metrics.items():
            parse_metric_value(name, value)
        for get in (get_checkpoint, get_best):
            if get is not None:
                get()
        if self._attempt.progress.count_report(metrics):
            self._attempt.end(SurveyEndReason.REPORTED)

    def set_tag(self, name: str, value: object) -> None:
        """Discard the tag, which is no part of a survey."""


def survey(setup: SurveySetup) -> SurveyResult | InconclusiveSurvey:
    """Survey the objective of a sweep as `survey_objective` does.

    The call changes torch, so the process must not train afterwards. Raises ConfigError if the
    objective cannot be loaded.
    """
    torch.set_num_threads(1)
    objective = open_objective(setup.session)
    plan = setup.session.plan
    return survey_objective(objective, setup.spec, plan.metric, refit=plan.refit is not None)
