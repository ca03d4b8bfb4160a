"""What a survey found. Light: no torch.

What ends a survey early.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SurveyEndReason(enum.Enum):
    """With what a survey had seen enough."""

    REPORTED = "reported"
    """A report of the study's metric, after enough steps."""
    PASSED = "passed"
    """Several passes over the data, of an objective that had reported nothing so far."""
    RETURNED = "returned"
    """The objective ran to its end."""


@dataclass(frozen=True)
class SurveyResult:
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
    ended: SurveyEndReason

    def __post_init__(self) -> None:
        assert 0 <= self.weights_bytes <= self.allocated_bytes <= self.reserved_bytes, self


@dataclass(frozen=True)
class InconclusiveSurvey:
    """A survey that cannot vouch for what it saw: what the trial wants is unknown."""

    reason: str
    """In words, one line."""


class SurveyOverError(
    BaseException
):  # BaseException: `except Exception` in an objective lets it pass
    """Raised in the objective when enough was seen."""
