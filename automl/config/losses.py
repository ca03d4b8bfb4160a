"""What training descends: the losses that are ours, by name."""

from __future__ import annotations

from dataclasses import dataclass

OF_CLASSES = ("cross_entropy",)
OF_VALUES = ("squared_error", "absolute_error", "quantile", "poisson")
LOSSES = ("auto", *OF_CLASSES, *OF_VALUES)
"""auto: cross_entropy of classes, squared_error of numbers."""
EVERYBODYS = ("auto", "cross_entropy", "squared_error")
"""Those that all families have."""
METRIC_OF = {"quantile": "pinball", "poisson": "poisson_deviance"}
"""A metric that stands beside the others where a study has this loss."""


@dataclass(frozen=True)
class ValueLoss:
    """That of numbers: what `loss` means of a regression, wherever it is told."""

    name: str = "squared_error"
    """One of `OF_VALUES`."""
    quantile: float = 0.5
    """With quantile: the share of targets that shall lie below what is predicted."""

    @property
    def metric(self) -> str | None:
        """Its own metric, where it has one."""
        return METRIC_OF.get(self.name)


SQUARED_ERROR = ValueLoss()
