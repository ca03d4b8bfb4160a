"""`gain`: times what a GPU, more threads, bfloat16 and packs would gain the trials of a space.

Some steps of a small, a middle and a large trial are timed; nothing of a study is written. The file
is short because each command is a file of its own; the timing is in `automl/measure/gain` and its
report in `automl/commands/gain_report.py`.
"""

from __future__ import annotations

from dataclasses import replace

from automl.commands.command_call import CommandCall
from automl.config import ExecutionKind
from automl.errors import ConfigError


def run(call: CommandCall) -> int:
    """Print a table and a sentence of advice. Raises AutoMLError."""
    if not call.config.space:
        raise ConfigError(
            "space: it is empty, so that there is no trial to time. Choose one, such as "
            "space=mlp, or name params: space.width=32,64"
        )
    from automl.execution.worker_process import preload_fork_server

    preload_fork_server("automl.measure.gain.child")  # runs while this process loads its modules
    from automl.commands.gain_report import print_gain_report

    # Here every training is a process that can be ended, whatever `execution` a sweep would use.
    execution = replace(call.config.execution, kind=ExecutionKind.workers)
    print_gain_report(replace(call.config, execution=execution))
    return 0
