"""The pruner that ends no trial early; a file of its own, as every pruner is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from automl.search.pruners.pruner import Pruner


@dataclass
class NoPruner(Pruner):
    """Stops no trial: every trial trains to its end."""

    several_metrics: ClassVar[bool] = True

    def rungs(self, last_step: int, step: int) -> Sequence[int]:
        return ()

    def prunes(self, key: float, best_key: float, keys: Sequence[float]) -> bool:
        return False
