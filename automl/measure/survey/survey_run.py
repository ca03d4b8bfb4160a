"""Calls an objective once on a pretended GPU, to find the memory that it needs.

`survey` is the work of a process of its own, which `automl.execution.child_calls.call_confined`
starts, because a survey changes torch. The fork server loads this module: the parts of torch that a
survey needs take 1.4 s to load, which each survey would else spend anew.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, SupportsIndex

import torch
import torch._dynamo
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from automl.measure.survey.allocator import DeviceStorages, storage_bytes
from automl.measure.survey.known_values import KnownValues
from automl.measure.survey.pretence import pretend_one_gpu, replace_attribute
from automl.measure.survey.progress import SurveyProgress, make_short_iter
from automl.measure.survey.redirect import CudaRedirect
from automl.measure.survey.survey_result import (
    InconclusiveSurvey,
    SurveyEndReason,
    SurveyOverError,
    SurveyResult,
)
from automl.measure.survey.tracker import DeviceMemoryTracker
from automl.objectives.reports import step_counter
from automl.objectives.reports.report_values import parse_metric_value
from automl.objectives.seeds import trial_seed
from automl.objectives.training_plan import SurveySetup
from automl.objectives.training_session import open_objective
from automl.objectives.trial_context import CheckpointState, TrialContext, TrialStopped
from automl.record.texts import fit_line
from automl.trial import TrialSpec

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
