"""What trains a trial."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from automl.config.checks import check, check_target


class ObjectiveKind(enum.Enum):
    builtin = "builtin"
    python = "python"
    called = "called"
    """A function that was given to `automl.sweep`."""
    optuna = "optuna"


@dataclass
class ObjectiveConfig:
    """What trains a trial: ours, a function of the user's, or one written for Optuna."""

    kind: ObjectiveKind = ObjectiveKind.builtin
    target: str | None = None
    """`module:function` (kinds python and optuna), imported from the current folder or the Python
    path, or `file.py:function`, the file as seen from the current folder."""

    file: str | None = None
    """Where a function that was called from Python is, for people (kind called)."""
    parts: list[str] = field(default_factory=list)
    """Of such a function, what it was made of when the study began: `NAME=DIGEST` (kind called)."""

    def __post_init__(self) -> None:
        if self.kind is ObjectiveKind.called:
            check(bool(self.target), "objective.kind", "called", "is for automl.sweep(…) alone.")
        if self.kind in (ObjectiveKind.python, ObjectiveKind.optuna):
            check_target("objective", self.target, self.kind.value)
