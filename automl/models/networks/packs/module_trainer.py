"""Trains packs of a user's own module: one module with other weights in each lane, by `torch.func`.

A test step finds modules that cannot be packed, when the pack is opened: `vmap` cannot run LSTM,
`.item()` or an `if` on data, and random numbers drawn in `forward` would make a lane depend on the
others. How torch sums depends on the number of lanes and on a lane's place. Each lane therefore
keeps its place, and free places train too, as ghosts without a reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap

from automl.in_trial.seeds import SeedUse, derive_seed
from automl.models.families.python.family import ModuleKey, ModuleParams
from automl.models.networks.losses import EvaluatedLoss
from automl.models.networks.network import NetworkDescription
from automl.models.networks.packs.layout import LaneWeights, StackedLayout
from automl.models.networks.packs.trainer import LanePlaces, PackLane, PackTrainer
from automl.models.networks.tensors import DataTensors
from automl.models.networks.trainer import TrainingProblem

Tensors: TypeAlias = "dict[str, torch.Tensor]"
"""The tensors of one lane, by the module's names."""
MAX_WEIGHTS_ON_HOST = 2**14
"""The most weights of a network that gains by packs on a CPU (`experiments/002-packs`)."""
_EVALUATION_ROWS = 1024  # in a pass without gradients, of each lane
_PROBE_LANES = 3


class ModulePackTrainer(PackTrainer):
    """A `PackTrainer` for any module; all lanes are built with the same arguments."""

    no_grad = torch.no_grad  # torch.func differentiates; tensors of inference mode cannot be

    def __init__(
        self, problem: TrainingProblem, key: ModuleKey, data: DataTensors, *, device: str
    ) -> None:
        """Build the module and test it. Any exception means that it cannot be packed."""
        super().__init__(problem, key.batch_size, data, device=device)
        self._data = data
        self._network = problem.network(ModuleParams(arguments=key.arguments))
        seed = derive_seed(0, SeedUse.WEIGHTS)
        self._skeleton = self._network.build(problem.dtype, self._device, seed)
        ema_decay = 0.5 if key.averages else 0.0
        self._ghost_params = ModuleParams(
            optimizer=key.optimizer, schedule=key.schedule, ema_decay=ema_decay
        )
        self._numbers: list[int | None] = []
        """The trial in each place, or None. There are at least two places, because a product of one
        matrix has other last bits than one among many."""
        n_weights = sum(p.numel() for p in self._skeleton.parameters())
        if key.on_host and n_weights > MAX_WEIGHTS_ON_HOST:
            self.no_gain_reason = (
                f"{n_weights:,} weights; on a CPU networks of more than {MAX_WEIGHTS_ON_HOST:,} "
                "gain nothing together (execution.pack=N packs them)"
            )
        self._probe()
        self._numbers.clear()

    def make_places(self, lanes: Mapping[int, PackLane]) -> ModuleLanePlaces:
        numbers = [n if n in lanes else None for n in self._numbers]
        for number in lanes:
            if number in numbers:
                continue
            if None in numbers:
                numbers[numbers.index(None)] = number
            else:
                numbers.append(number)
        self._numbers = [*numbers, *[None] * (2 - len(numbers))]
        in_order = [self._ghost() if n is None else lanes[n] for n in self._numbers]
        return ModuleLanePlaces(
            self._numbers,
            in_order,
            self.problem.loss,
            self._skeleton,
            self._data,
            n_evaluation_rows=self.problem.n_evaluation_rows(self._batch_size, _EVALUATION_ROWS),
        )

    def _ghost(self) -> PackLane:
        patience = self.problem.patience(self._ghost_params, self._n_train)
        return PackLane(
            self._ghost_params,
            self._network,
            seed=0,
            epoch=0,
            patience=patience,
            arriving=None,
            fold=0 if self._folds else None,
        )

    def weight_shapes(self, network: NetworkDescription) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(t.shape) for name, t in self._skeleton.state_dict().items()}

    def _probe(self) -> None:
        """Raise ValueError, or what `vmap` raises, if packed steps differ from single ones."""
        module = self._network.build(
            self.problem.dtype, self._device, derive_seed(1, SeedUse.WEIGHTS)
        )
        kept = self._skeleton.state_dict()
        for name, buffer in self._skeleton.named_buffers():
            if name not in kept and not torch.equal(buffer, module.get_buffer(name)):
                raise ValueError(f"its buffer {name} differs by seed and is not in its state_dict")
        lanes = {number: self._ghost() for number in range(_PROBE_LANES)}
        with self.no_grad():
            places = self.make_places(lanes)
            for position in range(_PROBE_LANES):
                places.write_weights(position, module.state_dict())
            places.begin_epoch()
            rows = torch.arange(self._batch_size, device=self._device).expand(_PROBE_LANES, -1)
            places.find_gradients(rows)
            loss = places.train_sums() / self._batch_size
            self._evaluate(places)
        x, y = self._data.train.x[: self._batch_size], self._data.train.y[: self._batch_size]
        out = module.train()(x)
        self.problem.loss.check(out, y)
        expected = self.problem.loss.mean(out, y)
        expected.backward()  # type: ignore[no-untyped-call]
        same = torch.allclose(loss, expected.detach().double(), rtol=1e-3, atol=1e-5)
        trained = [p for p in module.parameters() if p.requires_grad]
        for own, parameter in zip(places.grads.parts(0), trained, strict=True):
            grad = torch.zeros_like(own) if parameter.grad is None else parameter.grad
            same = same and torch.allclose(own, grad, rtol=1e-2, atol=1e-4)
        if not same:
            raise ValueError("its gradients stacked are not those it has by itself")


