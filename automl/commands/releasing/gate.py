"""What stops a release: a refit that is worse than the trial that it repeats. Pure."""

from __future__ import annotations

from collections.abc import Callable

from automl.commands.registration.judged import metric_of, shown
from automl.errors import AutoMLError
from automl.trial import Evaluated, refit_name, trial_name

BETTER = "better"


class GateError(AutoMLError):
    """Raised when a release is stopped by a result, and not by a failure."""


def pass_gate(event: Evaluated, trial: int, study_metric: str, register: str) -> str:
    """What the rows say of the refit beside its trial. Raises GateError where the refit is worse by
    more than chance; `register` is how the trial itself is registered."""
    refit, own = refit_name(trial), trial_name(trial)
    metric = metric_of(study_metric, event.scores[refit])
    found = event.differences[own][metric]
    said = (
        f"{metric} {shown(event.scores[refit][metric])}, {-found.value:+.4g} "
        f"({-found.high:+.4g} to {-found.low:+.4g}) from that of {own}"
    )
    if found.verdict != BETTER:
        return f"{refit}: {said}"
    raise GateError(
        f"the refit is worse than the trial by more than chance: {said}, on {event.rows}. Nothing "
        "was exported or registered. Several seeds do better (refit.n_seeds=8), or rows to stop by "
        f"(refit.hold_out=0.05); or register the trial itself: {register}"
    )


def pass_unseen(
    event: Evaluated, trial: int, study_metric: str, say: Callable[[str], object]
) -> str:
    """What is said where a refit has seen all rows that there are: its trial's scores on those that
    judged it, beside the baselines."""
    own = trial_name(trial)
    metric = metric_of(study_metric, event.scores[own])
    beside = ", ".join(
        f"{name} is {found[metric].verdict}"
        for name, found in event.differences.items()
        if name not in event.models
    )
    say(
        f"{refit_name(trial)} has seen all rows, and cannot be compared with its trial; beside "
        f"that, on {event.rows}, {beside}. Rows that came later compare them: data.test_path=FILE"
    )
    return f"not compared: {own}'s {metric} stands for it, {shown(event.scores[own][metric])}"
