"""Trains many networks as one batched model, epoch by epoch, as `NetworkTrainer` trains one.

Each lane draws from the same seeds as `NetworkTrainer`, so a trial's losses agree up to rounding,
and the form of its states is the same. Lanes come and go between epochs; the others do not change,
on a CPU not in the last bit. The kinds of network are in `mlp_trainer.py` and `module_trainer.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from automl.config import LearningRateSchedule
from automl.in_trial.goal import Patience
from automl.in_trial.reports import step_counter
from automl.in_trial.seeds import SeedUse, derive_seed
from automl.models.judged_rows import ReportScores
from automl.models.networks.network import NetworkDescription
from automl.models.networks.network_family import TrainingParams
from automl.models.networks.optimizers import lr_factor
from automl.models.networks.packs.layout import LaneWeights, PackLayout
from automl.models.networks.packs.optimizers import (
    make_pack_average,
    make_pack_clip,
    make_pack_optimizer,
)
from automl.models.networks.tensors import DataTensors, draw_epoch_order
from automl.models.networks.trainer import DivergedError, TrainingProblem

AnyLayout = TypeVar("AnyLayout", bound=PackLayout)


@dataclass
class PackLane:
    """A trial, or a fold of a trial, in the pack."""

    params: TrainingParams
    network: NetworkDescription
    seed: int
    epoch: int
    """The epoch to train next."""
    patience: Patience
    arriving: Mapping[str, Any] | None
    """The state to load, until the lane has a place."""
    fold: int | None = None
    """The number of the trial's fold; None if the trial has this model alone."""


