"""What is new about a run of MLflow's, as plain values.

Names and values made such that MLflow takes them, with a note where something is cut.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automl.record.secrets import mask_credentials, mask_urls
from automl.record.texts import cut, printable

# Tags by which a run is found again.
STUDY_TAG, KIND_TAG, TRIAL_TAG = "automl.study", "automl.kind", "automl.trial"
VALUE_METRIC, MEMORY_PEAK_METRIC = "value", "memory_peak_bytes"
END_METRICS = (VALUE_METRIC, MEMORY_PEAK_METRIC)
"""Metrics that a trial has once, from its end on."""
# Tags that tell.
STATE_TAG, CAUSE_TAG, DEVICE_TAG = "automl.state", "automl.cause", "automl.device"
PEAK_TAG, PREDICTED_TAG, PREDICTED_BY_TAG = (
    "automl.memory_peak",
    "automl.memory_predicted",
    "automl.memory_predicted_by",
)
"""Bytes that a trial held by itself, that it had asked for, and how those were known."""
REFUSED_TAG = "automl.refused"
"""What of the run was not taken, and why."""
OWN_TAG_PREFIXES = ("automl.", "mlflow.")
"""What tags of the sweep and of MLflow begin with; no objective's do."""
PARENT_TAG = "mlflow.parentRunId"
NOTE_TAG = "mlflow.note.content"
"""MLflow shows it at the top of a run's page."""
VALUE_METRIC = "value"
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
    once: Sequence[str] = END_METRICS
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


MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 5000
"""What every MLflow server of the 2 and 3 series takes."""
MAX_KEY_CHARACTERS = 250
_GOOD_KEY = re.compile(r"\w[\w\-:]*(?:[./ ][\w\-:]+)*")


def clean_key(key: str) -> str:
    """A name that MLflow takes: letters, digits and `_-./: `, and no detour as a path."""
    if _GOOD_KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARACTERS:
        return key
    clean = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", key)).lstrip("/.")
    return clean[:MAX_KEY_CHARACTERS].rstrip("/") or "_"


def clean_params(params: Mapping[str, str]) -> dict[str, str]:
    """Values are data: only what can be nothing but a credential is masked in them."""
    return {
        clean_key(k): mask_urls(printable(cut(v, MAX_PARAM_CHARACTERS))) for k, v in params.items()
    }


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {
        clean_key(k): mask_credentials(printable(cut(v, MAX_TAG_CHARACTERS)))
        for k, v in tags.items()
    }


def nan_if_infinite(value: float) -> float:
    """Infinite values become NaN: MLflow stores ±1.8e308, which ruins every chart's axis."""
    return math.nan if math.isinf(value) else value


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)
