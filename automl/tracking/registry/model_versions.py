"""What is known of registered models, as plain values; knows no MLflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automl.tracking.view.run_update import MetricPoint

CHAMPION, CHALLENGER = "champion", "challenger"
"""Aliases: the version that is served, and one that has not been shown to be as good."""
DIGEST_TAG = "automl.digest"
"""Tag of a model and of its version: which file it is, so that it is registered once."""
DATA_TAG = "automl.data"
"""Tag of a version: the digest of the data set whose parts it learned from."""
SHARED_TAG = "automl.shared"
"""Tag of a registered model whose study named it (`register.name`): others that name it join."""
ROWS = "automl.rows."
"""Begins the tags of a version for rows that it has not seen; the digest of the rows follows."""


@dataclass(frozen=True)
class RunRef:
    """A run of a study, in the store that its events were delivered to."""

    experiment: str
    run: str


@dataclass(frozen=True)
class NewModel:
    """A model to be registered."""

    package: Path
    """The folder of its export."""
    digest: str
    """Of the model's file, in hex."""
    name: str
    """Among the models of the run."""
    run: RunRef
    example: Any
    """Rows as they came, of plain values: a pandas DataFrame."""
    tags: Mapping[str, str]
    """Of the model and of its version."""
    params: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    """Its version's description, in Markdown."""
    metrics: Sequence[MetricPoint] = ()
    """Of the model, shown with its version."""


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model."""

    number: int
    tags: Mapping[str, str]
    about: str = ""
    """Its description."""

    @property
    def digest(self) -> str:
        return self.tags.get(DIGEST_TAG, "")

    def has_not_seen(self, rows: str) -> bool:
        """Whether it is recorded that rows of this digest are new to it."""
        return rows_key(rows) in self.tags


def rows_key(digest: str) -> str:
    """The tag of rows by their digest in hex: half of it, so that people can read the page."""
    return f"{ROWS}{digest[:32]}"
