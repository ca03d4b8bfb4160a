"""What trains a trial."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from automl.config.checks import check_target


class ObjectiveKind(enum.Enum):
    builtin = "builtin"
    python = "python"
    optuna = "optuna"


@dataclass
class ObjectiveConfig:
    """What trains a trial: ours, a function of the user's, or one written for Optuna."""

    kind: ObjectiveKind = ObjectiveKind.builtin
    target: str | None = None
    """`module:function` (kinds python and optuna), imported from the current folder or the Python
    path, or `file.py:function`, the file as seen from the current folder."""

    def __post_init__(self) -> None:
        if self.kind in (ObjectiveKind.python, ObjectiveKind.optuna):
            check_target("objective", self.target, self.kind.value)
