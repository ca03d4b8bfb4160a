"""Declares what a family of models is: one kind of model, in one folder of `families/`.

The light side is a class whose fields are the settings of `model=NAME`; the parent process asks it
by names and arithmetic, without torch. The heavy side is a module that the worker imports by its
name.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeAlias,
    cast,
    runtime_checkable,
)

from automl.config import Config, ExportFormat, ModelConfig, TrainingConfig
from automl.config.metrics import COMMON_LOSSES
from automl.errors import ConfigError
from automl.in_trial.goal import MIN_LOSS_GOAL, StudyGoal
from automl.trial import Params, ParamValue, ResourceRequest, TrainingWork

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from automl.data.columns import TableColumns
    from automl.data.dataset import Dataset, TableRows
    from automl.in_trial.goal import FinalReport
    from automl.in_trial.trial_context import TrialContext

OWN_EPOCHS = 20
"""Number of reports of a trial if neither the settings nor the family say another."""

NetworkBuilder: TypeAlias = Callable[..., Any]
"""A function of the user: (n_inputs, n_outputs, **arguments) → a `torch.nn.Module`."""


class PackKey(Protocol):
    """A key of trials: those of a study with equal keys can train together on a kind of device."""

    @property
    def n_lanes(self) -> int:
        """Number of trials that are worth training together; 1: none."""

    def of_one_trial(self) -> PackKey:
        """Return the key of a pack of one trial's folds, whose models all have one shape."""

    def __hash__(self) -> int: ...


