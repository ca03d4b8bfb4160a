"""The light side of what families of networks share: they train by `Trainer` and `packs/`, and
differ in the network that a trial's params ask for.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

from automl.config import ExportFormat, Precision, Schedule, TrainingConfig
from automl.config.losses import EVERYBODYS
from automl.training.family import Family
from automl.training.params import TrainingParams, with_settings
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

MOST_EPOCHS, PATIENCE_STEPS = 200, 1000
"""Of a network whose length nobody says: so many epochs at most, as long as so many steps bring
anything better. On small tables these are many epochs, on large ones few."""
_FIRST_STEPS, _SMALL_BATCH = 125, 32
"""Networks are compared from so many steps on, at batches of such a size."""
_STEP_SECONDS, _FLOPS_PER_SECOND = 2e-4, 2e10
"""Of a core: what a step takes whatever it computes; how fast it does (experiments/020-long)."""


@dataclass(frozen=True)
class NetworkKey:
    """What lanes of networks have in common; see `PackKey`."""

    on_host: bool
    optimizer: str
    batch_size: int
    precision: Precision
    schedule: str = Schedule.constant.value
    """Where the learning rate stays, a step is computed in fewer roundings; so that no lane's
    numbers depend on its neighbours', all have the same."""
    averages: bool = False
    """Whether there is a copy of the weights that is averaged; its decay may differ by lane."""

    def of_one_trial(self) -> Self:
        """See `PackKey`."""
        return self


@dataclass
class NetworkFamily(Family):
    """Networks that are trained by gradients on the one-hot view of a table."""

    export_formats: ClassVar[tuple[ExportFormat, ...]] = tuple(ExportFormat)
    losses = (*EVERYBODYS, "absolute_error", "quantile")

    @abstractmethod
    def params(self, given: Params) -> TrainingParams:
        """A trial's params, checked. Raises ValueError or TypeError."""

    def checked_params(self, given: Params, training: TrainingConfig) -> TrainingParams | None:
        """Of a trial with the study's settings; None for params that no trial can have: it will
        fail and say so."""
        try:
            return self.params(with_settings(given, training))
        except (TypeError, ValueError):
            return None

    def trained(self, training: TrainingConfig) -> TrainingConfig:
        if training.epochs is not None:
            return training
        steps = training.patience_steps or PATIENCE_STEPS
        return replace(training, epochs=MOST_EPOCHS, patience_steps=steps)

    def n_first_reports(self, training: TrainingConfig, n_rows: int) -> int:
        """Of a length that is said, as it is; else by steps."""
        if training.patience_steps is None:
            return 1
        return math.ceil(_FIRST_STEPS / math.ceil(n_rows / _SMALL_BATCH))

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        checked = self.checked_params(params, training)
        return None if checked is None else checked.limit_epochs(training.patience_steps, n_rows)

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """Of the size that is tried first, by the smallest batches, and where patience ends it as
        long as that lasts."""
        params, one = self._first_tried(ends), dataset.of_one_model
        patience = self.patience_epochs(params, training, one.n_train)
        if patience is not None:
            training = replace(training, epochs=min(training.n_epochs, patience))
        work = self.work(params, one, training)
        if work is None:
            return None
        step_seconds = _STEP_SECONDS + work.step_flops / _FLOPS_PER_SECOND
        return dataset.n_models * work.n_steps * step_seconds

    def _first_tried(self, ends: Mapping[str, Iterable[ParamValue]]) -> Params:
        """The sizes of the portfolio's first as far as a space with these `ends` has them, and its
        smallest batches."""
        point = {**next(iter(self.portfolio()), {}), "batch_size": 0}
        sizes = {n: [end for end in of if type(end) is int] for n, of in ends.items()}
        wanted = {name: value for name, value in point.items() if type(value) is int}
        return {
            name: min(max(value, min(sizes[name])), max(sizes[name]))
            for name, value in wanted.items()
            if sizes.get(name)
        }

    def check_space(self, names: tuple[str, ...]) -> None:
        return None
