"""Trains one network for one trial, epoch by epoch. It knows no study and writes no file.

An epoch is a pass over the training part in an order drawn for it, then an evaluation of the
validation part. Several processes may train one network together, each on its share of each batch.
Gradients are weighted by rows and summed, so that any batch has exactly those of one process.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from automl.config import Precision, Task, TrainingConfig
from automl.data.dataset import NetworkOutputs, Size, UserDataFacts
from automl.data.features import Edges
from automl.in_trial.goal import MIN_LOSS_GOAL, Patience, StudyGoal
from automl.in_trial.reports import step_counter
from automl.in_trial.seeds import SeedUse, derive_seed
from automl.models.judged_rows import JudgedTargets, ReportScores
from automl.models.networks.losses import (
    EvaluatedLoss,
    MemberwiseLoss,
    TrainingLoss,
    make_loss,
    weight_classes,
)
from automl.models.networks.network import NetworkDescription
from automl.models.networks.network_family import (
    NetworkFamily,
    TrainingParams,
    WarmUp,
    fill_from_settings,
)
from automl.models.networks.optimizers import (
    FlatParameters,
    average_rate,
    lr_factor,
    make_optimizer,
)
from automl.models.networks.tensors import TrainingRows, draw_epoch_order
from automl.trial import Params


class LostRankError(Exception):
    """Raised when another process of the group no longer answers."""


class RankGroup:
    """One process's view of the processes that train together, which are torch's default group.

    Process 0 reports. A process that trains alone needs no group of torch's.
    """

    def __init__(self, rank: int = 0, n_ranks: int = 1) -> None:
        self.rank, self.n_ranks = rank, n_ranks

    def share(self, rows: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return this process's rows of a batch, and the weight of their mean in the batch's mean.

        Batch norm needs two rows. If a batch has fewer than two rows for each process, each process
        takes the whole batch.
        """
        if self.n_ranks == 1 or len(rows) < 2 * self.n_ranks:
            return rows, 1 / self.n_ranks
        own = self.part(rows)
        return own, len(own) / len(rows)

    def part(self, rows: torch.Tensor) -> torch.Tensor:
        """Return this process's part of rows that are evaluated; it may be empty."""
        return rows.tensor_split(self.n_ranks)[self.rank]

    def add(self, numbers: torch.Tensor) -> None:
        """Sum numbers over all processes, in place; all get the same bits. Raises LostRankError."""
        if self.n_ranks > 1:
            with _lost_rank_errors():
                dist.all_reduce(numbers)

    def follow_first(self, tensors: Iterable[torch.Tensor]) -> None:
        """Overwrite tensors with those of rank 0. Raises LostRankError."""
        if self.n_ranks > 1:
            with _lost_rank_errors():
                for tensor in tensors:
                    dist.broadcast(tensor, src=0)


SINGLE_RANK = RankGroup()


@contextmanager
def _lost_rank_errors() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # in these calls every error of the library is about the others
        raise LostRankError(str(error)) from error


_EVALUATION_ROWS = 8192  # of a table, per pass without gradients: bounds activations' memory
_EVALUATION_NUMBERS = 2**16  # of the user's own rows, in a pass without gradients
_OUTPUTS_ON_DEVICE = 2**22  # numbers that an evaluation leaves on its device, else in main memory


class DivergedError(ArithmeticError):
    """Raised when the loss of an epoch is NaN or infinite: no later epoch mends that."""


class NetworkFactory(Protocol):
    """Makes the network descriptions of a family."""

    def network(self, problem: TrainingProblem, params: Any) -> NetworkDescription:
        """Return the network that a trial's params ask for."""


