"""What trains a trial."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from automl.config.checks import check_target


class ObjectiveKind(enum.Enum):
    builtin = "builtin"
    python = "python"


@dataclass
class ObjectiveConfig:
    """What trains a trial: ours, or a function of the user's."""

    kind: ObjectiveKind = ObjectiveKind.builtin
    target: str | None = None
    """`module:function` (kind python), imported from the current folder or the Python path, or
    `file.py:function`, the file as seen from the current folder."""

    def __post_init__(self) -> None:
        if self.kind is ObjectiveKind.python:
            check_target("objective", self.target)
