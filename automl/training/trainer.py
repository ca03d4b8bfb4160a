"""Trains one network for one trial, epoch by epoch. Knows no study and writes no file.

An epoch is a pass over the training part in an order drawn for it, then a look at the validation
part. Batches are index selections of tensors that stay on the device.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own documentation names it so
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from automl.config import Precision, Task
from automl.training import steps
from automl.training.network import Network, Networks
from automl.training.network_family import NetworkFamily
from automl.training.optimizers import FlatParameters, make_optimizer
from automl.training.params import TrainingParams
from automl.training.plan import WarmUp
from automl.training.ranks import ALONE, Ranks
from automl.training.seeds import Stream, stream_seed
from automl.training.tensors import DataTensors
from automl.trial import Params

_EVALUATION_ROWS = 8192  # rows per pass without gradients: bounds the memory of activations


class DivergedError(ArithmeticError):
    """Raised when the loss of an epoch is NaN or infinite: no later epoch mends that."""


@dataclass(frozen=True)
class Problem:
    """What is the same for all trials of a study."""

    task: Task
    n_inputs: int
    n_outputs: int
    """Classes, or 1 for regression."""
    target_scale: float
    """Turns errors of scaled targets into the target's own unit."""
    family: NetworkFamily
    networks: Networks
    precision: Precision

    @property
    def dtype(self) -> torch.dtype:
        """Of weights and data. bfloat16 keeps float32 weights and computes by autocast."""
        return torch.float64 if self.precision is Precision.float64 else torch.float32

    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""
        return self.family.params(given)

    def network(self, params: TrainingParams) -> Network:
        """The network that a trial's params ask for."""
        return self.networks.network(self.family, params, self.n_inputs, self.n_outputs)