class ModuleLanePlaces(LanePlaces[StackedLayout]):
    """The `LanePlaces` of modules. Buffers and frozen parameters are stacked beside the weights."""

    def __init__(
        self,
        numbers: Sequence[int | None],
        lanes: Sequence[PackLane],
        loss: EvaluatedLoss,
        skeleton: nn.Module,
        data: DataTensors,
        *,
        n_evaluation_rows: int,
    ) -> None:
        """Take `skeleton`, a module of the lanes' kind; only its structure is used."""
        trained = {n: p.detach() for n, p in skeleton.named_parameters() if p.requires_grad}
        if not trained:
            raise ValueError(
                f"{type(skeleton).__name__} has no parameter that requires a gradient."
            )
        layout = StackedLayout(len(lanes), {name: tuple(p.shape) for name, p in trained.items()})
        example = next(iter(trained.values()))
        values, grads = (LaneWeights(layout, example.dtype, example.device) for _ in range(2))
        super().__init__(numbers, lanes, values, grads)
        self._skeleton, self._data, self._n_evaluation_rows = skeleton, data, n_evaluation_rows
        everything = {**dict(skeleton.named_parameters()), **dict(skeleton.named_buffers())}
        self._rest = {
            name: tensor.detach().expand(len(lanes), *tensor.shape).clone()
            for name, tensor in everything.items()
            if name not in trained
        }
        self._names = _canonical_names(skeleton)
        tied = {
            name: own
            for name, own in self._names.items()
            if _owner(skeleton, name) is not _owner(skeleton, own)
        }
        self._totals = torch.zeros(len(lanes), dtype=torch.float64, device=example.device)
        functional = _FunctionalLoss(loss, skeleton, tied)
        self._find_gradients = vmap(
            grad_and_value(functional.train_loss), in_dims=(0, 0, 0, 0), randomness="error"
        )
        in_dims = (0, 0, 0, 0) if data.folds else (0, 0, None, None)
        self._sums_of_lanes = vmap(functional.sums, in_dims=in_dims, randomness="error")
        self._sums_of_lane = functional.sums

    def begin_epoch(self) -> None:
        self._totals.zero_()

    def find_gradients(self, rows: torch.Tensor) -> None:
        self._skeleton.train()
        flat = rows.reshape(-1)
        x, y = (
            t.index_select(0, flat).view(*rows.shape, *t.shape[1:])
            for t in (self._data.train.x, self._data.train.y)
        )
        grads, losses = self._find_gradients(dict(self.values.views), self._rest, x, y)
        for name, view in self.grads.views.items():
            view.copy_(grads[name])
        self._totals.add_(losses, alpha=rows.shape[1])

    def train_sums(self) -> torch.Tensor:
        return self._totals

    def evaluate(self, outputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        self._skeleton.eval()
        if self._data.folds:
            return self._evaluate_folds(outputs)
        sums = torch.zeros(2, len(self.lanes), dtype=torch.float64, device=self._totals.device)
        part, begin = self._data.validation, 0
        pieces = (torch.split(t, self._n_evaluation_rows) for t in (part.x, part.y))
        for x, y in zip(*pieces, strict=True):
            if not len(y):  # without a validation part: not every network takes 0 rows
                continue
            loss, miss, out = self._sums_of_lanes(dict(self.values.views), self._rest, x, y)
            sums[0] += loss
            sums[1] += miss
            if outputs is not None:
                outputs[:, :, begin : begin + len(y)] = out.transpose(1, 2)
                begin += len(y)
        return sums[0], sums[1]

    def _evaluate_folds(self, outputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Evaluate each lane on the rows of its fold.

        All lanes evaluate as many rows as the smallest fold has together; each lane evaluates the
        rest by itself.
        """
        sums = torch.zeros(2, len(self.lanes), dtype=torch.float64, device=self._totals.device)
        folds = self._data.folds
        rows = [folds[lane.fold].judged for lane in self.lanes if lane.fold is not None]
        # The smallest of all folds, also of those without a lane now: no lane depends on others.
        n_common = min(len(fold.judged) for fold in folds)
        common = torch.stack([own[:n_common] for own in rows])
        begin = 0
        for batch in torch.split(common, self._n_evaluation_rows, dim=1):
            x, y = (
                t.index_select(0, batch.reshape(-1)).view(*batch.shape, *t.shape[1:])
                for t in (self._data.train.x, self._data.train.y)
            )
            loss, miss, out = self._sums_of_lanes(dict(self.values.views), self._rest, x, y)
            sums += torch.stack([loss, miss])
            if outputs is not None:
                outputs[:, :, begin : begin + batch.shape[1]] = out.transpose(1, 2)
                begin += batch.shape[1]
        for position, own in enumerate(rows):
            trained = {name: view[position] for name, view in self.values.views.items()}
            rest = {name: tensor[position] for name, tensor in self._rest.items()}
            begin = n_common
            for batch in torch.split(own[n_common:], self._n_evaluation_rows):
                if not len(batch):
                    continue
                x, y = self._data.train.x[batch], self._data.train.y[batch]
                loss, miss, out = self._sums_of_lane(trained, rest, x, y)
                sums[:, position] += torch.stack([loss, miss])
                if outputs is not None:
                    outputs[position, :, begin : begin + len(batch)] = out.T
                    begin += len(batch)
        return sums[0], sums[1]

    def weights(self, position: int) -> dict[str, torch.Tensor]:
        return {name: self._stacked(own)[position].clone() for name, own in self._names.items()}

    def write_weights(self, position: int, weights: Mapping[str, torch.Tensor]) -> None:
        for name, own in self._names.items():
            self._stacked(own)[position].copy_(weights[name])

    def tensors(self) -> dict[str, torch.Tensor]:
        return super().tensors() | {f"rest.{name}": t for name, t in self._rest.items()}

    def take(self, old: LanePlaces[StackedLayout], moves: Mapping[int, int]) -> None:
        super().take(old, moves)
        assert isinstance(old, ModuleLanePlaces)
        for name, tensor in self._rest.items():
            for old_position, position in moves.items():
                tensor[position].copy_(old._rest[name][old_position])

    def _stacked(self, name: str) -> torch.Tensor:
        """Return the tensor of all lanes, by the name of its parameter or buffer."""
        return self.values.views[name] if name in self.values.views else self._rest[name]


class _FunctionalLoss:
    """The loss of a module as a function of the tensors of one lane.

    It does not refer to the places: a cycle would keep a pack's memory until Python's garbage
    collector runs.
    """

    def __init__(self, loss: EvaluatedLoss, skeleton: nn.Module, tied: Mapping[str, str]) -> None:
        """Take `tied`: from the name of a tied parameter to the name of its stacked tensor."""
        self._loss, self._skeleton, self._tied = loss, skeleton, tied

    def train_loss(
        self, trained: Tensors, rest: Tensors, x: torch.Tensor, y: torch.Tensor
    ) -> torch.Tensor:
        """Return the mean loss over a batch."""
        return self._loss.mean(self._call(trained, rest, x), y)

    def sums(
        self, trained: Tensors, rest: Tensors, x: torch.Tensor, y: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the sums over rows of the loss and of misses, and the outputs."""
        out = self._call(trained, rest, x)
        total = self._loss.total(out, y)
        return total, self._loss.misses(out, y, total), out

    def _call(self, trained: Tensors, rest: Tensors, x: torch.Tensor) -> torch.Tensor:
        tensors = {**trained, **rest}
        tied = {name: tensors[own] for name, own in self._tied.items()}
        # With tie_weights=True a submodule that is used twice keeps tensors of vmap's afterwards.
        out: torch.Tensor = functional_call(self._skeleton, tensors | tied, (x,), tie_weights=False)
        return out


def _canonical_names(module: nn.Module) -> dict[str, str]:
    """Map each name in `state_dict` to the name under which a tied parameter is found first."""
    first: dict[int, str] = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            first.setdefault(id(tensor), name)
    tensors = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    return {name: first[id(tensors[name])] for name in module.state_dict()}


def _owner(module: nn.Module, name: str) -> nn.Module:
    """Return the submodule that holds a parameter or buffer."""
    return module.get_submodule(name.rpartition(".")[0])