class LanePlaces(ABC, Generic[AnyLayout]):
    """The lanes in their places: weights, gradients and optimizer, made anew when lanes change."""

    def __init__(
        self,
        numbers: Sequence[int | None],
        lanes: Sequence[PackLane],
        values: LaneWeights[AnyLayout],
        grads: LaneWeights[AnyLayout],
    ) -> None:
        """Take the trial numbers of `lanes`; None stands for a place without a trial."""
        self.positions = {n: position for position, n in enumerate(numbers) if n is not None}
        self.lanes, self.values, self.grads = lanes, values, grads
        params = [lane.params for lane in lanes]
        self.optimizer = make_pack_optimizer(values, grads, params)
        self._clip = make_pack_clip(grads, params)
        self.average = make_pack_average(values, params)

    @abstractmethod
    def begin_epoch(self) -> None:
        """Prepare for an epoch of training, with sums of 0."""

    @abstractmethod
    def find_gradients(self, rows: torch.Tensor) -> None:
        """Write the gradients of a step on each lane's `rows` (K, B) to `grads`."""

    @abstractmethod
    def train_sums(self) -> torch.Tensor:
        """Return the sums (K,) of the epoch's training losses, float64."""

    @abstractmethod
    def evaluate(self, outputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return sums (K,) over the validation part, float64: losses, and misses or squared errors.

        The networks' outputs are written to `outputs` (K, C, N) unless that is None. With folds,
        each lane's rows are in their own order; a lane with fewer rows than others leaves the end
        of its outputs unused.
        """

    @abstractmethod
    def weights(self, position: int) -> dict[str, torch.Tensor]:
        """Return a copy of a lane's weights, as the module's `state_dict` names them."""

    @abstractmethod
    def write_weights(self, position: int, weights: Mapping[str, torch.Tensor]) -> None:
        """Set a lane's weights, as `state_dict` names them."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all that an epoch changes: weights, averages, and moments of the optimizer."""
        moments = {name: lanes.flat for name, lanes in self.optimizer.moments.items()}
        average = {} if self.average is None else {"average": self.average.lanes.flat}
        return {"weights": self.values.flat, **moments, **average}

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Give the lanes their averaged weights within the `with`, if there are averages."""
        if self.average is None:
            yield
            return
        own = self.values.flat.clone()
        self.values.flat.copy_(self.average.lanes.flat)
        try:
            yield
        finally:
            self.values.flat.copy_(own)

    def take(self, old: LanePlaces[AnyLayout], moves: Mapping[int, int]) -> None:
        """Copy lanes from other places; `moves` maps their old positions to the new ones."""
        self.values.take(old.values, moves)
        for name, lanes in self.optimizer.moments.items():
            lanes.take(old.optimizer.moments[name], moves)
        if self.average is not None:
            assert old.average is not None, "all of a pack have averages, or none"
            self.average.lanes.take(old.average.lanes, moves)

    def arrive(self, position: int, state: Mapping[str, Any]) -> None:
        """Load a state into a lane; a moment that the state lacks stays 0."""
        self.write_weights(position, state["weights"])
        for name, lanes in self.optimizer.moments.items():
            if "optimizer" in state:
                lanes.write_vector(position, state["optimizer"][name])
        if self.average is not None:
            own = state["average"] if "average" in state else self.values.vector(position)
            self.average.lanes.write_vector(position, own)

    def step(self, index: int, rows: torch.Tensor) -> None:
        """Take one optimizer step; `index` counts from the epoch's start."""
        self.find_gradients(rows)
        if self._clip is not None:
            self._clip()
        self.optimizer.step(index)
        if self.average is not None:
            self.average.step(index)


class PackTrainer(ABC):
    """Trains the lanes of one pack, which share a problem, an optimizer kind and a batch size."""

    no_grad: Callable[[], AbstractContextManager[Any]] = torch.inference_mode
    """The context of all steps; a kind of network that torch differentiates replaces it."""
    no_gain_reason: str | None = None
    """Why these networks gain nothing together; None: they gain."""

    def __init__(
        self, problem: TrainingProblem, batch_size: int, data: DataTensors, *, device: str
    ) -> None:
        self.problem, self._device = problem, torch.device(device)
        self._n_train = problem.n_epoch_rows(len(data.train.x))
        self._n_validation, self._folds = len(data.validation.x), data.folds
        self._batch_size = min(batch_size, self._n_train)
        self._shuffle = torch.Generator()  # on the CPU, so that every device draws the same order
        self._lanes: dict[int, PackLane] = {}
        self._places: LanePlaces[Any] | None = None
        self._before: dict[str, torch.Tensor] = {}
        self.keeps_outputs = False  # of folds, for `judged_outputs`
        self._outputs: torch.Tensor | None = None
        """The outputs (K, C, N) of the last evaluation."""

    @abstractmethod
    def make_places(self, lanes: Mapping[int, PackLane]) -> LanePlaces[Any]:
        """Return places for these lanes, still without their weights."""

    @abstractmethod
    def weight_shapes(self, network: NetworkDescription) -> Mapping[str, tuple[int, ...]]:
        """Return the shapes of a network's weights, as `state_dict` names them."""

    # --- the lanes of the pack ------------------------------------------------------------------

    def add(
        self,
        number: int,
        params: TrainingParams,
        seed: int,
        state: Mapping[str, Any] | None,
        fold: int | None = None,
    ) -> int:
        """Give a lane to a trial at its start or from its state; return the epoch to go on with.

        A `fold` of a trial has a lane number of its own, and does not stop by itself. Raises
        ValueError for a state of another network; the pack is then unchanged.
        """
        assert (fold is None) == (not self._folds), "data with folds trains folds"
        network = self.problem.network(params)
        if state is not None:
            found = {name: tuple(weight.shape) for name, weight in state["weights"].items()}
            if found != (wanted := self.weight_shapes(network)):
                raise ValueError(
                    f"the checkpoint holds weights of shapes {found}, the trial's params ask for "
                    f"{wanted}."
                )
        self._lanes[number] = PackLane(
            params=params,
            network=network,
            seed=seed,
            epoch=0 if state is None else int(state["epoch"]) + 1,
            patience=self._patience(params, fold).restored(state or {}),
            arriving=state if state is not None else self._first_state(network, seed),
            fold=fold,
        )
        return self._lanes[number].epoch

    def _patience(self, params: TrainingParams, fold: int | None) -> Patience:
        own = self.problem.patience(params, self._n_train)
        return own if fold is None else replace(own, limit_epochs=None)

    def remove(self, number: int) -> None:
        """Remove a trial; its state stays readable until the next epoch."""
        del self._lanes[number]

    def network(self, number: int) -> NetworkDescription:
        """Return the network of a lane."""
        return self._lanes[number].network

    def has_stopped(self, number: int) -> bool:
        """Return whether a trial has waited long enough for a better value."""
        return self._lanes[number].patience.is_over

    def weights(self, number: int) -> dict[str, torch.Tensor]:
        """Return a copy of the weights that a lane was judged by, as in the `state_dict`."""
        places = self._require_places()
        with self.no_grad(), places.averaged():
            return places.weights(places.positions[number])

    def scores(self, number: int) -> ReportScores | None:
        """Return an object that computes all metrics of a lane's last epoch; None: no more."""
        return self.problem.scores(self._outputs_of(self._require_places().positions[number]))

    def _outputs_of(self, position: int) -> torch.Tensor | None:
        """Return a copy (N, C) of a lane's outputs, which keeps no memory of other lanes."""
        return None if self._outputs is None else self._outputs[position].T.clone()

    def judged_outputs(self, number: int) -> npt.NDArray[np.float64]:
        """Return the outputs (N, C) of a fold's last epoch for the rows that judge it."""
        outputs = self._outputs_of(self._require_places().positions[number])
        assert outputs is not None, "its pack keeps them"
        return outputs[: self._n_judged(self._lanes[number])].double().cpu().numpy()

    def state(self, number: int, epoch: int) -> dict[str, Any]:
        """Return a state that suffices to go on after `epoch`, here or by `NetworkTrainer`."""
        with self.no_grad():
            places = self._require_places()
            position = places.positions[number]
            optimizer = {k: lanes.vector(position) for k, lanes in places.optimizer.moments.items()}
            if "mean" in optimizer:
                n_steps = (epoch + 1) * self._n_batches
                optimizer["n_steps"] = torch.tensor(n_steps, dtype=torch.float32)
            state = {"epoch": epoch, "weights": places.weights(position), "optimizer": optimizer}
            if places.average is not None:
                state["average"] = places.average.lanes.vector(position)
            return state | self._lanes[number].patience.state()

    def rewind(self) -> None:
        """Take all lanes back to the start of an epoch that broke, where their states are valid."""
        if self._places is None:
            return
        with self.no_grad():
            tensors = self._require_places().tensors()
            for name, before in self._before.items():
                tensors[name].copy_(before)

    # --- training -------------------------------------------------------------------------------

    def run_epoch(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train an epoch, and return each lane's metrics or its divergence."""
        ended = self.train_epoch()
        self.settle()
        return ended

    def train_epoch(self) -> dict[int, dict[str, float] | DivergedError]:
        """Train as `run_epoch` does; until `settle`, `rewind` can still undo the epoch."""
        with self.no_grad():
            places = self._place()
            self._before = {name: tensor.clone() for name, tensor in places.tensors().items()}
            self._train(places)
            with places.averaged():
                sums = torch.stack([places.train_sums(), *self._evaluate(places)]).tolist()
        ended: dict[int, dict[str, float] | DivergedError] = {}
        for number, position in places.positions.items():
            lane = self._lanes[number]
            own_sums = [row[position] for row in sums]
            n_rows = self._n_train, self._n_judged(lane)
            outputs = None if self._outputs is None else self._outputs[position].T
            try:
                metrics = self.problem.metrics(
                    own_sums, n_rows, outputs, epoch=lane.epoch, params=lane.params
                )
                if lane.fold is None:
                    lane.patience = lane.patience.after(metrics)
                ended[number] = metrics
            except DivergedError as error:
                ended[number] = error
            lane.epoch += 1
        return ended

    def settle(self) -> None:
        """Make the last epoch final: `rewind` can no longer undo it."""
        self._before = {}

    def _n_judged(self, lane: PackLane) -> int:
        """Return the number of rows that judge a lane."""
        return self._n_validation if lane.fold is None else len(self._folds[lane.fold].judged)

    def _evaluate(self, places: LanePlaces[Any]) -> Sequence[torch.Tensor]:
        """Return the sums of `LanePlaces.evaluate`, or zeros without rows to judge by."""
        n_rows = max((len(fold.judged) for fold in self._folds), default=self._n_validation)
        if not n_rows:
            nothing = torch.zeros(len(places.lanes), dtype=torch.float64, device=self._device)
            return nothing, nothing
        self._outputs = None
        keeps = self.keeps_outputs if self._folds else self.problem.judged is not None
        if keeps:
            shape = len(places.lanes), self.problem.n_outputs, n_rows
            self._outputs = self.problem.output_buffer(*shape, device=self._device)
        return places.evaluate(self._outputs)

    @property
    def _n_batches(self) -> int:
        return -(-self._n_train // self._batch_size)

    def _train(self, places: LanePlaces[Any]) -> None:
        """Train all lanes for one pass over the training part."""
        lanes = places.lanes
        places.begin_epoch()
        n_steps = [lane.epoch * self._n_batches for lane in lanes]
        places.optimizer.begin_epoch(n_steps, self._n_batches, self._lr_factors(lanes, n_steps))
        if places.average is not None:
            places.average.begin_epoch(n_steps, self._n_batches)
        for index, rows in enumerate(torch.split(self._orders(lanes), self._batch_size, dim=1)):
            places.step(index, rows)
            if step_counter.tell_step(places.values.flat, len(lanes)):
                break

    def _lr_factors(
        self, lanes: Sequence[PackLane], n_steps: Sequence[int]
    ) -> list[list[float]] | None:
        """Return the factors (K, S) of the learning rates; None if the schedule is constant."""
        schedule = lanes[0].params.schedule
        if schedule == LearningRateSchedule.constant.value:
            return None
        n_all = self.problem.training.n_epochs * self._n_batches
        return [
            [lr_factor(schedule, step, n_all) for step in range(n, n + self._n_batches)]
            for n in n_steps
        ]

    def _orders(self, lanes: Sequence[PackLane]) -> torch.Tensor:
        """Return the order (K, N) of the training rows for each lane."""
        orders = torch.empty(len(lanes), self._n_train, dtype=torch.int64)
        for lane, order in zip(lanes, orders, strict=True):
            self._shuffle.manual_seed(derive_seed(lane.seed, SeedUse.SHUFFLE, lane.epoch))
            if lane.fold is None:
                torch.randperm(self._n_train, generator=self._shuffle, out=order)
                continue
            rows = self._folds[lane.fold].train
            drawn = draw_epoch_order(len(rows), self._n_train, self._shuffle)
            torch.index_select(rows, 0, drawn, out=order)
        return orders.to(self._device)

    # --- places ---------------------------------------------------------------------------------

    def _place(self) -> LanePlaces[Any]:
        """Return the lanes in their places, which are made anew if lanes have come or gone."""
        old = self._places
        stayed = {n for n, lane in self._lanes.items() if lane.arriving is None}
        if old is not None and stayed == old.positions.keys() == self._lanes.keys():
            return old
        places = self.make_places(self._lanes)
        if old is not None:
            places.take(old, {old.positions[n]: places.positions[n] for n in stayed})
        for number, lane in self._lanes.items():
            if lane.arriving is not None:
                places.arrive(places.positions[number], lane.arriving)
                lane.arriving = None
        self._places = places
        return places

    def _require_places(self) -> LanePlaces[Any]:
        assert self._places is not None, "a lane has a state after its first epoch"
        return self._places

    def _first_state(self, network: NetworkDescription, seed: int) -> dict[str, Any]:
        weights_seed = derive_seed(seed, SeedUse.WEIGHTS)
        module = network.build(self.problem.dtype, torch.device("cpu"), weights_seed)
        return {"weights": module.state_dict()}
