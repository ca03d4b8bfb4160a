"""`sweep`: runs a study up to `study.n_trials` trials.

Libraries are loaded here in an order that saves time; the sweep itself is in
`automl/running/run_sweep.py`.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from automl.commands.command_call import CommandCall
from automl.config import Config
from automl.objectives.function_call import CalledFunction
from automl.record.signal_receiver import receive_signals
from automl.running.prepare.early_refusals import refuse_early
from automl.running.prepare.resume_command import refuse_refit_folder

if TYPE_CHECKING:
    from automl.running.prepare.prepared_config import PreparedStudy
    from automl.running.prepare.refit_task import RefitTask


def run(call: CommandCall) -> int:
    """Run a new study, or the study `study.name`, by these settings. Raises AutoMLError."""
    return load_and_run_sweep(call.config, call.stored_config, resume=False)


def load_and_run_sweep(
    config: Config,
    stored_config: str,
    *,
    resume: bool,
    called: CalledFunction | None = None,
    from_python: bool = False,
    called_seconds: float | None = None,
) -> int:
    """Load the libraries and run the sweep to its end. Returns the exit code.

    `called` is the function that the sweep was called with from Python. `from_python` says that the
    same call resumes the study. `study.timeout_seconds` count from `called_seconds` (monotonic);
    None: from now.
    """
    called_seconds = time.monotonic() if called_seconds is None else called_seconds
    refuse_early(config, called)
    refuse_refit_folder(config.study)
    with ExitStack() as warm:
        warm.enter_context(receive_signals(owns_process=False))
        with loading("Optuna, PyTorch and MLflow"):
            # Both imports take time; the processes that the first starts load during the second.
            from automl.running.opening.warm_start import warm_up_processes

            deliverer = warm.enter_context(warm_up_processes(config))
            from automl.running.run_sweep import run_sweep

        def train_again(task: RefitTask, prepared: PreparedStudy) -> int:
            from automl.running.refit.refit_run import run_prepared_refit

            return run_prepared_refit(task, prepared, stored_config)

        # Libraries are never garbage: without the freeze the exit takes 0.15 s more of a core. The
        # caller's process, or one that runs several commands, also holds other objects.
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
    """Print that libraries are loaded, which takes some seconds."""
    from automl.record.texts import say_unfailing
    from automl.tracking.long_step import long_step

    with long_step(f"loading {what}", say_unfailing):
        yield
