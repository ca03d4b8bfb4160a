"""Every setting: its name, type, unit, default and check, and nothing else.

Settings are plain dataclasses, because Hydra composes into them and a frozen one cannot be a
schema. `cli/` turns the composed config into a `Config` once; no other package sees Hydra. Options
that users choose by name (`data=csv`) are files in `conf/`, which list only the values that differ
from the defaults here. Where the options of a group differ in their keys (models, samplers,
pruners), each has a class of its own in the package that builds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from automl.config.checks import (
    NO_SETTING,
    check_function_target,
    check_positive,
    check_setting,
    parse_bytes,
    parse_limit,
)
from automl.config.command_arguments import (
    CommandArguments,
    ExportFormat,
    ParallelKind,
    RefitArguments,
    RefitOrigin,
)
from automl.config.data import TEST_FRACTION, ColumnKind, DataConfig, DataKind, DataRule, Task
from automl.config.execution import (
    AdmissionConfig,
    ChooseDevice,
    DevicesConfig,
    DevicesKind,
    ExecutionConfig,
    ExecutionKind,
    RayConfig,
    SurveyKind,
)
from automl.config.metrics import LOSSES, metric_direction
from automl.config.objective import CodeChange, ObjectiveConfig, ObjectiveKind
from automl.config.option_bases import ModelConfig, PrunerConfig, SamplerConfig
from automl.config.study import (
    DEFAULT_N_TRIALS,
    STUDY_NAME_PATTERN,
    UNLIMITED_N_TRIALS,
    AutoSetting,
    Finish,
    KeepCheckpoints,
    StudyConfig,
    TrackingConfig,
)
from automl.config.training import LearningRateSchedule, Precision, TrainingConfig
from automl.trial import Direction

__all__ = [
    "LOSSES",
    "STUDY_NAME_PATTERN",
    "UNLIMITED_N_TRIALS",
    "AdmissionConfig",
    "AutoSetting",
    "ChooseDevice",
    "CodeChange",
    "ColumnKind",
    "CommandArguments",
    "Config",
    "DataConfig",
    "DataKind",
    "DataRule",
    "DevicesConfig",
    "DevicesKind",
    "ExecutionConfig",
    "ExecutionKind",
    "ExportFormat",
    "Finish",
    "KeepCheckpoints",
    "LearningRateSchedule",
    "ModelConfig",
    "ObjectiveConfig",
    "ObjectiveKind",
    "ParallelKind",
    "Precision",
    "PrunerConfig",
    "RayConfig",
    "RefitArguments",
    "RefitOrigin",
    "SamplerConfig",
    "StudyConfig",
    "SurveyKind",
    "Task",
    "TrackingConfig",
    "TrainingConfig",
    "check_function_target",
    "check_positive",
    "check_setting",
    "default_test",
    "parse_bytes",
    "parse_limit",
]


@dataclass
class Config:
    """All settings of a sweep or another command, composed and checked."""

    study: StudyConfig = field(default_factory=StudyConfig)
    space: dict[str, Any] = field(default_factory=dict)
    """A search space entry per param, in one of the forms of `search/search_space.py`."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    """The family of models; `conf/sweep.yaml` has the default, like those of sampler and pruner."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    sampler: SamplerConfig = field(default_factory=SamplerConfig)
    pruner: PrunerConfig = field(default_factory=PrunerConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    ray: RayConfig = field(default_factory=RayConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    refit: RefitOrigin | None = field(default=None, metadata=NO_SETTING)
    """The study that a refit is of, and how it is trained; None: this is no refit."""

    def __post_init__(self) -> None:
        decide(self)

    @property
    def may_survey(self) -> bool:
        """Return whether a user's objective or network may be surveyed."""
        return (
            self.admission.survey is SurveyKind.auto
            and self.admission.request is None
            and self.admission.devices_per_trial == 1  # a survey cannot see memory of other ranks
            and self.execution.kind is not ExecutionKind.inline
        )


def decide(config: Config) -> None:
    """Fill in the settings that are left open (None) and follow from other settings.

    A built-in training's metric has a direction. A table for which models of any family are tried
    wastes no row: its trials train folds, and no test part is split off; they are as many as a time
    limit allows.
    """
    study, data = config.study, config.data
    is_any_family = _tries_families_on_table(config)
    n_trials, folds, test = study.n_trials, data.folds, data.test
    if n_trials is None:
        is_timed = is_any_family and study.timeout_seconds is not None
        is_outside = config.objective.kind is ObjectiveKind.outside  # whoever asks ends it
        n_trials = UNLIMITED_N_TRIALS if is_timed or is_outside else DEFAULT_N_TRIALS
    if folds is None:
        folds = "auto" if is_any_family and data.sweep_rows is None else 1
    if test == "auto":
        test = default_test(config)
    rules = len(DataRule) if data.rules is None else data.rules
    config.study = replace(study, direction=_decided_directions(config), n_trials=n_trials)
    config.data = replace(data, folds=folds, test=test, rules=rules)


def default_test(config: Config) -> str | float:
    """Return what `data.test=auto` becomes."""
    return "none" if _tries_families_on_table(config) else TEST_FRACTION


def _tries_families_on_table(config: Config) -> bool:
    return config.model.choice is not None and config.data.kind is DataKind.csv


def _decided_directions(config: Config) -> Any:
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
