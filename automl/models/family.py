"""The contract of families: what kind of model is trained, one folder each.

A family has a light side and a heavy one. The light side is a class whose fields are the settings
of `model=NAME`; the parent process asks it by names and arithmetic, and loads no torch for that.
The heavy side is a module that the worker imports by its name. To add a family is to add a folder
with a `family.py`, and `conf/model/NAME.yaml`.

How many trials train together. What can is the family's to say: see `family.PackKey`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias, cast

from automl.config import Config, ExportFormat, ModelConfig, TrainingConfig
from automl.config.metrics import COMMON_LOSSES
from automl.errors import ConfigError
from automl.trial import Params, ParamValue, ResourceRequest, TrainingWork

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset, TableRows
    from automl.objectives.goal import FinalReport, StudyGoal
    from automl.objectives.trial_context import TrialContext

OWN_EPOCHS = 20
"""Reports of a trial where nobody says another number, and a family has no other."""

NetworkBuilder: TypeAlias = Callable[..., Any]
"""(n_inputs, n_outputs, **arguments) → a `torch.nn.Module` of the user's."""


class PackKey(Protocol):
    """Trials of one study whose keys are equal can train together, on one kind of device."""

    @property
    def n_lanes(self) -> int:
        """How many are worth training together; 1: none."""

    def of_one_trial(self) -> PackKey:
        """For a pack of the folds of one trial alone, whose models are all of one shape."""

    def __hash__(self) -> int: ...


