"""Describes registered models and their versions as plain values.

It is a file of its own so that commands can use the values without loading MLflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automl.trial import LoggedPoint

CHAMPION, CHALLENGER = "champion", "challenger"
"""Aliases of the version that is served, and of one that has not been shown to be as good."""
DIGEST_TAG = "automl.digest"
"""Tag of a model and of its version: the digest of its file, so that it is registered once."""
DATA_TAG = "automl.data"
"""Tag of a version: the digest of the data set whose parts it learned from."""
SHARED_TAG = "automl.shared"
"""Tag of a registered model whose study named it (`register.name`); other studies may join it."""
ROWS = "automl.rows."
"""Prefix of a version's tags for rows that it has not seen; the rows' digest follows."""


@dataclass(frozen=True)
class RunRef:
    """The ids of a study's run in the store that its events were delivered to."""

    experiment: str
    run: str


@dataclass(frozen=True)
class NewModel:
    """A model to be registered, with all that MLflow shows of it."""

    package: Path
    """The folder of the model's export."""
    digest: str
    """The digest of the model's file, in hex."""
    name: str
    """The model's name among the models of its run."""
    run: RunRef
    example: Any
    """Example rows as in the table, of plain values: a pandas DataFrame."""
    tags: Mapping[str, str]
    """Tags of the model and of its version."""
    params: Mapping[str, str] = field(default_factory=dict)
    about: str = ""
    """The description of the model's version, in Markdown."""
    metrics: Sequence[LoggedPoint] = ()
    """Metrics of the model, shown with its version."""


@dataclass(frozen=True)
class RegisteredVersion:
    """A version of a registered model, as the registry has it."""

    number: int
    tags: Mapping[str, str]
    about: str = ""
    """The description of the version."""

    @property
    def digest(self) -> str:
        return self.tags.get(DIGEST_TAG, "")

    def has_not_seen(self, rows: str) -> bool:
        """Return whether the registry records that rows of this digest are new to the version."""
        return rows_key(rows) in self.tags


def rows_key(digest: str) -> str:
    """Return the tag of rows, by half of their digest in hex, which keeps the page readable."""
    return f"{ROWS}{digest[:32]}"
