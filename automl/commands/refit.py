"""`refit`: the winner of a study trained again, on more rows and all free devices."""

from __future__ import annotations

from automl.commands.sweep import say_that_it_loads
from automl.config import Config


def run(config: Config, stored_config: str) -> int:
    """Train it and write `refit.pt` in the study; the same command goes on with one that was
    interrupted. Raises AutoMLError."""
    from automl.running.refit.begin import begin

    begun = begin(config)
    say_that_it_loads()
    from automl.running.warm import warmed_up

    with warmed_up(config) as deliverer:
        from automl.running.refit.run import refit

        return refit(begun, stored_config, deliverer)
