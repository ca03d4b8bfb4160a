"""What a survey found. Light: no torch."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SurveyEnded(enum.Enum):
    """With what a survey had seen enough."""

    REPORTED = "reported"
    """A report of the study's metric, after enough steps."""
    PASSED = "passed"
    """Several passes over the data, of an objective that had reported nothing so far."""
    RETURNED = "returned"
    """The objective ran to its end."""


@dataclass(frozen=True)
class Survey:
    """What an objective was seen to want of a GPU, before it runs on one."""

    weights_bytes: int
    """What its optimizers train; 0 where none of torch's does."""
    allocated_bytes: int
    """The most that its tensors take at one time: weights, gradients, activations and all."""
    reserved_bytes: int
    """The most that torch's caching allocator holds for them. Without the CUDA context and the
    workspaces of libraries."""
    n_steps: int
    """Optimizer steps that were seen."""
    ended: SurveyEnded

    def __post_init__(self) -> None:
        assert 0 <= self.weights_bytes <= self.allocated_bytes <= self.reserved_bytes, self


@dataclass(frozen=True)
class Unsurveyed:
    """A survey that cannot vouch for what it saw: what the trial wants is unknown."""

    reason: str
    """In words, one line."""
