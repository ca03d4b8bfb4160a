"""`resume`: continues a study by its own stored config; a sweep that is paused goes on.

The file is short because each command is a file of its own.
"""

from __future__ import annotations

from contextlib import suppress

from automl.commands.command_call import CommandCall
from automl.commands.models.study_opening import open_requests
from automl.commands.steering import ask_sweep, changed_settings
from automl.commands.sweep import load_and_run_sweep
from automl.errors import AutoMLError, ConfigError
from automl.record.studies import study_path


def run(call: CommandCall) -> int:
    """Run the sweep of an existing study to its end, or let its paused sweep go on.

    A sweep at work keeps its settings, so other ones start a sweep. Raises AutoMLError.
    """
    config = call.config
    path = study_path(config.study)
    with open_requests(config.study, path) as requests:
        is_served = requests.is_served()
    if is_served and not changed_settings(call):
        # A shared study may have one more sweep; where it may not, opening one gives the best
        # reason.
        with suppress(AutoMLError if config.study.shared else ConfigError):
            return ask_sweep(path, config.study, "resume", {})
    return load_and_run_sweep(config, call.stored_config, resume=True)
