"""What is new about a run of MLflow's, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

# Tags by which a run is found again.
STUDY, KIND, TRIAL = "automl.study", "automl.kind", "automl.trial"
VALUE, MEMORY_PEAK = "value", "memory_peak_bytes"
AT_END = (VALUE, MEMORY_PEAK)
"""Metrics that a trial has once, from its end on."""
# Tags that tell.
STATE, CAUSE, DEVICE = "automl.state", "automl.cause", "automl.device"
PEAK, PREDICTED, PREDICTED_BY = (
    "automl.memory_peak",
    "automl.memory_predicted",
    "automl.memory_predicted_by",
)
"""Bytes that a trial held by itself, that it had asked for, and how those were known."""
REFUSED = "automl.refused"
"""What of the run was not taken, and why."""
OWN_TAGS = ("automl.", "mlflow.")
"""What tags of the sweep and of MLflow begin with; no objective's do."""
PARENT = "mlflow.parentRunId"
NOTE = "mlflow.note.content"
"""MLflow shows it at the top of a run's page."""
VALUE = "value"
"""The metric that holds a trial's final value."""


@dataclass(frozen=True)
class StudyRef:
    """Which study's runs they are."""

    uuid: str
    name: str
    """Of its experiment and of its own run."""
    former_names: Sequence[str] = ()
    """Its experiment is renamed where it still has one of these."""


@dataclass(frozen=True)
class MetricPoint:
    key: str
    value: float
    time_ms: int
    step: int


@dataclass(frozen=True)
class RunUpdate:
    """All that changed about a run since the last time; the same again changes nothing."""

    name: str
    start_ms: int
    key: Mapping[str, str]
    """Tags that the run is found again by."""
    birth_tags: Mapping[str, str]
    """Other tags that it has from its creation on."""
    params: Mapping[str, str]
    """All params of the run, whether MLflow has them or not."""
    begins: bool
    """The run begins or goes on here, or its objective asked for more params: they are told."""
    tags: Mapping[str, str]
    metrics: Sequence[MetricPoint]
    once: Sequence[str] = AT_END
    """Metrics that the run has once, from its end on."""
    logged_params: Mapping[str, str] = field(default_factory=dict)
    """Params that the objective logged itself, those that are new."""
    status: str | None = None
    """MLflow's word for the state that holds now; None: as it was, RUNNING for a new run."""
    end_ms: int | None = None
    """When the run ended for good; None: it has not."""
    artifacts: Sequence[str] = field(default=())
    """Checkpoints to store, by their paths below the study's directory."""
    files: Sequence[str] = field(default=())
    """What else is stored, beside the checkpoints' folder; paths likewise."""
    own_files: Sequence[tuple[str, str]] = field(default=())
    """What has a folder of its own in the run, such as what a trial made of files itself: paths
    below the study, and those folders."""
    refused: Sequence[str] = field(default=())
    """What of the events is not stored, in words."""
