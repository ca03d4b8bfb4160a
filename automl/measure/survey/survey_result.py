"""The results of a survey, and the exception that ends a survey early.

They are a file of their own because the sweep reads them without loading torch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class SurveyEndReason(enum.Enum):
    """The reason why a survey had seen enough."""

    REPORTED = "reported"
    """The objective reported the study's metric, after enough steps."""
    PASSED = "passed"
    """The objective made several passes over the data without a report."""
    RETURNED = "returned"
    """The objective ran to its end."""


@dataclass(frozen=True)
class SurveyResult:
    """The memory that an objective needs of a GPU, found before it runs on one."""

    weights_bytes: int
    """The size of the weights that its optimizers train; 0 without an optimizer of torch's."""
    allocated_bytes: int
    """The most that its tensors take at one time: weights, gradients, activations and all."""
    reserved_bytes: int
    """The most that torch's caching allocator holds for the tensors, without the CUDA context and
    the workspaces of libraries."""
    n_steps: int
    """The number of optimizer steps that were seen."""
    ended: SurveyEndReason

    def __post_init__(self) -> None:
        assert 0 <= self.weights_bytes <= self.allocated_bytes <= self.reserved_bytes, self


@dataclass(frozen=True)
class InconclusiveSurvey:
    """The result of a survey that may have missed memory; the trial's need stays unknown."""

    reason: str
    """The reason in words, one line."""


# A BaseException, which `except Exception` in an objective lets pass.
class SurveyOverError(BaseException):
    """Raised in the objective when the survey has seen enough."""
