"""What Optuna keeps of a trial that fits on no device: constraints that it violates, by its excess.

Samplers pass over failed trials and would propose the same again; from one that is pruned and
violates a constraint they learn. Earlier versions told a bare 1.0, and counted it as failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

EXCESS = "memory_excess"
AT_LEAST = "memory_excess_at_least"
BARE = "memory"


def excess_of(trial: FrozenTrial) -> tuple[float, bool] | None:
    """A trial's excess, and whether it is only known to be no less; None: it was not too large, or
    an earlier version told it."""
    for key in (EXCESS, AT_LEAST):
        if key in trial.constraints:
            return trial.constraints[key], key == AT_LEAST
    return None