class Trainer:
    """One trial's network, optimizer and data, on one device, in one thread."""

    def __init__(
        self,
        problem: Problem,
        params: TrainingParams,
        data: DataTensors,
        *,
        device: str,
        seed: int,
        warm_up: WarmUp | None = None,
        ranks: Ranks = ALONE,
        devices: Sequence[str] = (),
    ) -> None:
        """`ranks`: see `ranks.py`; all of them are given the same params, data and seed. Of several
        `devices` torch's DataParallel trains on all."""
        self.problem, self.params, self.network = problem, params, problem.network(params)
        self._data, self._device, self._seed = data, torch.device(device), seed
        self._batch_size = min(params.batch_size, len(data.train.x))
        self._shuffle = torch.Generator()  # on the CPU, so that every device draws the same order
        self.model = self.network.build(
            problem.dtype, self._device, stream_seed(seed, Stream.WEIGHTS)
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

    def run_epoch(self, epoch: int) -> dict[str, float]:
        """Train one epoch, counted from 0, and return its metrics.

        `train_loss` is the mean over the epoch's steps, with dropout; `val_loss`, and `val_error`
        (share of wrong classes) or `val_rmse` (in the target's unit), are those after it. Losses of
        regression are mean squared errors of the scaled target. Without a validation part there is
        the first alone. Raises DivergedError.
        """
        sums = torch.zeros(3, dtype=torch.float64, device=self._device)
        self._train(epoch, sums)
        self._evaluate(sums)
        self._ranks.add(sums)
        train_sum, val_sum, miss_sum = sums.tolist()  # the one wait for the device in an epoch
        train_loss = train_sum / len(self._data.train.x)
        n_validation = len(self._data.validation.x)
        metrics = epoch_metrics(self.problem, train_loss, val_sum, miss_sum, n_validation)
        check_finite(metrics, epoch, self.params)
        return metrics

    def state(self, epoch: int) -> dict[str, Any]:
        """All that is needed to go on after `epoch`; random draws follow from seed and epoch."""
        return {
            "epoch": epoch,
            "weights": self.model.state_dict(),
            "optimizer": self._optimizer.state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> int:
        """Take a state back; returns the epoch to go on with."""
        self.model.load_state_dict(state["weights"])  # copies in place: the views stay
        for name, tensor in self._optimizer.state().items():
            tensor.copy_(state["optimizer"][name])
        return int(state["epoch"]) + 1

    def _train(self, epoch: int, sums: torch.Tensor) -> None:
        n_train, clip_norm = len(self._data.train.x), self.params.clip_norm
        self._shuffle.manual_seed(stream_seed(self._seed, Stream.SHUFFLE, epoch))
        drawing = epoch * self._ranks.n_ranks + self._ranks.rank
        self.network.seed_draws(self.model, stream_seed(self._seed, Stream.DROPOUT, drawing))
        self.model.train()
        order = torch.randperm(n_train, generator=self._shuffle).to(self._device)
        # Trials in threads of one process would else share one backward thread per GPU.
        with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
            for index, rows in enumerate(torch.split(order, self._batch_size)):
                self._warm(epoch, index * self._batch_size / len(order))
                self._flat.grads.zero_()
                own, weight = self._ranks.share(rows)
                sums[0].add_(self._find_gradient(own, weight), alpha=weight * len(rows))
                self._ranks.add(self._flat.grads)
                if clip_norm is not None:
                    self._flat.clip(clip_norm)
                self._optimizer.step()
                if steps.tell(self._flat.values):
                    break

    def _find_gradient(self, rows: torch.Tensor, weight: float) -> torch.Tensor:
        """The mean loss of these rows; its gradient, of such a weight, is added to the flat one."""
        train = self._data.train
        with self._autocast():
            out = self._forward(train.x.index_select(0, rows))
        loss = self._loss(out, train.y.index_select(0, rows), "mean")
        weighted = loss if weight == 1 else loss * weight
        weighted.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _warm(self, epoch: int, share: float) -> None:
        """The learning rate of the next step, when such a share of the epoch is over."""
        if self._warm_up is not None:
            self._optimizer.lr = self.params.lr * self._warm_up.factor(epoch, share)

    @torch.no_grad()
    def _evaluate(self, sums: torch.Tensor) -> None:
        self._ranks.follow_first(self.model.buffers())
        own = [self._ranks.part(t) for t in (self._data.validation.x, self._data.validation.y)]
        if not len(own[0]):
            return
        self.model.eval()
        pieces = (torch.split(t, _EVALUATION_ROWS) for t in own)
        for x, y in zip(*pieces, strict=True):
            with self._autocast():
                out = self.model(x)
            loss = self._loss(out, y, "sum")
            sums[1] += loss
            sums[2] += loss if self.problem.task is Task.regression else (out.argmax(1) != y).sum()

    def _loss(self, out: torch.Tensor, y: torch.Tensor, reduction: str) -> torch.Tensor:
        check_output(out, len(y), self.network)
        # Autocast leaves bfloat16.
        return loss_of(self.problem.task, out.to(self.problem.dtype), y, reduction)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        """Left after every step, because autocast keeps its copies of the weights until then."""
        if self.problem.precision is not Precision.bfloat16:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, dtype=torch.bfloat16)


def _has_batch_norm(module: nn.Module) -> bool:
    return any(isinstance(part, _BatchNorm) for part in module.modules())


def loss_of(
    task: Task, out: torch.Tensor, y: torch.Tensor, reduction: str = "mean"
) -> torch.Tensor:
    """Squared error of one value (B, 1), or cross entropy of class scores (B, C)."""
    if task is Task.regression:
        return F.mse_loss(out.squeeze(1), y, reduction=reduction)
    return F.cross_entropy(out, y, reduction=reduction)


def epoch_metrics(
    problem: Problem, train_loss: float, val_sum: float, miss_sum: float, n_validation: int
) -> dict[str, float]:
    """An epoch's metrics; the sums are over the validation part, which may be empty."""
    metrics = {"train_loss": train_loss}
    if n_validation:
        metrics["val_loss"] = val_sum / n_validation
        if problem.task is Task.regression:
            metrics["val_rmse"] = problem.target_scale * math.sqrt(miss_sum / n_validation)
        else:
            metrics["val_error"] = miss_sum / n_validation
    return metrics


def check_output(out: torch.Tensor, n_rows: int, network: Network) -> None:
    """Raise ValueError where a network does not give what the loss takes."""
    if out.shape != (n_rows, network.n_outputs):
        raise ValueError(
            f"the network returned {tuple(out.shape)} for {n_rows} rows; it must return "
            f"(rows, n_outputs), here ({n_rows}, {network.n_outputs})."
        )


def check_finite(metrics: Mapping[str, float], epoch: int, params: TrainingParams) -> None:
    """Raise DivergedError where a metric is NaN or infinite."""
    bad = [f"{name} is {value}" for name, value in metrics.items() if not math.isfinite(value)]
    if bad:
        raise DivergedError(
            f"training diverged in epoch {epoch}: {', '.join(bad)} "
            f"(lr={params.lr:g}, optimizer={params.optimizer}); a smaller lr may help"
        )
