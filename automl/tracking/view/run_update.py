"""Describes as plain values what is new about a run in MLflow.

It also changes names and values so that MLflow takes them, with a note where a text is cut. It does
not know MLflow.
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from automl.record.secrets import mask_credentials, mask_urls
from automl.record.texts import cut_text, printable_text
from automl.trial import LoggedPoint

# Tags by which a run is found again.
STUDY_TAG, KIND_TAG, TRIAL_TAG = "automl.study", "automl.kind", "automl.trial"
STORE_TAG = "automl.store"
"""Tag of an experiment that tells its store from all others: an id and its file, if it has one."""
VALUE_METRIC = "value"
"""The metric that holds a trial's final value."""
MEMORY_PEAK_METRIC = "memory_peak_bytes"
END_METRICS = (VALUE_METRIC, MEMORY_PEAK_METRIC)
"""Metrics of which a trial has one value, from its end on."""
# Tags for the reader.
STATE_TAG, CAUSE_TAG = "automl.state", "automl.cause"
REFUSED_TAG = "automl.refused"
"""Tag for the values of the run that MLflow refused, with the reasons."""
NOTE_TAG = "mlflow.note.content"
"""Tag whose text MLflow shows at the top of a run's page."""


@dataclass(frozen=True)
class StudyRef:
    """The study that runs belong to, by uuid and name."""

    uuid: str
    name: str
    """Name of the study's experiment and of its own run."""
    former_names: Sequence[str] = ()
    """Former names of the study; an experiment that still has one of them is renamed."""


@dataclass(frozen=True)
class RunUpdate:
    """All changes of a run since its last update; to apply it again changes nothing."""

    name: str
    start_ms: int
    key: Mapping[str, str]
    """Tags by which the run is found again."""
    birth_tags: Mapping[str, str] = field(default_factory=dict)
    """Other tags that the run has from its creation on."""
    params: Mapping[str, str] = field(default_factory=dict)
    """All params of the run, whether MLflow has them or not."""
    begins: bool = False
    """Whether the params are written: the run begins, goes on, or its objective asked for more."""
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[LoggedPoint] = ()
    once: Sequence[str] = END_METRICS
    """Metrics of which the run has one value, from its end on."""
    logged_params: Mapping[str, str] = field(default_factory=dict)
    """New params that the objective logged itself."""
    status: str | None = None
    """MLflow's word for the run's new state; None if it stays as it was, RUNNING for a new run."""
    end_ms: int | None = None
    """Time when the run ended for good, in milliseconds since the epoch; None if it goes on."""
    artifacts: Sequence[str] = ()
    """Checkpoints to store, by their paths below the study's directory."""
    files: Sequence[str] = ()
    """Other files to store, beside the checkpoints' folder, by their paths below the study."""
    own_files: Sequence[tuple[str, str]] = ()
    """Files with a folder of their own in the run, such as those that a trial made itself.

    Each is a path below the study's directory, with its folder in the run."""
    refused: Sequence[str] = ()
    """Texts about values of the events that are not stored."""


MAX_PARAM_CHARACTERS = 6000
MAX_TAG_CHARACTERS = 5000
"""Lengths of params and tags that every MLflow server of the 2 and 3 series takes."""
MAX_KEY_CHARACTERS = 250
_GOOD_KEY = re.compile(r"\w[\w\-:]*(?:[./ ][\w\-:]+)*")


def best_key(metric: str) -> str:
    """Return the name in MLflow of the final value of a trial by a metric of the study."""
    return clean_key(f"best_{metric}")


def clean_key(key: str) -> str:
    """Return a name that MLflow takes: letters, digits and `_-./: `, and no detour as a path."""
    if _GOOD_KEY.fullmatch(key) and len(key) <= MAX_KEY_CHARACTERS:
        return key
    clean = posixpath.normpath(re.sub(r"[^/\w.\- :]", "_", key)).lstrip("/.")
    return clean[:MAX_KEY_CHARACTERS].rstrip("/") or "_"


def clean_params(params: Mapping[str, str]) -> dict[str, str]:
    """Return params that MLflow takes; only values that must be credentials are masked."""
    return {
        clean_key(k): mask_urls(printable_text(cut_text(v, MAX_PARAM_CHARACTERS)))
        for k, v in params.items()
    }


def clean_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {
        clean_key(k): mask_credentials(printable_text(cut_text(v, MAX_TAG_CHARACTERS)))
        for k, v in tags.items()
    }


def nan_if_infinite(value: float) -> float:
    """Return NaN for an infinite value: MLflow stores ±1.8e308, which ruins every chart's axis."""
    return math.nan if math.isinf(value) else value


def to_ms(seconds: float) -> int:
    return round(seconds * 1000)