@dataclass
class Family(ModelConfig, ABC):
    """The light side of a family: its settings, and what they say of a trial before it runs."""

    @property
    def users_target(self) -> tuple[str, str] | None:
        """Key and value of the setting that names a function of the user; None: no setting does."""
        return None

    @abstractmethod
    def param_names(self) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
        """Return the params that the family takes (None: any), and those the space must have.

        It may import the user's module, so call it only where that is allowed. Raises ConfigError.
        """

    @abstractmethod
    def check_value(self, name: str, value: ParamValue) -> None:
        """Raise ValueError if the family cannot take this value of the param `name`."""

    def check_space(self, names: tuple[str, ...]) -> None:
        """Raise ConfigError if the params of a space do not go together."""

    @abstractmethod
    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        """Return the memory that a trial needs, rather too much, and its kinds of device."""

    def work(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> TrainingWork | None:
        """Return what a whole trial computes; None: unknown before the trial runs."""
        return None

    def trial_seconds(
        self, dataset: Dataset, training: TrainingConfig, ends: Mapping[str, Iterable[ParamValue]]
    ) -> float | None:
        """Return about how many seconds of one core a slow trial takes at least; None: unknown.

        `ends` are the ends of the space's ranges. The figure is for messages to people; decide
        nothing by it.
        """
        return None

    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> PackKey | None:
        """Return the key of the trials that this one can train with; None: it trains alone."""
        return None

    def identity(self) -> Mapping[str, Any]:
        """Return the settings that may not change while a study lasts, as JSON values."""
        return {"family": family_name(self), **asdict(self)}

    def check_training(self, training: TrainingConfig) -> None:
        """Raise ConfigError for a training setting that the family cannot use."""
        self.check_loss(training)

    losses: ClassVar[tuple[str, ...]] = COMMON_LOSSES
    """Names of the losses of `config.metrics` that the family can descend."""

    def check_loss(self, training: TrainingConfig) -> None:
        """Raise ConfigError for a built-in loss that the family lacks."""
        if training.loss_target is None and training.loss_name not in self.losses:
            capable = [n for n, cls in load_families().items() if training.loss_name in cls.losses]
            raise ConfigError(
                f"training.loss={training.loss}: model={family_name(self)} does not have it. Those "
                f"that do: {', '.join(capable)}."
            )

    has_own_length: ClassVar[bool] = False
    """Whether `with_length` says the length that settings leave open; else it is 20 epochs."""

    def with_length(self, training: TrainingConfig, n_rows: int | None = None) -> TrainingConfig:
        """Return the settings with the length of a trial of this family, if they say none.

        `n_rows`: number of training rows of the table; None: unknown.
        """
        return replace(training, epochs=training.epochs or OWN_EPOCHS)

    def n_reports(self, training: TrainingConfig) -> int:
        """Return the number of reports of a whole trial, from settings that say its length."""
        return training.n_epochs

    def likely_reports(self, params: Params, training: TrainingConfig, n_rows: int) -> int:
        """Return about how many reports a trial on `n_rows` makes at least until it ends."""
        return self.n_reports(training)

    def n_first_reports(self, training: TrainingConfig, n_rows: int) -> int:
        """Return the number of reports that a trial on `n_rows` needs before it is compared."""
        return 1

    def patience_epochs(self, params: Params, training: TrainingConfig, n_rows: int) -> int | None:
        """Return how many reports without a better value end a trial; None: no number does."""
        return training.patience_epochs

    max_auto_rows: ClassVar[int | None] = None
    """Number of rows above which `model=auto` leaves the family out; None: no limit."""

    option: ClassVar[str | None] = None
    """Name of the family in `model=NAME`; None: the name of its folder."""

    extra: ClassVar[str | None] = None
    """Name of the library that trains, if it is no dependency but an extra of this package of the
    same name; None: all that trains is installed."""

    @property
    def missing_extras(self) -> Sequence[str]:
        """Names of the extras that the family trains with and that are not installed."""
        return [] if self.extra is None or find_spec(self.extra) is not None else [self.extra]

    def check_ready(self) -> None:
        """Raise ConfigError unless all that a trial needs is here, such as extras."""
        if missing := self.missing_extras:
            listed = ",".join(missing)
            raise ConfigError(
                f"model={family_name(self)}: {listed} must be installed to train such models: "
                f"pip install 'automl-sweep[{listed}]'. A new study may leave it out of "
                "model.families."
            )

    library: ClassVar[str] = "torch"
    """Name of the library that trains. A process that trains only families of other libraries never
    loads torch; only torch trains on GPUs."""

    @property
    def uses_torch(self) -> bool:
        """Whether any trial of the family trains with torch."""
        return self.library == "torch"

    @property
    def modules(self) -> Sequence[str]:
        """Names of the modules that a process imports before it trains."""
        return (self.heavy,)

    export_formats: ClassVar[tuple[ExportFormat, ...]] = ()
    """File formats that `export` can write of the family's models."""

    no_export_reason: ClassVar[str] = ""
    """Why `export` writes no file of the family's models, for messages."""

    weighs_classes: ClassVar[bool] = False
    """Whether the family has the param `class_weight`."""

    @property
    def by_choice(self) -> Mapping[str, Family]:
        """Family that each value of the param `choice` stands for; empty without a choice."""
        return {}

    def of_trial(self, params: Params) -> tuple[Family, Params]:
        """Return the family of a trial, and its params under that family's names."""
        return self, params

    def with_family_params(self, params: Params, own: Params) -> dict[str, ParamValue]:
        """Invert `of_trial`: return a trial's params with its family's params `own` in place."""
        return {**params, **own}

    def searched_space(
        self, entries: Mapping[str, Any], n_rows: int | None = None
    ) -> Mapping[str, Any]:
        """Return the space that is searched, for the `entries` that were written.

        `n_rows` is the number of rows of an epoch; None: not known yet. It changes no name.
        """
        return entries

    def notes(self, n_rows: int, entries: Mapping[str, Any]) -> tuple[str, ...]:
        """Return lines for people about what `searched_space` makes of these entries."""
        return ()

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """Return params that did well on many tables, the best first.

        A study tries them before what a sampler proposes. They stand in `portfolio.yaml` beside the
        family, or in `NAME_portfolio.yaml` for an `option` of its own.
        """
        if not self.portfolio_path.exists():
            return ()
        import yaml  # which `--help` does without

        points: list[Params] = yaml.safe_load(self.portfolio_path.read_text())
        return points

    @property
    def portfolio_path(self) -> Path:
        """Path of the file of `portfolio`, which a family without one lacks."""
        file_name = "portfolio.yaml" if self.option is None else f"{self.option}_portfolio.yaml"
        return Path(inspect.getfile(type(self))).with_name(file_name)

    n_default_points: ClassVar[int] = 1
    """Number of first points of the portfolio that have the library's defaults among them.
    `model=auto` tries one point of each family, then the other default points, then the rest."""

    heavy: ClassVar[str]
    """Name of the module whose `SIDE` is the `HeavySide`; imported only where it is needed."""


@dataclass(frozen=True)
class EstimatorSetup:
    """What an estimator trains, and on which data."""

    family: Any
    dataset: Any
    """A `Dataset`; networks train on `UserTensors`, too."""
    training: TrainingConfig
    goal: StudyGoal = MIN_LOSS_GOAL
    """The study's goal, by which training may end early."""
    may_pack: bool = True
    """Trials may train together, and the folds of a trial, where their family can do it."""
    packs_large: bool = False
    """Trials may train together even if they are too large to gain by it."""
    n_threads: int = 1
    """Number of CPU threads of a trial; torch is already set to it."""


class HeavySide(Protocol):
    """The heavy side of a family: makes what trains, and reads models to predict with."""

    def open_estimator(self, setup: EstimatorSetup) -> TrialEstimator: ...

    def read_model(
        self, state: Mapping[str, Any], *, file_bytes: int, build: NetworkBuilder | None
    ) -> TrainedModel:
        """Return the model of a `best.pt` of `file_bytes`, from the state that was its best report.

        The file may be a stranger's: nothing that it names is imported, and nothing is made that is
        larger than the file. `build` comes from the caller. Raises ValueError or a similar
        exception for a state that contradicts itself, and `model_file.BuilderNeededError` if only
        `build` can make the model.
        """


@runtime_checkable
class ForestHeavySide(Protocol):
    """A heavy side whose models are means of trees, of which any may be left out."""

    def n_leaves(self, state: Mapping[str, Any]) -> int:
        """Return the number of leaves of all trees of a model's state."""

    def first_trees(self, state: Mapping[str, Any], share: float) -> Mapping[str, Any]:
        """Return the state of a model with this share of the trees, at least one."""


class TrialEstimator(Protocol):
    """Trains one trial after another; it is called in the way of a user's function."""

    def __call__(self, trial: TrialContext) -> FinalReport | None:
        """Train a trial to its end, from its checkpoint if there is one, and report to it."""

    def open_pack(self, key: PackKey, device: str) -> Any:
        """Return an empty pack (`packs.pack.PackSetup`), or raise if trials must train alone."""


class TrainedModel(Protocol):
    """A trained model that gives outputs for encoded rows of a table."""

    @property
    def n_outputs(self) -> int:
        """Number of classes; 1 for regression."""

    @property
    def module(self) -> Any:
        """The `torch.nn.Module`, or a list of modules for a mean of several; None: no network."""

    def to(self, device: str) -> None:
        """Move the model to a device, named as in torch (`cuda:0`)."""

    def check_columns(self, columns: TableColumns) -> None:
        """Raise ValueError if the model was not trained on columns like these."""

    def outputs(self, columns: TableColumns, rows: TableRows) -> npt.NDArray[np.float64]:
        """Return scores (N, C), whose softmax are probabilities, or scaled targets (N, 1)."""


@functools.cache
def load_families() -> dict[str, type[Family]]:
    """Return the class of each option of `model=`, which `families/NAME/family.py` defines.

    The file may define several families of one kind, of which all but one name their `option`.
    """
    package = importlib.import_module("automl.models.families")
    found: dict[str, type[Family]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        if info.ispkg and find_spec(f"automl.models.families.{info.name}.family") is not None:
            module = importlib.import_module(f"automl.models.families.{info.name}.family")
            for cls in vars(module).values():
                if _is_option(cls) and cls.__module__ == module.__name__:
                    found[cls.option or info.name] = cls
    return found


def family_of(config: Config) -> Family:
    """Return `config.model`, which Hydra makes by the schema of a family.

    `config/` knows no families, so the key is typed by their base class there.
    """
    return cast(Family, config.model)


def load_heavy_side(family: type[Family]) -> HeavySide:
    """Import the module that the family trains and predicts with, and return its heavy side."""
    return cast(HeavySide, importlib.import_module(family.heavy).SIDE)


def _is_option(value: object) -> bool:
    return inspect.isclass(value) and issubclass(value, Family) and not inspect.isabstract(value)


def family_name(family: Family) -> str:
    """Return the name of a family in `model=NAME` and in `best.pt`."""
    return next(name for name, cls in load_families().items() if cls is type(family))


PackSetting: TypeAlias = "Literal['auto', 'none'] | int"
"""Type of `execution.pack`: as many lanes as are worth it, none, or this many."""


def pack_size(key: PackKey, setting: PackSetting) -> int:
    """Return how many lanes a pack with this key has; 1: trials train alone."""
    if setting == "none":
        return 1
    return key.n_lanes if setting == "auto" else setting
