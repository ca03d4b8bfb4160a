"""Defines the light side of `model=auto`, where a param of each trial chooses its family.

The params of a family are in the space with its name before them (`mlp_depth`), on the condition
that the trial chose it. All questions about a trial go to its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from automl.config import TrainingConfig, check_setting
from automl.errors import ConfigError
from automl.models.families.boosting.family import LARGE_TABLE_ROWS
from automl.models.family import Family, PackKey, load_families
from automl.models.networks.network_family import (
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    check_param_value,
    whole_number,
)
from automl.trial import (
    FAMILY_PARAM,
    ROWS_PARAM,
    UNKNOWN_REQUEST,
    Params,
    ParamValue,
    ResourceRequest,
    TrainingWork,
)

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

BY_ROWS, BATCH_SIZES, LEAST_STEPS = "by_rows", (32, 64, 128, 256), 10
"""The space entry `by_rows` stands for the first batch size, and each larger one with at least
`LEAST_STEPS` steps in an epoch."""

MANY_ROWS, PART_ROWS = 100_000, 50_000
"""With more training rows than the first number, the space entry `rows: by_rows` stands for the
second one: trials on so many rows mostly rank as on all."""

DEFAULT = ("linear", "boosting", "trees", "mlp", "kernel")
"""Families of `model=auto`, the cheap ones first."""
JOINING = ("lightgbm", "catboost")
"""Families that `model=auto` has besides where their extra is installed."""
LEADING = ("linear", "boosting", *JOINING)
"""Families that are tried first on a table of more than LARGE_TABLE_ROWS training rows."""


def default_families() -> list[str]:
    """Return the names of the families of `model=auto` by what is installed here."""
    known = load_families()
    return [*DEFAULT, *(name for name in JOINING if not known[name]().missing_extras)]


ROWS_RULE = whole_number(2)


@dataclass(frozen=True)
class FamilyKey:
    """Key of trials that can train together: they chose the same family and its keys are equal."""

    family: str
    key: PackKey
    n_rows: int | None = None
    """Number of rows that the trials train on; None: all."""

    @property
    def n_lanes(self) -> int:
        return self.key.n_lanes

    def of_one_trial(self) -> FamilyKey:
        return replace(self, key=self.key.of_one_trial())


@dataclass
class AutoFamily(Family):
    """A family of several families, one of which each trial chooses."""

    heavy = "automl.models.families.auto.heavy"
    choice = FAMILY_PARAM
    weighs_classes = True
    has_own_length = True

    families: list[str] = field(default_factory=default_families)
    """Names of the families that trials may choose."""

    weights: dict[str, str] = field(default_factory=dict)
    """Path of the weights of each family that loads some: model.weights.tabicl=FILE."""

    def __post_init__(self) -> None:
        others = [name for name in load_families() if name not in ("auto", "python")]
        for name in self.families:
            check_setting(
                name in others,
                "model.families",
                self.families,
                f"may have {', '.join(others)}; {name} is none of them.",
            )
        check_setting(len(self.families) > 0, "model.families", "[]", "must name at least one.")
        for name in self.weights:
            loads = name in self.families and hasattr(load_families()[name], "weights")
            rule = "is for families of model.families that load weights: tabicl, tabpfn."
            check_setting(loads, f"model.weights.{name}", self.weights[name], rule)

    @property
    def by_choice(self) -> Mapping[str, Family]:
        """Each family by its name, with its default settings and its weights."""
        known: Mapping[str, Any] = load_families()
        own = {name: {"weights": path} for name, path in self.weights.items()}
        return {name: known[name](**own.get(name, {})) for name in self.families}

    def with_length(self, training: TrainingConfig, n_rows: int | None = None) -> TrainingConfig:
        """Return the settings unchanged: each member says its own length."""
        return training

    def n_reports(self, training: TrainingConfig) -> int:
        return max(
            family.n_reports(family.with_length(training)) for family in self.by_choice.values()
        )

    def of_trial(self, params: Params) -> tuple[Family, Params]:
        name = str(params.get(FAMILY_PARAM))
        return self.by_choice[name], own_params(name, params)

    def with_family_params(self, params: Params, own: Params) -> dict[str, ParamValue]:
        return {
            **params,
            **{f"{params[FAMILY_PARAM]}_{name}": value for name, value in own.items()},
        }

    @property
    def uses_torch(self) -> bool:
        return any(family.uses_torch for family in self.by_choice.values())

    @property
    def modules(self) -> Sequence[str]:
        members = self.by_choice.values()
        return (self.heavy, *(name for family in members for name in family.modules))

    def param_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        prefixed = [
            f"{name}_{param}"
            for name, family in self.by_choice.items()
            for param in family.param_names()[0] or ()
        ]
        return (FAMILY_PARAM, ROWS_PARAM, CLASS_WEIGHT_PARAM, *prefixed), (FAMILY_PARAM,)

    def check_ready(self) -> None:
        for family in self.by_choice.values():
            family.check_ready()

    def check_training(self, training: TrainingConfig) -> None:
        """Raise ConfigError if a family cannot descend the loss, with a remedy."""
        members = self.by_choice
        if training.loss_target is not None:
            without_torch = [name for name, family in members.items() if family.library != "torch"]
            check_setting(
                not without_torch,
                "training.loss",
                training.loss,
                f"a loss of your own is for networks, and {', '.join(without_torch)} would descend "
                "theirs: take model.families=[mlp], or model=mlp.",
            )
            return
        capable = [name for name, family in members.items() if training.loss_name in family.losses]
        if len(capable) < len(members):
            remedy = f"model.families=[{','.join(capable)}]" if capable else "another model"
            lacking = ", ".join(name for name in members if name not in capable)
            raise ConfigError(
                f"training.loss={training.loss}: {lacking} cannot descend it: take {remedy}."
            )

    def check_value(self, name: str, value: ParamValue) -> None:
        if name == CLASS_WEIGHT_PARAM:
            check_param_value(name, value, {name: CLASS_WEIGHT_RULE})
            return
        if name == ROWS_PARAM:
            check_param_value(name, value, {name: ROWS_RULE})
            return
        if name == FAMILY_PARAM:
            if value not in self.families:
                raise ValueError(
                    f"{FAMILY_PARAM}={value}: must be one of model.families "
                    f"({', '.join(self.families)})."
                )
            return
        family, _, param = name.partition("_")
        try:
            self.by_choice[family].check_value(param, value)
        except ValueError as error:
            raise ValueError(f"{family}_{error}") from error

    def check_space(self, names: tuple[str, ...]) -> None:
        for name, family in self.by_choice.items():
            family.check_space(tuple(own_params(name, dict.fromkeys(names, 0))))

    def searched_space(
        self, entries: Mapping[str, Any], n_rows: int | None = None
    ) -> Mapping[str, Any]:
        """Return the space with the param `family`, and each param on the condition of its family.

        A param's own condition may name other params of the family without the prefix.
        """
        left_out = self._left_out(n_rows, entries)
        included = [name for name in self.families if name not in left_out]
        whole = {FAMILY_PARAM: entries.get(FAMILY_PARAM, {"choices": included})}
        for name, entry in entries.items():
            family, _, _ = name.partition("_")
            is_left_out = family in load_families() and family not in included
            if name == ROWS_PARAM and entry == BY_ROWS:
                whole |= {} if n_rows is not None and n_rows <= MANY_ROWS else {name: PART_ROWS}
            elif name != FAMILY_PARAM and not is_left_out:
                whole[name] = self._with_condition(
                    name, batch_sizes(n_rows) if entry == BY_ROWS else entry
                )
        return whole

    def notes(self, n_rows: int, entries: Mapping[str, Any]) -> tuple[str, ...]:
        left_out, lines = self._left_out(n_rows, entries), list[str]()
        if joined := [name for name in JOINING if name in self.families and self.are_default]:
            verb = "joins" if len(joined) == 1 else "join"
            remedy = f"model.families=[{','.join(DEFAULT)}] leaves out what is no dependency."
            lines.append(f"{' and '.join(joined)} {verb}, being installed: {remedy}")
        if left_out:
            each = [f"{n} (for up to {m:,} rows; {n_rows:,} train)" for n, m in left_out.items()]
            remedy = f"model.families=[{','.join(left_out)},…] has it."
            lines.append(f"left out: {', '.join(each)}. {remedy}")
        if entries.get(ROWS_PARAM) == BY_ROWS and n_rows > MANY_ROWS:
            lines.append(
                f"rows: a trial trains on {PART_ROWS:,} of the {n_rows:,} rows, and the params of "
                "the best are trained again on as many rows as the time allows (trials that have "
                "`rows` above that); ~space.rows lets each trial train on all."
            )
        return tuple(lines)

    @property
    def are_default(self) -> bool:
        """Whether the families are those that some installation has by default."""
        return [name for name in self.families if name not in JOINING] == [*DEFAULT]

    def _left_out(self, n_rows: int | None, entries: Mapping[str, Any]) -> dict[str, int]:
        """Return the families that do not take so many rows, with the most that each takes."""
        if n_rows is None or FAMILY_PARAM in entries or not self.are_default:
            return {}
        limits = {name: family.max_auto_rows for name, family in self.by_choice.items()}
        return {name: n for name, n in limits.items() if n is not None and n_rows > n}

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        if params.get(FAMILY_PARAM) not in self.families:
            return UNKNOWN_REQUEST
        family, own = self.of_trial(params)
        training = family.with_length(training, dataset.n_train)
        return family.request(own, sized_for_trial(params, dataset), training)

    def work(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> TrainingWork | None:
        if params.get(FAMILY_PARAM) not in self.families:
            return None
        family, own = self.of_trial(params)
        training = family.with_length(training, dataset.n_train)
        return family.work(own, sized_for_trial(params, dataset), training)

    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> FamilyKey | None:
        if params.get(FAMILY_PARAM) not in self.families:
            return None
        family, own = self.of_trial(params)
        key = family.pack_key(own, family.with_length(training), on_host=on_host)
        if key is None:
            return None
        return FamilyKey(str(params[FAMILY_PARAM]), key, n_rows_of_trial(params))

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """Return the first point of each family, cheap families first, then the other default
        points of each, then the others in turns.

        On a large table those of LEADING go first: boosted trees reach in seconds what forests and
        networks do not reach in minutes (`experiments/013-tables/large.md`).
        """
        turns: dict[int, list[Params]] = {}
        for name, family in self.by_choice.items():
            for i, point in enumerate(family.portfolio(dataset)):
                own = {f"{name}_{param}": value for param, value in point.items()}
                n_others = max(0, i - family.n_default_points + 1)
                turns.setdefault(min(i, 1) + n_others, []).append({FAMILY_PARAM: name} | own)
        points = [point for _, points in sorted(turns.items()) for point in points]
        if dataset is None or dataset.n_train <= LARGE_TABLE_ROWS:
            return points
        return sorted(points, key=lambda params: params[FAMILY_PARAM] not in LEADING)

    def identity(self) -> Mapping[str, Any]:
        members = self.by_choice.items()
        return {"families": {name: dict(family.identity()) for name, family in members}}

    def _with_condition(self, name: str, entry: Any) -> Any:
        """Return the entry of a param with the condition of its family; other entries unchanged."""
        family, _, _ = name.partition("_")
        if family not in self.families:
            return entry
        if not isinstance(entry, Mapping):
            entry = {"choices": entry} if isinstance(entry, list | tuple) else {"choices": [entry]}
        when = dict(entry.get("when") or {})
        return {**entry, "when": {**when, FAMILY_PARAM: family}}


def n_rows_of_trial(params: Params) -> int | None:
    """Return the number of rows that a trial trains on, or None for all."""
    n_rows = params.get(ROWS_PARAM)
    return n_rows if isinstance(n_rows, int) else None


def sized_for_trial(params: Params, dataset: Dataset) -> Dataset:
    """Return the data set with as many rows as a trial with these params trains on."""
    n_rows = n_rows_of_trial(params)
    return dataset if n_rows is None else dataset.first_rows(n_rows)


def batch_sizes(n_rows: int | None) -> list[int]:
    """Return the batch sizes that give an epoch of `n_rows` enough steps; None: all of them."""
    smallest, *larger = BATCH_SIZES
    return [smallest, *(n for n in larger if n_rows is None or LEAST_STEPS * n <= n_rows)]


def own_params(family: str, params: Params) -> dict[str, ParamValue]:
    """Return the params of a trial that belong to a family, under the family's names.

    `class_weight` belongs to all families that weigh classes, unless a family's own is set.
    """
    prefix = f"{family}_"
    own = {n.removeprefix(prefix): value for n, value in params.items() if n.startswith(prefix)}
    if CLASS_WEIGHT_PARAM in params and load_families()[family].weighs_classes:
        return {CLASS_WEIGHT_PARAM: params[CLASS_WEIGHT_PARAM], **own}
    return own
