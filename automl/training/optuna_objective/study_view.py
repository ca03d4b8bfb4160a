"""What `trial.study` is where the study is in another process: its direction, and no more."""

from __future__ import annotations

import sys
from typing import Any

from automl.training.optuna_objective.missing import not_in_a_trial
from automl.trial import Direction


class StudyView:
    """Callbacks of Optuna's compare the direction with their metric's."""

    def __init__(self, direction: Direction) -> None:
        self._direction = direction

    @property
    def direction(self) -> Any:
        """Optuna's own `StudyDirection`: who compares with it has imported it."""
        optuna_study = sys.modules.get("optuna.study")
        if optuna_study is None:
            return self._direction
        return getattr(optuna_study.StudyDirection, self._direction.name.upper())

    @property
    def directions(self) -> list[Any]:
        return [self.direction]

    def __getattr__(self, name: str) -> Any:
        raise not_in_a_trial(f"trial.study.{name}", "direction and directions")
