"""The one table of what settings that are left open become, and why.

`Config` decides them by this table once after composing, and `--cfg job --why` prints the cases.
Two defaults are not here, since Hydra needs them while it composes: the model, and the length of a
training that is the model's own (`cli/schemas.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from automl.config.data import TEST_FRACTION, DataConfig, DataKind, DataRule
from automl.config.metrics import metric_direction
from automl.config.objective import ObjectiveConfig, ObjectiveKind
from automl.config.option_bases import ModelConfig
from automl.config.study import DEFAULT_N_TRIALS, UNLIMITED_N_TRIALS, StudyConfig
from automl.trial import Direction


class OpenConfig(Protocol):
    """The sections of `automl.config.Config` that the table reads and fills in."""

    study: StudyConfig
    data: DataConfig
    model: ModelConfig
    objective: ObjectiveConfig


@dataclass(frozen=True)
class DecidedSetting:
    """A case in which a setting that is left open gets a value."""

    key: str
    case: str
    """The case in words, for people."""
    applies: Callable[[OpenConfig], bool]
    value: Callable[[OpenConfig], Any]


def tries_families_on_table(config: OpenConfig) -> bool:
    """Return whether trials may be of any family, and learn from a table of the user's."""
    return config.model.choice is not None and config.data.kind is DataKind.csv


def _has_time_limit(config: OpenConfig) -> bool:
    return tries_families_on_table(config) and config.study.timeout_seconds is not None


def _has_folds(config: OpenConfig) -> bool:
    return tries_families_on_table(config) and config.data.sweep_rows is None


def _is_outside(config: OpenConfig) -> bool:
    return config.objective.kind is ObjectiveKind.outside


def _always(config: OpenConfig) -> bool:
    return True


def _constant(value: Any) -> Callable[[OpenConfig], Any]:
    return lambda config: value


def _directions(config: OpenConfig) -> Any:
    """Return the direction of the study's metric, or of each of several."""
    study, is_builtin = config.study, config.objective.kind is ObjectiveKind.builtin
    several = isinstance(study.metric, list)
    names = study.metric if several else [study.metric]
    given = (study.direction if several else [study.direction]) or [None] * len(names)
    decided = [
        direction or (metric_direction(name) if is_builtin else Direction.minimize)
        for name, direction in zip(names, given, strict=True)
    ]
    return decided if several else decided[0]


DECIDED: Sequence[DecidedSetting] = (
    DecidedSetting(
        "study.n_trials",
        "model=auto on a table; the time limit ends the sweep",
        _has_time_limit,
        _constant(UNLIMITED_N_TRIALS),
    ),
    DecidedSetting(
        "study.n_trials", "whoever asks ends the study", _is_outside, _constant(UNLIMITED_N_TRIALS)
    ),
    DecidedSetting("study.n_trials", "no number is given", _always, _constant(DEFAULT_N_TRIALS)),
    DecidedSetting("study.direction", "by the name of the metric", _always, _directions),
    DecidedSetting(
        "data.folds",
        "model=auto on a table; decided from its rows when it is read",
        _has_folds,
        _constant("auto"),
    ),
    DecidedSetting("data.folds", "one part of the rows judges", _always, _constant(1)),
    DecidedSetting(
        "data.test",
        "model=auto on a table; all rows train and judge",
        tries_families_on_table,
        _constant("none"),
    ),
    DecidedSetting("data.test", "a fifth of the rows", _always, _constant(TEST_FRACTION)),
    DecidedSetting("data.rules", "those of this version", _always, _constant(len(DataRule))),
)
"""The first case of a key that applies counts."""


def decide(config: OpenConfig) -> None:
    """Fill in the settings that are left open by the table, and name a metric that is a function
    of the user's."""
    if config.objective.kind is ObjectiveKind.builtin:
        config.study = config.study.with_metric_function()
    values: dict[str, dict[str, Any]] = defaultdict(dict)
    for key, found in decided_cases(config).items():
        section, _, name = key.partition(".")
        if _is_open(key, getattr(getattr(config, section), name)):
            values[section][name] = found.value(config)
    for section, changed in values.items():
        setattr(config, section, replace(getattr(config, section), **changed))


def decided_cases(config: OpenConfig) -> Mapping[str, DecidedSetting]:
    """Return the case of each key that the table has."""
    cases: dict[str, DecidedSetting] = {}
    for row in DECIDED:
        if row.key not in cases and row.applies(config):
            cases[row.key] = row
    return cases


def _is_open(key: str, value: Any) -> bool:
    """Return whether a value is left open; None is the `none` of `data.test`, and its auto is."""
    if key == "data.test":
        return bool(value == "auto")
    return value is None or (isinstance(value, list) and None in value)
