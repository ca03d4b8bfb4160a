"""An objective that does nothing: what a trial costs beside its training.

python -m automl --config-dir experiments/001-throughput/conf --config-name nothing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl import TrialContext


def train(trial: TrialContext) -> float:
    """The only param is the value."""
    return float(trial.params["x"])
