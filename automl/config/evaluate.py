"""Which models are scored, and how surely."""

from __future__ import annotations

from dataclasses import dataclass, field

from automl.config.checks import check
from automl.config.which_model import WhichModel


@dataclass
class EvaluateConfig:
    """Which models are scored, and how surely."""

    trials: list[int] = field(default_factory=list)
    """Numbers of the trials to score and compare; none: the best."""
    model: WhichModel = WhichModel.auto
    """auto: the refit beside its trial where there is one and no trials are named, else trials.
    refit: beside those that are named."""
    n_resamples: int = 1000
    """Bootstrap samples that the intervals are taken from."""

    def __post_init__(self) -> None:
        rule = "names a trial twice: name each once."
        check(len(set(self.trials)) == len(self.trials), "evaluate.trials", self.trials, rule)
        rule = "must be at least 100: the ends of a 95 % interval are seldom samples."
        check(self.n_resamples >= 100, "evaluate.n_resamples", self.n_resamples, rule)
