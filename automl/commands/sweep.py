"""`sweep`: a study to `study.n_trials` trials."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING

from automl.config import Config
from automl.running.going_on import refuse_refit, refuse_uncalled
from automl.training.called import CalledFunction

if TYPE_CHECKING:
    from automl.running.prepared import Prepared
    from automl.running.refit.begin import Begun


def run(config: Config, stored_config: str) -> int:
    """A new study, or the one of `study.name`, by these settings. Raises AutoMLError."""
    return carry_out(config, stored_config, resume=False)


def carry_out(
    config: Config, stored_config: str, *, resume: bool, called: CalledFunction | None = None
) -> int:
    """Say that loading takes long, load, and run to the end, with the function that the sweep was
    called with from Python, if it was. Returns the exit code."""
    refuse_uncalled(config, called)
    refuse_refit(config.study)
    say_that_it_loads()
    # Each of the two takes its time, and what the first starts goes on beside the second.
    from automl.running.warm import warmed_up

    with warmed_up(config) as deliverer:
        from automl.running.run import run_sweep

        def train_again(begun: Begun, prepared: Prepared) -> int:
            from automl.running.refit.run import trained_again

            return trained_again(begun, prepared, stored_config)

        # Libraries are never garbage: else the exit takes 0.15 s of a core more. A process that is
        # the caller's, or runs commands one after another, has other things, too.
        if called is None and gc.get_freeze_count() == 0:
            gc.freeze()
        return run_sweep(
            config,
            stored_config,
            resume=resume,
            deliverer=deliverer,
            called=called,
            train_again=train_again,
        )


def say_that_it_loads() -> None:
    """Some seconds in which nothing else is said."""
    from automl.running.pictures import mute
    from automl.tracking.say import say_on_stdout

    try:
        say_on_stdout("loading Optuna, PyTorch and MLflow: some seconds")
    except OSError:  # nobody looks, and the sweep goes on
        mute(sys.stdout)
