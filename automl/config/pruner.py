"""What stops bad trials early."""

from __future__ import annotations

from dataclasses import dataclass

from automl.config.checks import check


@dataclass
class PrunerConfig:
    """What stops bad trials early: one subclass per option of `pruner=`."""


@dataclass
class NoPrunerConfig(PrunerConfig):
    """Every trial trains to its end."""


@dataclass
class MedianPrunerConfig(PrunerConfig):
    """Stops a trial whose best value so far is worse than the median at the same step."""

    n_startup_trials: int = 5
    """No pruning before this many trials have reported the step."""
    n_warmup_steps: int = 2
    """No pruning before this step."""
    interval_steps: int = 1
    """Trials are judged every so many steps."""

    def __post_init__(self) -> None:
        check(self.n_startup_trials >= 1, "pruner.n_startup_trials", self.n_startup_trials, "≥ 1.")
        check(self.n_warmup_steps >= 0, "pruner.n_warmup_steps", self.n_warmup_steps, "≥ 0.")
        check(self.interval_steps >= 1, "pruner.interval_steps", self.interval_steps, "≥ 1.")


@dataclass
class HalvingPrunerConfig(PrunerConfig):
    """Asynchronous successive halving (Li et al., 2020): of the trials at a rung, 1/factor go on.

    Rungs are at `max_steps / factor^k` reported steps, rounded up, as in Hyperband (Li et al.,
    2018); where `max_steps` is not known, at `min_steps · factor^k`. A trial is judged against the
    values that all trials, running ones too, reported at its rung.
    """

    min_steps: int = 2
    """No rung stands before this many steps."""
    max_steps: int | None = None
    """Steps of a trial that is not stopped; none: training.epochs, and for a function of your own
    not known."""
    factor: int = 3
    """Of the trials that reach a rung, one in `factor` goes on."""
    min_trials: int = 4
    """A rung judges nobody before this many trials have reached it."""

    def __post_init__(self) -> None:
        check(self.min_steps >= 1, "pruner.min_steps", self.min_steps, "must be at least 1.")
        check(
            self.max_steps is None or self.max_steps >= 1,
            "pruner.max_steps",
            self.max_steps,
            "must be at least 1.",
        )
        check(self.factor >= 2, "pruner.factor", self.factor, "must be at least 2.")
        check(self.min_trials >= 1, "pruner.min_trials", self.min_trials, "must be at least 1.")


PRUNERS: dict[str, type[PrunerConfig]] = {
    "none": NoPrunerConfig,
    "median": MedianPrunerConfig,
    "halving": HalvingPrunerConfig,
}
