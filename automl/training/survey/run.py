"""Calls an objective once to see what memory it will want, in this process, which it changes
meanwhile: for a process of its own, see `child.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, SupportsIndex

import torch
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from automl.record.texts import fit_line
from automl.training import steps
from automl.training.objective import State, TrialContext, TrialStopped
from automl.training.seeds import trial_seed
from automl.training.survey.errors import SurveyOver
from automl.training.survey.found import Survey, SurveyEnded, Unsurveyed
from automl.training.survey.loaders import short_iter
from automl.training.survey.pretence import one_gpu, replaced
from automl.training.survey.progress import Progress
from automl.training.survey.redirect import Redirect
from automl.training.survey.storages import Storages, bytes_of
from automl.training.survey.tracker import Tracker
from automl.training.survey.values import Values
from automl.trial import TrialSpec

DEVICE = "cuda:0"


def survey_objective(
    objective: Callable[[TrialContext], object],
    spec: TrialSpec,
    metric: str,
    *,
    refit: bool = False,
) -> Survey | Unsurveyed:
    """What the trial would want of a GPU. Raises nothing that the objective can cause.

    Booleans that depend on what is not computed are said to be false; where the objective then
    raises (it may assert that something holds), it is called again with all of them true.
    """
    told = _Attempt(metric, truth=False).run(objective, spec, refit=refit)
    if isinstance(told, Unsurveyed):
        second = _Attempt(metric, truth=True).run(objective, spec, refit=refit)
        return second if isinstance(second, Survey) else told
    return told


class _Attempt:
    """One call of the objective, and what was seen of it."""

    def __init__(self, metric: str, *, truth: bool) -> None:
        self.progress = Progress(metric)
        self.storages = Storages()
        self._doubts: list[str] = []
        self.tracker = Tracker(self.storages, Values(truth), self._doubts.append)
        self._weights_bytes = 0
        self._held: list[torch.Tensor] = []

    def run(
        self, objective: Callable[[TrialContext], object], spec: TrialSpec, *, refit: bool
    ) -> Survey | Unsurveyed:
        trial = TrialContext(
            spec,
            devices=(DEVICE,),
            seed=trial_seed(spec.study_seed, spec.number),
            record=_Reports(self),
            surveying=True,
            refit=refit,
        )
        try:
            with self._watching():
                objective(trial)
        except SurveyOver:
            pass  # `_ended` says with what
        except TrialStopped:
            self._ended = SurveyEnded.RETURNED
        except BaseException as error:  # noqa: BLE001  SystemExit included
            return Unsurveyed(fit_line(f"{type(error).__name__}: {error}", 300))
        return self._vouch()

    _ended = SurveyEnded.RETURNED

    def end(self, ended: SurveyEnded) -> None:
        """Enough was seen. Raises SurveyOver."""
        self._ended, self.tracker.over = ended, True
        raise SurveyOver

    def _vouch(self) -> Survey | Unsurveyed:
        """What was seen, unless something was missed."""
        memory = self.storages.memory
        if self._doubts:
            return Unsurveyed(self._doubts[0])
        if not memory.peak_allocated_bytes:
            return Unsurveyed("it put nothing on the GPU")
        if (idle := self.progress.idle_optimizer) is not None:
            return Unsurveyed(f"the optimizer {idle} was seen to take fewer than two steps")
        return Survey(
            weights_bytes=self._weights_bytes,
            allocated_bytes=memory.peak_allocated_bytes,
            reserved_bytes=memory.peak_reserved_bytes,
            n_steps=self.progress.n_steps,
            ended=self._ended,
        )

    @contextmanager
    def _watching(self) -> Iterator[None]:
        init = torch.optim.Optimizer.__init__

        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)
            self.progress.made(optimizer)

        with ExitStack() as stack:
            stack.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # they are said where it trains
            stack.enter_context(one_gpu(self.tracker))
            stack.enter_context(replaced(torch.optim.Optimizer, "__init__", made))
            stack.enter_context(
                replaced(
                    DataLoader,
                    "__iter__",
                    short_iter(self.progress, partial(self.end, SurveyEnded.PASSED)),
                )
            )
            stack.enter_context(steps.told(self._trainer_stepped))
            for hook in (
                register_optimizer_step_post_hook(self._stepped),
                register_module_forward_pre_hook(self._called),
            ):
                stack.callback(hook.remove)
            stack.enter_context(Redirect(self.tracker))
            stack.enter_context(self.tracker)
            yield

    def _stepped(self, optimizer: Any, args: object, kwargs: object) -> None:
        self.progress.stepped(optimizer)
        if self.progress.n_steps <= 3:
            self._weights_bytes = max(self._weights_bytes, bytes_of(self.progress.parameters))
        if isinstance(optimizer, torch.optim.LBFGS) and not self._held:
            self._hold_history(optimizer)

    def _hold_history(self, optimizer: torch.optim.LBFGS) -> None:
        """Whether LBFGS keeps a direction depends on values; at the end it has so many pairs."""
        n = sum(p.numel() for p in self.progress.parameters)
        n_pairs = optimizer.param_groups[0]["history_size"] - 1  # the newest is there already
        some = self.progress.parameters[0].detach()
        self._held = [some.new_empty(n) for _ in range(2 * n_pairs)]

    def _trainer_stepped(self, weights: torch.Tensor) -> bool:
        self.progress.n_steps += 1
        self._weights_bytes = max(self._weights_bytes, bytes_of([weights]))
        return self.progress.enough

    def _called(self, module: object, args: object) -> None:
        if not torch.is_grad_enabled():
            self.progress.looked()


class _Reports:
    """The survey's side of the `TrialContext`: reports go nowhere."""

    def __init__(self, attempt: _Attempt) -> None:
        self._attempt = attempt

    def restore(self) -> None:
        return None

    def report(
        self,
        step: SupportsIndex,
        metrics: Mapping[str, float],
        get_checkpoint: Callable[[], State] | None,
        get_best: Callable[[], State] | None,
        get_scores: Callable[[], Mapping[str, float]] | None = None,
    ) -> None:
        """Call for the states, which may take memory; end where enough was seen."""
        for value in metrics.values():
            float(value)
        for get in (get_checkpoint, get_best):
            if get is not None:
                get()
        if self._attempt.progress.reported(metrics):
            self._attempt.end(SurveyEnded.REPORTED)

    def set_tag(self, name: str, value: object) -> None:
        """Tags go nowhere either."""