@dataclass(frozen=True)
class TrainingProblem:
    """The facts that all trials of a study share: data, networks, loss, precision and goal."""

    task: Task
    n_inputs: Size
    """The number of columns of a row, or the row's shape in data of the user's own."""
    n_outputs: Size
    """The number of classes; for regression 1, or the shape of a row's targets."""
    target_scale: float
    """The factor from errors of scaled targets to the target's own unit."""
    family: NetworkFamily
    networks: NetworkFactory
    precision: Precision
    training: TrainingConfig = field(default_factory=TrainingConfig)
    goal: StudyGoal = MIN_LOSS_GOAL
    """The metric that early stopping watches, with its direction."""
    facts: UserDataFacts | None = None
    """The facts of the user's own data; None means that the data is a table."""
    judged: JudgedTargets | None = None
    """The targets of the validation part, for further metrics; None: no further ones."""
    class_weights: tuple[float, ...] = ()
    """The weight of a row of each class, so that all classes count the same; empty for numbers."""
    target_mean: float = 0.0
    """The mean of a table's numbers, in the target's own unit."""
    get_edges: Callable[[], Edges] = tuple
    """Returns the bins of a table's numbers, for networks that ask for them."""
    epoch_rows: int | None = None
    """The number of rows in an epoch; None means all training rows."""

    def with_precision(self, precision: Precision) -> TrainingProblem:
        """Return the problem in another precision, which a trial may have as a param."""
        return self if precision is self.precision else replace(self, precision=precision)

    @cached_property
    def loss(self) -> EvaluatedLoss:
        own, unit = self.training.value_loss, (self.target_mean, self.target_scale)
        return make_loss(self.training.loss_target, self.outputs, self.n_outputs, own, unit)

    def training_loss(self, params: TrainingParams, device: torch.device) -> EvaluatedLoss:
        """Return the loss that a trial descends, with weighed classes if its params say so."""
        if not (params.weighs_classes and self.class_weights):
            return self.loss
        return weight_classes(self.loss, torch.tensor(self.class_weights, device=device))

    @property
    def outputs(self) -> NetworkOutputs:
        """The kind of outputs that the networks return."""
        if self.facts is not None:
            return self.facts.outputs
        return NetworkOutputs.NUMBERS if self.task is Task.regression else NetworkOutputs.SCORES

    def n_evaluation_rows(self, batch_size: int, most: int) -> int:
        """Return the rows of a pass without gradients, which bounds the memory of activations."""
        if self.facts is None:
            return most
        size = self.n_inputs
        n_numbers = size if isinstance(size, int) else math.prod(size)
        return min(most, max(batch_size, _EVALUATION_NUMBERS // n_numbers))

    def metrics(
        self,
        sums: Sequence[float],
        n_rows: tuple[int, int],
        outputs: torch.Tensor | None,
        *,
        epoch: int,
        params: TrainingParams,
    ) -> dict[str, float]:
        """Return the metrics of `NetworkTrainer.run_epoch`. Raises DivergedError.

        The sums over rows are training loss, validation loss and misses. `n_rows` are those that
        train and those that judge, and `outputs` (N, C) those for the validation part.
        """
        (train_sum, val_sum, miss_sum), (n_train, n_judged) = sums, n_rows
        metrics = {"train_loss": train_sum / n_train}
        if n_judged:
            metrics["val_loss"] = val_sum / n_judged
            if self.outputs is NetworkOutputs.NUMBERS:
                metrics["val_rmse"] = self.target_scale * math.sqrt(miss_sum / n_judged)
            elif self.outputs is NetworkOutputs.SCORES:
                metrics["val_error"] = miss_sum / n_judged
        bad = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise DivergedError(
                f"training diverged in epoch {epoch}: {', '.join(bad)} "
                f"(lr={params.lr:g}, optimizer={params.optimizer}); a smaller lr may help"
            )
        scores = self.scores(outputs)
        return metrics if scores is None else metrics | scores.study_metric()

    def scores(self, outputs: torch.Tensor | None) -> ReportScores | None:
        """Return an object that computes metrics of the outputs (N, C); None: no more metrics."""
        if self.judged is None or outputs is None:
            return None
        return ReportScores(self.judged, lambda: outputs.double().cpu().numpy())

    def output_buffer(self, *shape: Size, device: torch.device) -> torch.Tensor:
        """Return zeros for a table's outputs; large ones are in main memory, not on the device."""
        sizes = [size for size in shape if isinstance(size, int)]
        place = device if math.prod(sizes) <= _OUTPUTS_ON_DEVICE else "cpu"
        return torch.zeros(sizes, dtype=self.dtype, device=place)

    def patience(self, params: TrainingParams, n_rows: int) -> Patience:
        """Return a trial's patience at its start; it never ends if no rows judge."""
        limit = params.limit_epochs(self.training.patience_steps, n_rows)
        return Patience(self.goal, None if self.goal.keeps_last else limit)

    def n_epoch_rows(self, n_train: int) -> int:
        """Return the number of rows in an epoch when `n_train` rows train."""
        return n_train if self.epoch_rows is None else self.epoch_rows

    @property
    def dtype(self) -> torch.dtype:
        """The type of weights and data. bfloat16 keeps float32 weights and computes by autocast."""
        return torch.float64 if self.precision is Precision.float64 else torch.float32

    def params(self, trial_params: Params) -> TrainingParams:
        """Return a trial's params after a check. Raises ValueError or TypeError."""
        return self.family.params(fill_from_settings(trial_params, self.training))

    def network(self, params: TrainingParams) -> NetworkDescription:
        """Return the network that a trial's params ask for."""
        return self.networks.network(self, params)


class NetworkTrainer:
    """Trains one trial's network, with its optimizer and data, on one device, in one thread."""

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
        """Build the network, with weights that follow from `seed`.

        `ranks` are the processes that train together (`networks/trainer.py`); all get the
        same params, data and seed. torch's DataParallel trains on several `devices`.
        """
        self.problem, self.params, self.network = problem, params, problem.network(params)
        self._data, self._device, self._seed = data, torch.device(device), seed
        self._n_epoch_rows = problem.n_epoch_rows(len(data.train))
        self._batch_size = min(params.batch_size, self._n_epoch_rows)
        self._n_epoch_steps = params.n_epoch_steps(self._n_epoch_rows)
        self._patience = problem.patience(params, self._n_epoch_rows)
        self._shuffle = torch.Generator()  # on the CPU, so that every device draws the same order
        self.model = self.network.build(
            problem.dtype, self._device, derive_seed(seed, SeedUse.WEIGHTS)
        )
        self.splits_batch_norm = ranks.n_ranks > 1 and any(
            isinstance(part, _BatchNorm) for part in self.model.modules()
        )
        """Whether each process normalises only its own rows of a batch. torch's SyncBatchNorm works
        on GPUs only."""
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
        """An object that computes all metrics of the last epoch; None if there are no more."""
        return self.problem.scores(self._outputs)

    @property
    def has_stopped(self) -> bool:
        """Whether the trial has waited long enough for a better value."""
        return self._patience.is_over

    def run_epoch(self, epoch: int) -> dict[str, float]:
        """Train one epoch, counted from 0, and return its metrics. Raises DivergedError.

        `train_loss` is the mean over the epoch's steps, with dropout. `val_loss`, and `val_error`
        (share of wrong classes) or `val_rmse` (in the target's unit), are computed with the
        averaged weights if there are averages. Losses of regression are mean squared errors of the
        scaled target.
        """
        sums = torch.zeros(3, dtype=torch.float64, device=self._device)
        self._train(epoch, sums)
        with self._flat.replaced(self._average):
            self._evaluate(sums)
        self._ranks.add(sums)
        if self._outputs is not None and self._ranks.n_ranks > 1:
            self._ranks.add(self._outputs)
        sums_on_host = sums.tolist()  # the one wait for the device in an epoch
        n_rows = self._n_epoch_rows, len(self._data.validation)
        metrics = self.problem.metrics(
            sums_on_host, n_rows, self._outputs, epoch=epoch, params=self.params
        )
        self._patience = self._patience.after(metrics)
        return metrics

    def weights(self) -> Mapping[str, torch.Tensor]:
        """Return the weights by which the last epoch's validation metrics were computed."""
        if self._average is None:
            return self.model.state_dict()
        with self._flat.replaced(self._average):
            return {name: tensor.clone() for name, tensor in self.model.state_dict().items()}

    def state(self, epoch: int) -> dict[str, Any]:
        """Return a state to go on from after `epoch`, without draws, which follow from the seed."""
        average = {} if self._average is None else {"average": self._average}
        return {
            "epoch": epoch,
            "weights": self.model.state_dict(),
            "optimizer": self._optimizer.state(),
            **average,
            **self._patience.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> int:
        """Load a result of `state`, and return the epoch to go on with."""
        self.model.load_state_dict(state["weights"])  # copies in place: the views stay
        for name, tensor in self._optimizer.state().items():
            tensor.copy_(state["optimizer"][name])
        if self._average is not None:
            self._average.copy_(state["average"])
        self._patience = self._patience.restored(state)
        return int(state["epoch"]) + 1

    def _train(self, epoch: int, sums: torch.Tensor) -> None:
        train, step = self._data.train, epoch * self._n_epoch_steps
        self._shuffle.manual_seed(derive_seed(self._seed, SeedUse.SHUFFLE, epoch))
        drawing = epoch * self._ranks.n_ranks + self._ranks.rank
        self.network.seed_draws(self.model, derive_seed(self._seed, SeedUse.DROPOUT, drawing))
        self.model.train()
        order = draw_epoch_order(len(train), self._n_epoch_rows, self._shuffle)
        seed = derive_seed(self._seed, SeedUse.ROWS, epoch)
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
        """Add the gradient of the mean loss of these rows, which are this share of a step's."""
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
        """Take an optimizer step; `step` counts from 0 over the whole trial."""
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
        n_rows = self.problem.n_evaluation_rows(
            self._batch_size, _EVALUATION_ROWS // self.network.n_members
        )
        self._outputs = None
        if self.problem.judged is not None:
            shape = len(self._data.validation), self.problem.n_outputs
            self._outputs = self.problem.output_buffer(*shape, device=self._device)
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

    def _loss(self, out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self._training_loss.check(out, y)
        return self._training_loss.mean(out.to(self.problem.dtype), y)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Return the autocast of one step, whose end frees autocast's copies of the weights."""
        if self.problem.precision is not Precision.bfloat16:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)
