"""The light side of `model=auto`: which family a trial is of is one of its params.

The params of a family are in the space with its name before them (`mlp_depth`), under the condition
that the trial is of it. Everything that is asked of a trial is asked of its family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from automl.config import TrainingConfig, check
from automl.errors import ConfigError
from automl.models.family import Family, PackKey, load_families
from automl.models.networks.network_family import (
    CLASS_WEIGHT_PARAM,
    CLASS_WEIGHT_RULE,
    check_param_value,
)
from automl.trial import UNKNOWN, Params, ParamValue, ResourceRequest, TrainingWork

if TYPE_CHECKING:
    from automl.data.dataset import Dataset

FAMILY_PARAM = "family"
"""The param that names the family of a trial."""
BY_ROWS, BATCH_SIZES, LEAST_STEPS = "by_rows", (32, 64, 128, 256), 10
"""An entry of the space: those of these choices with so many steps in an epoch, and the first."""


DEFAULT = ("linear", "boosting", "trees", "mlp", "kernel")
"""Families, the cheap ones first; on many rows those of them alone that take so many."""


@dataclass(frozen=True)
class FamilyKey:
    """A pack is of trials of one family."""

    family: str
    key: PackKey

    @property
    def n_lanes(self) -> int:
        return self.key.n_lanes

    def of_one_trial(self) -> FamilyKey:
        return replace(self, key=self.key.of_one_trial())


@dataclass
class AutoFamily(Family):
    """Several families, of which each trial is of one."""

    heavy = "automl.models.families.auto.heavy"
    choice = FAMILY_PARAM
    weighs_classes = True
    says_length = True

    families: list[str] = field(default_factory=lambda: [*DEFAULT])
    """Those that trials may be of."""

    def __post_init__(self) -> None:
        others = [name for name in load_families() if name not in ("auto", "python")]
        for name in self.families:
            check(
                name in others,
                "model.families",
                self.families,
                f"may have {', '.join(others)}; {name} is none of them.",
            )
        check(len(self.families) > 0, "model.families", "[]", "must name at least one.")

    @property
    def users_target(self) -> None:
        return None

    @property
    def by_choice(self) -> Mapping[str, Family]:
        """Each with its defaults."""
        return {name: load_families()[name]() for name in self.families}

    def trained(self, training: TrainingConfig) -> TrainingConfig:
        """Each member says its own length."""
        return training

    def n_reports(self, training: TrainingConfig) -> int:
        return max(one.n_reports(one.trained(training)) for one in self.by_choice.values())

    def of(self, params: Params) -> tuple[Family, Params]:
        name = str(params.get(FAMILY_PARAM))
        return self.by_choice[name], own_params(name, params)

    def with_own(self, params: Params, own: Params) -> dict[str, ParamValue]:
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
        taken = [
            f"{name}_{param}"
            for name, family in self.by_choice.items()
            for param in family.param_names()[0] or ()
        ]
        return (FAMILY_PARAM, CLASS_WEIGHT_PARAM, *taken), (FAMILY_PARAM,)

    def check_training(self, training: TrainingConfig) -> None:
        """Raises ConfigError, with the families that can."""
        members = self.by_choice
        if training.loss_target is not None:
            by_trees = [name for name, one in members.items() if one.library != "torch"]
            check(
                not by_trees,
                "training.loss",
                training.loss,
                f"a loss of your own is for networks, and {', '.join(by_trees)} would descend "
                "theirs: take model.families=[mlp], or model=mlp.",
            )
            return
        having = [name for name, one in members.items() if training.loss in one.losses]
        if len(having) < len(members):
            some = f"model.families=[{','.join(having)}]" if having else "another model"
            lacking = ", ".join(name for name in members if name not in having)
            raise ConfigError(
                f"training.loss={training.loss}: {lacking} cannot descend it: take {some}."
            )

    def check_value(self, name: str, value: ParamValue) -> None:
        if name == CLASS_WEIGHT_PARAM:
            check_param_value(name, value, {name: CLASS_WEIGHT_RULE})
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

    def whole_space(
        self, entries: Mapping[str, Any], n_rows: int | None = None
    ) -> Mapping[str, Any]:
        """`family` where it is not written, and for each param the condition that hangs it there.

        A condition of its own may name others of the family by the family's names.
        """
        left_out = self._left_out(n_rows, entries)
        taken = [name for name in self.families if name not in left_out]
        whole = {FAMILY_PARAM: entries.get(FAMILY_PARAM, {"choices": taken})}
        for name, entry in entries.items():
            family, _, _ = name.partition("_")
            is_left_out = family in load_families() and family not in taken
            if name != FAMILY_PARAM and not is_left_out:
                whole[name] = self._hung(name, batch_sizes(n_rows) if entry == BY_ROWS else entry)
        return whole

    def notes(self, n_rows: int, entries: Mapping[str, Any]) -> tuple[str, ...]:
        left_out = self._left_out(n_rows, entries)
        if not left_out:
            return ()
        each = [f"{n} (for up to {most:,} rows; {n_rows:,} train)" for n, most in left_out.items()]
        return (f"left out: {', '.join(each)}. model.families=[{','.join(left_out)},…] has it.",)

    def _left_out(self, n_rows: int | None, entries: Mapping[str, Any]) -> dict[str, int]:
        """Families that are not for so many rows, and for how many they are; none where somebody
        chose the families."""
        if n_rows is None or FAMILY_PARAM in entries or self.families != [*DEFAULT]:
            return {}
        most = {name: family.most_rows for name, family in self.by_choice.items()}
        return {name: n for name, n in most.items() if n is not None and n_rows > n}

    def request(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> ResourceRequest:
        if params.get(FAMILY_PARAM) not in self.families:
            return UNKNOWN
        family, own = self.of(params)
        return family.request(own, dataset, family.trained(training))

    def work(
        self, params: Params, dataset: Dataset, training: TrainingConfig
    ) -> TrainingWork | None:
        if params.get(FAMILY_PARAM) not in self.families:
            return None
        family, own = self.of(params)
        return family.work(own, dataset, family.trained(training))

    def pack_key(
        self, params: Params, training: TrainingConfig, *, on_host: bool
    ) -> FamilyKey | None:
        if params.get(FAMILY_PARAM) not in self.families:
            return None
        family, own = self.of(params)
        key = family.pack_key(own, family.trained(training), on_host=on_host)
        return None if key is None else FamilyKey(str(params[FAMILY_PARAM]), key)

    def portfolio(self, dataset: Dataset | None = None) -> Sequence[Params]:
        """One of each family first, the cheap ones first; then the others' in turn."""
        lists = {name: family.portfolio(dataset) for name, family in self.by_choice.items()}
        longest = max(map(len, lists.values()))
        return [
            {FAMILY_PARAM: name} | {f"{name}_{param}": value for param, value in points[i].items()}
            for i in range(longest)
            for name, points in lists.items()
            if i < len(points)
        ]

    def identity(self) -> Mapping[str, Any]:
        members = self.by_choice.items()
        return {"families": {name: dict(family.identity()) for name, family in members}}

    def _hung(self, name: str, entry: Any) -> Any:
        """The entry of a param, there only in trials of its family; else as it was written."""
        family, _, _ = name.partition("_")
        if family not in self.families:
            return entry
        if not isinstance(entry, Mapping):
            entry = {"choices": entry} if isinstance(entry, list | tuple) else {"choices": [entry]}
        when = dict(entry.get("when") or {})
        return {**entry, "when": {**when, FAMILY_PARAM: family}}


def batch_sizes(n_rows: int | None) -> list[int]:
    """Those of which an epoch has some steps: else no number of epochs were many."""
    smallest, *larger = BATCH_SIZES
    return [smallest, *(n for n in larger if n_rows is None or LEAST_STEPS * n <= n_rows)]


def own_params(family: str, params: Params) -> dict[str, ParamValue]:
    """Those of a trial's params that are the family's, as it calls them; `class_weight` is of all
    that weigh classes, unless one has its own."""
    before = f"{family}_"
    own = {n.removeprefix(before): value for n, value in params.items() if n.startswith(before)}
    if CLASS_WEIGHT_PARAM in params and load_families()[family].weighs_classes:
        return {CLASS_WEIGHT_PARAM: params[CLASS_WEIGHT_PARAM], **own}
    return own
