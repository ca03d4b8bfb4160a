"""Every setting: its name, type, unit, default and check, and nothing else.

Settings are plain dataclasses, because Hydra composes into them and a frozen one cannot be a
schema. `cli/` turns the composed config into a `Config` once; no other package sees Hydra. Options
that users choose by name (`data=csv`) are files in `conf/`, which list only the values that differ
from the defaults here. Where the options of a group differ in their keys (models, samplers,
pruners), each has a class of its own in the package that builds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
from automl.config.data import ColumnKind, DataConfig, DataKind, DataRule, Task
from automl.config.decided import decide
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
from automl.config.metrics import LOSSES
from automl.config.objective import CodeChange, ObjectiveConfig, ObjectiveKind
from automl.config.option_bases import ModelConfig, PrunerConfig, SamplerConfig
from automl.config.study import (
    STUDY_NAME_PATTERN,
    UNLIMITED_N_TRIALS,
    AutoSetting,
    Finish,
    KeepCheckpoints,
    StudyConfig,
    TrackingConfig,
    study_name_of,
)
from automl.config.training import LearningRateSchedule, Precision, TrainingConfig

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
    "parse_bytes",
    "parse_limit",
    "study_name_of",
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
