"""`sweep`: a study to `study.n_trials` trials."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from automl.config import Config
from automl.objectives.function_call import CalledFunction
from automl.running.setup.resume_command import refuse_missing_function, refuse_refit_folder

if TYPE_CHECKING:
    from automl.running.refit.refit_settings import RefitTask
    from automl.running.setup.prepared_config import PreparedStudy


def run(config: Config, stored_config: str) -> int:
    """A new study, or the one of `study.name`, by these settings. Raises AutoMLError."""
    return carry_out(config, stored_config, resume=False)


def carry_out(
    config: Config,
    stored_config: str,
    *,
    resume: bool,
    called: CalledFunction | None = None,
    from_python: bool = False,
    called_seconds: float | None = None,
) -> int:
    """Load, and run to the end, with the function that the sweep was called with, if it was.

    `from_python`: the same call with the study's name goes on. `study.timeout_seconds` count from
    `called_seconds` (monotonic); None: from now. Returns the exit code.
    """
    called_seconds = time.monotonic() if called_seconds is None else called_seconds
    refuse_missing_function(config, called)
    refuse_refit_folder(config.study)
    with ExitStack() as warm:
        with loading("Optuna, PyTorch and MLflow"):
            # Each of the two takes its time, and what the first starts goes on beside the second.
            from automl.running.setup.warm_start import warm_up_processes

            deliverer = warm.enter_context(warm_up_processes(config))
            from automl.running.setup.run_sweep import run_sweep

        def train_again(begun: RefitTask, prepared: PreparedStudy) -> int:
            from automl.running.refit.refit_run import run_prepared_refit

            return run_prepared_refit(begun, prepared, stored_config)

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
            from_python=from_python,
            train_again=train_again,
            called_seconds=called_seconds,
        )


@contextmanager
def loading(what: str) -> Iterator[None]:
    """Say that libraries are loaded, which takes some seconds."""
    from automl.running.display.display_failures import say_unfailing
    from automl.tracking.long_step import long_step

    with long_step(f"loading {what}", say_unfailing):
        yield
