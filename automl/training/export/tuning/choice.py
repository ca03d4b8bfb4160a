"""Which way of running a model is the fastest: values in, values out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automl.training.export.tuning.timing import Timing


@dataclass(frozen=True)
class Measured:
    """What was seen of a way, or why nothing was."""

    name: str
    threads: int | None = None
    """None: nobody chooses them."""
    timing: Timing | None = None
    loss: float | None = None
    """On validation rows."""
    within: bool = False
    """No worse than the model by more than the tolerance."""
    rounds: bool = False
    """It computes in fewer bits than the model was trained in."""
    is_file: bool = False
    """It runs a file that an export can be."""
    why_not: str = ""
    """It was not measured."""

    @property
    def label(self) -> str:
        """`onnx, 2 threads`."""
        if self.threads is None:
            return self.name
        return f"{self.name}, {self.threads} thread{'s' * (self.threads != 1)}"


def fastest(seen: Sequence[Measured], *, files: bool = False) -> Measured | None:
    """The one with the smallest median of one row among those within the tolerance; `files`: among
    those that an export can be."""
    fit = [one for one in seen if one.within and (one.is_file or not files)]
    return min(fit, key=lambda one: _timing(one).p50_seconds, default=None)


def fastest_for_many(seen: Sequence[Measured]) -> tuple[Measured, int] | None:
    """The one with the most rows a second within the tolerance, and in which batches."""
    rates = [
        (rate, n_rows, one)
        for one in seen
        if one.within
        for n_rows, rate in _timing(one).rows_per_second.items()
    ]
    if not rates:
        return None
    _, n_rows, one = max(rates, key=lambda three: three[0])
    return one, n_rows


def _timing(one: Measured) -> Timing:
    assert one.timing is not None, "what is within the tolerance was measured"
    return one.timing
