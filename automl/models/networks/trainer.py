"""Trains one network for one trial, epoch by epoch. Knows no study and writes no file.

An epoch is a pass over the training part in an order drawn for it, then a look at the validation
part. Batches are index selections of tensors that stay on the device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from automl.config import Precision, Task, TrainingConfig
from automl.data.data_facts import NetworkOutputs, Size, UserDataFacts
from automl.data.features import Edges
from automl.models.judged_rows import JudgedTargets, ReportScores
from automl.models.networks.losses import (
    EvaluatedLoss,
    MemberwiseLoss,
    TrainingLoss,
    make_loss,
    weight_classes,
)
from automl.models.networks.network import NetworkDescription, NetworkFactory
from automl.models.networks.network_family import NetworkFamily, TrainingParams, fill_from_settings
from automl.models.networks.optimizers import (
    FlatParameters,
    average_rate,
    lr_factor,
    make_optimizer,
)
from automl.models.networks.parallel.process_group import SINGLE_RANK, RankGroup
from automl.models.networks.tensors import TrainingRows, draw_epoch_order
from automl.objectives.goal import Patience, StudyGoal
from automl.objectives.reports import step_counter
from automl.objectives.seeds import RandomStream, stream_seed
from automl.objectives.training_plan import WarmUp
from automl.trial import Direction, Params

_EVALUATION_ROWS = 8192  # of a table, per pass without gradients: bounds activations' memory
_LOOK_NUMBERS = 2**16  # of the user's own rows, in such a pass
_OUTPUTS_ON_DEVICE = 2**22  # numbers that a look leaves on its device; more go to main memory


MIN_LOSS_GOAL = StudyGoal("val_loss", Direction.minimize)


class DivergedError(ArithmeticError):
    """Raised when the loss of an epoch is NaN or infinite: no later epoch mends that."""


@dataclass(frozen=True)
class TrainingProblem:
    """What is the same for all trials of a study."""

    task: Task
    n_inputs: Size
    """Columns of a row; of the user's own data its shape, where it has more dimensions."""
    n_outputs: Size
    """Classes; for regression 1, or what a row's targets are."""
    target_scale: float
    """Turns errors of scaled targets into the target's own unit."""
    family: NetworkFamily
    networks: NetworkFactory
    precision: Precision
    training: TrainingConfig = field(default_factory=TrainingConfig)
    goal: StudyGoal = MIN_LOSS_GOAL
    """What early stopping waits for."""
    facts: UserDataFacts | None = None
    """Of the user's own data; None: a table."""
    judged: JudgedTargets | None = None
    """What the validation part tells; None: the losses alone, and what they are made of."""
    class_weights: tuple[float, ...] = ()
    """What a row of each class counts, so that all classes count the same; empty for numbers."""
    get_edges: Callable[[], Edges] = tuple
    """The bins of a table's numbers, for networks that ask for them."""
    epoch_rows: int | None = None
    """Rows of an epoch; None: all that train."""

    def of(self, precision: Precision) -> TrainingProblem:
        """The same in another precision, which a trial may have as a param."""
        return self if precision is self.precision else replace(self, precision=precision)

    @cached_property
    def loss(self) -> EvaluatedLoss:
        own = self.training.value_loss
        return make_loss(self.training.loss_target, self.outputs, self.n_outputs, own)

    def training_loss(self, params: TrainingParams, device: torch.device) -> EvaluatedLoss:
        """What a trial descends: with the classes weighed, where its params say so."""
        if not (params.weighs_classes and self.class_weights):
            return self.loss
        return weight_classes(self.loss, torch.tensor(self.class_weights, device=device))

    @property
    def outputs(self) -> NetworkOutputs:
        """What networks give."""
        if self.facts is not None:
            return self.facts.outputs
        return NetworkOutputs.NUMBERS if self.task is Task.regression else NetworkOutputs.SCORES

    def n_look_rows(self, batch_size: int, most: int) -> int:
        """Rows in a pass without gradients, which bounds the memory of activations."""
        if self.facts is None:
            return most
        size = self.n_inputs
        n_numbers = size if isinstance(size, int) else math.prod(size)
        return min(most, max(batch_size, _LOOK_NUMBERS // n_numbers))

    def metrics(self, sums: Sequence[float], n_train: int, n_validation: int) -> dict[str, float]:
        """See `NetworkTrainer.run_epoch`; from sums over rows: of both losses, and of misses."""
        train_sum, val_sum, miss_sum = sums
        metrics = {"train_loss": train_sum / n_train}
        if not n_validation:
            return metrics
        metrics["val_loss"] = val_sum / n_validation
        if self.outputs is NetworkOutputs.NUMBERS:
            metrics["val_rmse"] = self.target_scale * math.sqrt(miss_sum / n_validation)
        elif self.outputs is NetworkOutputs.SCORES:
            metrics["val_error"] = miss_sum / n_validation
        return metrics

    def more_metrics(self, outputs: torch.Tensor | None) -> dict[str, float]:
        """The study's metric, where it is told by the outputs (N, C) for the validation part."""
        if self.judged is None or outputs is None or not self.judged.wants_metric:
            return {}
        return self.judged.metric_of(outputs.double().cpu().numpy())

    def all_metrics(self, outputs: torch.Tensor | None) -> ReportScores | None:
        """What computes every metric of the outputs (N, C) for the validation part; None: there
        are none to compute."""
        if self.judged is None or outputs is None:
            return None
        return ReportScores(self.judged, lambda: outputs.double().cpu().numpy())

    def beside(self, outputs: torch.Tensor | None) -> dict[str, float]:
        """See `JudgedTargets.beside`; of outputs (N, C) for the validation part."""
        if self.judged is None or outputs is None:
            return {}
        return self.judged.beside(outputs.double().cpu().numpy())

    def room_for_outputs(self, *shape: int, device: torch.device) -> torch.Tensor | None:
        """For those of the validation part, 0; None: nobody asks for them."""
        if self.judged is None:
            return None
        return self.room(*shape, device=device)

    def room(self, *shape: int, device: torch.device) -> torch.Tensor:
        """For outputs, 0; in main memory where they would take much of the device's."""
        where = device if math.prod(shape) <= _OUTPUTS_ON_DEVICE else torch.device("cpu")
        return torch.zeros(shape, dtype=self.dtype, device=where)

    def patience(self, params: TrainingParams, n_rows: int) -> Patience:
        """That of a trial at its start, with so many rows in an epoch; without rows to tell a
        better one by, it never ends."""
        limit = params.limit_epochs(self.training.patience_steps, n_rows)
        return Patience(self.goal, None if self.goal.keeps_last else limit)

    def n_epoch_rows(self, n_train: int) -> int:
        """Rows of an epoch, of so many that train."""
        return n_train if self.epoch_rows is None else self.epoch_rows

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and data. bfloat16 keeps float32 weights and computes by autocast."""
        return torch.float64 if self.precision is Precision.float64 else torch.float32

    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""
        return self.family.params(fill_from_settings(given, self.training))

    def network(self, params: TrainingParams) -> NetworkDescription:
        """The network that a trial's params ask for."""
        sizes = (self.n_inputs, self.n_outputs)
        return self.networks.network(self.family, params, *sizes, self.get_edges)


class NetworkTrainer:
    """One trial's network, optimizer and data, on one device, in one thread."""

    def __init__(
        self,
        problem: TrainingProblem,
        params: TrainingParams,
        data: TrainingRows,
        *,
        device: str,
        seed: int,
        warm_up: WarmUp | None = None,
        ranks: RankGroup = SINGLE_RANK,
        devices: Sequence[str] = (),
    ) -> None:
        """`ranks`: see `process_group.py`; all of them are given the same params, data and seed.
        Of several
        `devices` torch's DataParallel trains on all."""
        self.problem, self.params, self.network = problem, params, problem.network(params)
        self._data, self._device, self._seed = data, torch.device(device), seed
        self._n_epoch_rows = problem.n_epoch_rows(len(data.train))
        self._batch_size = min(params.batch_size, self._n_epoch_rows)
        self._n_epoch_steps = params.n_epoch_steps(self._n_epoch_rows)
        self._patience = problem.patience(params, self._n_epoch_rows)
        self._shuffle = torch.Generator()  # on the CPU, so that every device draws the same order
        self.model = self.network.build(
            problem.dtype, self._device, stream_seed(seed, RandomStream.WEIGHTS)
        )
        self.splits_batch_norm = ranks.n_ranks > 1 and _has_batch_norm(self.model)
        """Each process normalises its own rows of a batch: torch's SyncBatchNorm is for GPUs."""
        if self.splits_batch_norm and self._device.type == "cuda":
            synced: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(self.model)  # type: ignore[no-untyped-call]
            self.model = synced
            self.splits_batch_norm = False
        self._flat = FlatParameters(self.model)
        self._forward: nn.Module = self.model
        if len(devices) > 1:
            self._forward = nn.DataParallel(self.model, [torch.device(d) for d in devices])
        self._optimizer = make_optimizer(self._flat, params)
        self._warm_up, self._ranks = warm_up, ranks
        self._average = self._flat.values.clone() if params.ema_decay > 0 else None
        self._training_loss: TrainingLoss = problem.training_loss(params, self._device)
        if self.network.n_members > 1:
            self._training_loss = MemberwiseLoss(self._training_loss)
        self._outputs: torch.Tensor | None = None

    @property
    def scores(self) -> ReportScores | None:
        """What computes all metrics of the last epoch; None: there are no more of them."""
        return self.problem.all_metrics(self._outputs)

    def beside(self) -> dict[str, float]:
        """What a model file says besides the model as it is after the last epoch."""
        return self.problem.beside(self._outputs)

    @property
    def has_stopped(self) -> bool:
        """Whether it waited long enough for a better value."""
        return self._patience.is_over

    def run_epoch(self, epoch: int) -> dict[str, float]:
        """Train one epoch, counted from 0, and return its metrics.

        `train_loss` is the mean over the epoch's steps, with dropout; `val_loss`, and `val_error`
        (share of wrong classes) or `val_rmse` (in the target's unit), are those after it, of the
        averaged weights where there are such. Losses of regression are mean squared errors of the
        scaled target. Without a validation part there is the first alone. Raises DivergedError.
        """
        sums = torch.zeros(3, dtype=torch.float64, device=self._device)
        self._train(epoch, sums)
        with self._flat.replaced(self._average):
            self._evaluate(sums)
        self._ranks.add(sums)
        if self._outputs is not None and self._ranks.n_ranks > 1:
            self._ranks.add(self._outputs)
        found = sums.tolist()  # the one wait for the device in an epoch
        metrics = self.problem.metrics(found, self._n_epoch_rows, len(self._data.validation))
        check_metrics_finite(metrics, epoch, self.params)
        metrics |= self.problem.more_metrics(self._outputs)
        self._patience = self._patience.after(metrics)
        return metrics

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Those that the last epoch's metrics of the validation part are of."""
        if self._average is None:
            return self.model.state_dict()
        with self._flat.replaced(self._average):
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def state(self, epoch: int) -> dict[str, Any]:
        """All that is needed to go on after `epoch`; random draws follow from seed and epoch."""
        average = {} if self._average is None else {"average": self._average}
        return {
            "epoch": epoch,
            "weights": self.model.state_dict(),
            "optimizer": self._optimizer.state(),
            **average,
            **self._patience.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> int:
        """Take a state back; returns the epoch to go on with."""
        self.model.load_state_dict(state["weights"])  # copies in place: the views stay
        for name, tensor in self._optimizer.state().items():
            tensor.copy_(state["optimizer"][name])
        if self._average is not None:
            self._average.copy_(state["average"])
        self._patience = self._patience.restored(state)
        return int(state["epoch"]) + 1

    def _train(self, epoch: int, sums: torch.Tensor) -> None:
        train, step = self._data.train, epoch * self._n_epoch_steps
        self._shuffle.manual_seed(stream_seed(self._seed, RandomStream.SHUFFLE, epoch))
        drawing = epoch * self._ranks.n_ranks + self._ranks.rank
        self.network.seed_draws(self.model, stream_seed(self._seed, RandomStream.DROPOUT, drawing))
        self.model.train()
        order = draw_epoch_order(len(train), self._n_epoch_rows, self._shuffle)
        seed = stream_seed(self._seed, RandomStream.ROWS, epoch)
        n_group, n_left, in_group = 0, len(order), 0
        # Trials in threads of one process would else share one backward thread per GPU.
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            for x, y in train.batches(order, self._batch_size, seed):
                if in_group == 0:
                    n_group = min(n_left, self._batch_size * self.params.accumulate_steps)
                    self._flat.grads.zero_()
                self._add_gradient(x, y, len(y) / n_group, sums)
                n_left, in_group = n_left - len(y), in_group + len(y)
                if in_group < n_group:
                    continue
                self._step(step)
                step, in_group = step + 1, 0
                if step_counter.tell_step(self._flat.values):
                    break

    def _add_gradient(
        self, x: torch.Tensor, y: torch.Tensor, share: float, sums: torch.Tensor
    ) -> None:
        """Of the mean loss of these rows, which are this share of a step's."""
        n_rows = len(y)
        (x, weight), (y, _) = self._ranks.share(x), self._ranks.share(y)
        with self._autocast():
            out = self._forward(x)
        loss = self._loss(out, y)
        share *= weight
        own = loss if share == 1 else loss * share
        own.backward()  # type: ignore[no-untyped-call]
        sums[0].add_(loss.detach(), alpha=weight * n_rows)

    def _step(self, step: int) -> None:
        """One of the optimizer, counted from 0 over the whole trial."""
        self._ranks.add(self._flat.grads)
        if self.params.clip_norm is not None:
            self._flat.clip(self.params.clip_norm)
        self._optimizer.step(self._lr_factor(step))
        if self._average is not None:
            rate = average_rate(self.params.ema_decay, step)
            self._average.lerp_(self._flat.values, rate)

    def _lr_factor(self, step: int) -> float:
        n_steps = self.problem.training.n_epochs * self._n_epoch_steps
        factor = lr_factor(self.params.schedule, step, n_steps)
        if self._warm_up is not None:
            epoch, done = divmod(step, self._n_epoch_steps)
            factor *= self._warm_up.factor(epoch, done / self._n_epoch_steps)
        return factor

    @torch.no_grad()
    def _evaluate(self, sums: torch.Tensor) -> None:
        self._ranks.follow_first(self.model.buffers())
        self.model.eval()
        n_rows = self.problem.n_look_rows(
            self._batch_size, _EVALUATION_ROWS // self.network.n_members
        )
        self._outputs = self._room_for_outputs()
        begin = 0
        for piece in self._data.validation.pieces(n_rows):
            x, y = map(self._ranks.part, piece)
            own = self._ranks.part(torch.arange(begin, begin + len(piece[1])))
            begin += len(piece[1])
            if not len(y):
                continue
            with self._autocast():
                out = self.model(x)
            loss = self.problem.loss
            loss.check(out, y)
            out = out.to(self.problem.dtype)  # autocast leaves bfloat16
            total = loss.total(out, y)
            sums[1] += total
            sums[2] += loss.misses(out, y, total)
            if self._outputs is not None:
                self._outputs[own] = out.to(self._outputs.device)

    def _room_for_outputs(self) -> torch.Tensor | None:
        n_rows, n_outputs = len(self._data.validation), self.problem.n_outputs
        if not n_rows or not isinstance(n_outputs, int):
            return None
        return self.problem.room_for_outputs(n_rows, n_outputs, device=self._device)

    def _loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self._training_loss.check(out, y)
        return self._training_loss.mean(out.to(self.problem.dtype), y)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Left after every step, because autocast keeps its copies of the weights until then."""
        if self.problem.precision is not Precision.bfloat16:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def check_metrics_finite(metrics: Mapping[str, float], epoch: int, params: TrainingParams) -> None:
    """Raise DivergedError where a metric is NaN or infinite."""
    bad = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
    if bad:
        raise DivergedError(
            f"training diverged in epoch {epoch}: {', '.join(bad)} "
            f"(lr={params.lr:g}, optimizer={params.optimizer}); a smaller lr may help"
        )