@dataclass
class Family(ModelConfig, ABC):
    """The light side."""

    @property
    @abstractmethod
    def users_target(self) -> tuple[str, str] | None:
        """Key and value of the setting that names a function of the user's; None: there is none."""

    @abstractmethod
    def param_names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """The params that it takes (None: any), and those that must be in the space.

        May import the user's module, so it is called where that may be. Raises ConfigError.
        """

    @abstractmethod
    def check_value(self, name: str, value: ParamValue) -> None:
        """Raise ValueError where it cannot take this value of this param."""

    @abstractmethod
    def check_space(self, names: tuple[str, ...]) -> None:
        """Raise ConfigError where params of a space do not go together."""

    @abstractmethod
    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        """What a trial will want: memory, rather too much, and on which kinds of device."""

    def work(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> TrainingWork | None:
        """What a whole trial has to compute; None: nobody knows before it runs."""
        return None

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """About what a slow trial of a space with these `ends` takes of a core, at least; None:
        arithmetic does not tell. For a word beforehand, not to decide anything by."""
        return None

    @abstractmethod
    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> PackKey | None:
        """What a trial can train together with; None: it trains alone."""

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """What may not change while a study lasts, as JSON values."""

    def check_training(self, training: TrainingConfig) -> None:
        """Raise ConfigError for a setting of the training that it has no use for."""
        self.check_loss(training)

    losses: ClassVar[tuple[str, ...]] = COMMON_LOSSES
    """Of `config.losses`, those that it can descend."""

    def check_loss(self, training: TrainingConfig) -> None:
        """Raise ConfigError for one of ours that it does not have."""
        if training.loss_target is None and training.loss not in self.losses:
            having = [n for n, cls in load_families().items() if training.loss in cls.losses]
            raise ConfigError(
                f"training.loss={training.loss}: model={family_name(self)} does not have it. Those "
                f"that do: {', '.join(having)}."
            )

    says_length: ClassVar[bool] = False
    """Whether it says how long it trains, by `trained`, where nobody chose; else 20 epochs are."""

    def trained(self, training: TrainingConfig) -> TrainingConfig:
        """The settings with the length that a trial of this family has, where none is said."""
        return replace(training, epochs=training.epochs or OWN_EPOCHS)

    def n_reports(self, training: TrainingConfig) -> int:
        """Of a whole trial, of settings that say its length."""
        return training.n_epochs

    def n_first_reports(self, training: TrainingConfig, n_rows: int) -> int:
        """Before so many reports a trial on so many rows is no matter to compare."""
        return 1

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        """Reports without a better value after which a trial ends; None: it trains to its end.
        `n_rows` are those of an epoch."""
        return training.patience_epochs

    most_rows: ClassVar[int | None] = None
    """On more, `model=auto` leaves it out where nobody chose the families; None: on none."""

    library: ClassVar[str] = "torch"
    """What it trains with. A process that trains families of other libraries alone never loads
    torch; only torch trains on GPUs."""

    @property
    def uses_torch(self) -> bool:
        """Whether any of its trials does."""
        return self.library == "torch"

    @property
    def modules(self) -> Sequence[str]:
        """What a process that trains imports, by name."""
        return (self.heavy,)

    export_formats: ClassVar[tuple[ExportFormat, ...]] = ()
    """What `export` can make of its models."""

    weighs_classes: ClassVar[bool] = False
    """Whether it has the param `class_weight`."""

    @property
    def by_choice(self) -> Mapping[str, Family]:
        """What the values of `choice` stand for."""
        return {}

    def of(self, params: Params) -> tuple[Family, Params]:
        """The family that a trial is of, and its params as that one names them."""
        return self, params

    def with_own(self, params: Params, own: Params) -> dict[str, ParamValue]:
        """A trial's params with these of its family's in their places: the way back from `of`."""
        return {**params, **own}

    def whole_space(
        self, entries: Mapping[str, Any], n_rows: int | None = None
    ) -> Mapping[str, Any]:
        """The space as it is searched, of what was written; `n_rows` are those of an epoch, None:
        not known yet, which changes no name."""
        return entries

    def notes(self, n_rows: int, entries: Mapping[str, Any]) -> tuple[str, ...]:
        """Lines for people about what `whole_space` makes of these entries."""
        return ()

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """Params that did well on many tables, the best first: tried before what a sampler
        proposes, on this one. They stand in `portfolio.yaml` beside the family."""
        path = Path(inspect.getfile(type(self))).with_name("portfolio.yaml")
        if not path.exists():
            return ()
        import yaml  # which `--help` does without

        points: list[Params] = yaml.safe_load(path.read_text())
        return points

    heavy: ClassVar[str]
    """The module whose `SIDE` is the `HeavySide`; imported by name, where it is needed."""


class HeavySide(Protocol):
    """For the process that trains, or predicts."""

    def open_estimator(
        self,
        family: Any,
        dataset: Any,
        training: TrainingConfig,
        goal: StudyGoal,
        *,
        packs_large: bool,
        n_threads: int,
    ) -> TrialEstimator:
        """Make it ready to train on a `Dataset`; networks of the user's on an `UserTensors`, too.

        `goal` is the study's, by which training may end early.
        `packs_large`: trials may train together where they are too large to gain by it.
        `n_threads`: what a trial may take of the CPU; torch has been told so already.
        """

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        """The model of a `best.pt` of so many bytes, from what its estimator reported as the best.

        The file may be a stranger's: nothing that it names is imported, and nothing made that is
        larger than it. `build` is the caller's own. Raises ValueError and the like for a state
        that contradicts itself, `model_file.BuilderNeededError` where it cannot be made without.
        """


class TrialEstimator(Protocol):
    """Trains one trial after another, called as a user's function is."""

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        """Train a trial to its end, or on from its checkpoint, with reports and checkpoints."""

    def open_pack(self, key: PackKey, device: str) -> Any:
        """A pack (`packs.pack.PackSetup`) without trials yet. Raises whatever says that such trials
        must train alone."""


class TrainedModel(Protocol):
    """A trained model."""

    @property
    def n_outputs(self) -> int:
        """Classes, or 1."""

    @property
    def module(self) -> Any:
        """The `torch.nn.Module`, or a list of those whose mean it is; None: it is no network."""

    def to(self, device: str) -> None:
        """Compute there from now on, as torch names it (`cuda:0`)."""

    def check_columns(self, columns: TableColumns) -> None:
        """Raise ValueError where it was not trained on such columns."""

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        """(N, C) scores whose softmax are the classes' probabilities, or (N, 1) scaled targets."""


@functools.cache
def load_families() -> dict[str, type[Family]]:
    """The class of each option of `model=`: the one that NAME/family.py defines."""
    package = importlib.import_module("automl.models.families")
    found: dict[str, type[Family]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg and find_spec(f"automl.models.families.{info.name}.family") is not None:
            module = importlib.import_module(f"automl.models.families.{info.name}.family")
            for cls in vars(module).values():
                if _is_option(cls) and cls.__module__ == module.__name__:
                    found[info.name] = cls
    return found


def family_of(config: Config) -> Family:
    """Return `config.model`, which Hydra makes by the schema of a family.

    `config/` knows no families, so the key is typed by their base class there.
    """
    return cast(Family, config.model)


def load_heavy_side(family: type[Family]) -> HeavySide:
    """Imports what the family trains and predicts with."""
    return cast(HeavySide, importlib.import_module(family.heavy).SIDE)


def _is_option(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Family) and not inspect.isabstract(value)


def family_name(family: Family) -> str:
    """What the user chose it by, and what `best.pt` says."""
    return next(name for name, cls in load_families().items() if cls is type(family))


PackSetting: TypeAlias = "Literal['auto', 'off'] | int"
"""`execution.pack`: as many as are worth it, none, or this many lanes."""


def pack_size(key: PackKey, setting: PackSetting) -> int:
    """How many lanes a pack of this key has; 1: train alone."""
    if setting == "off":
        return 1
    return key.n_lanes if setting == "auto" else setting
