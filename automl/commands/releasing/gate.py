"""What stops a release: a refit that is worse than the trial or ensemble that it repeats. Pure."""

from __future__ import annotations

from collections.abc import Callable

from automl.commands.registration.judged import metric_of, shown
from automl.errors import AutoMLError
from automl.trial import ENSEMBLE_NAME, Evaluated

BETTER = "better"


class GateError(AutoMLError):
    """Raised when a release is stopped by a result, and not by a failure."""


def pass_gate(event: Evaluated, study_metric: str, register: str) -> str:
    """What the rows say of the refit, the first model, beside what it repeats, the second: a trial,
    or the ensemble. Raises GateError where the refit is worse by more than chance; `register` is
    how what it repeats is registered itself."""
    refit, own = event.models[:2]
    what = "the ensemble" if own == ENSEMBLE_NAME else "the trial"
    metric = metric_of(study_metric, event.scores[refit])
    found = event.differences[own][metric]
    said = (
        f"{metric} {shown(event.scores[refit][metric])}, {-found.value:+.4g} "
        f"({-found.high:+.4g} to {-found.low:+.4g}) from that of {own}"
    )
    if found.verdict != BETTER:
        return f"{refit}: {said}"
    raise GateError(
        f"the refit is worse than {what} by more than chance: {said}, on {event.rows}. Nothing "
        "was exported or registered. Several seeds do better (refit.n_seeds=8), or rows to stop by "
        f"(refit.hold_out=0.05); or register {what} itself: {register}"
    )


def pass_unseen(event: Evaluated, study_metric: str, say: Callable[[str], object]) -> str:
    """What is said where a refit has seen all rows that there are: the scores of what it repeats,
    the first model, on those that judged it, beside the baselines."""
    own = event.models[0]
    metric = metric_of(study_metric, event.scores[own])
    beside = ", ".join(
        f"{name} is {found[metric].verdict}"
        for name, found in event.differences.items()
        if name not in event.models
    )
    say(
        f"the refit has seen all rows, and cannot be compared with {own}; beside "
        f"that, on {event.rows}, {beside}. Rows that came later compare them: data.test_path=FILE"
    )
    return f"not compared: {own}'s {metric} stands for it, {shown(event.scores[own][metric])}"
