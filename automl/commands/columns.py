"""`columns`: prints how each column of a table is read, and why.

The file is short because each command is a file of its own; the decisions are made in
`automl/data`.
"""

from __future__ import annotations

from automl.commands.command_call import CommandCall
from automl.config import DataKind
from automl.errors import ConfigError
from automl.record.texts import fit_line
from automl.terminal.console import open_console
from automl.terminal.machine_output import wants_answer, write_answer
from automl.tracking.long_step import long_step

COLUMNS = ("column", "taken as", "why", "features")


def run(call: CommandCall) -> int:
    """Print a row for each column of `data.path`. Raises ConfigError."""
    config = call.config
    if config.data.kind is not DataKind.csv:
        raise ConfigError(
            f"columns shows those of a table of yours, and data={config.data.kind.name} has none: "
            "add table=FILE target=COLUMN, or the name of a study of one: columns NAME."
        )
    from automl.data.load import describe_columns

    console = open_console()
    with long_step(f"reading {config.data.path}"):
        rows, lines = describe_columns(config.data)
    if wants_answer():
        write_answer({"columns": rows, "notes": lines})
        return 0
    table = [(fit_line(r.name), r.kind, fit_line(r.why), str(r.n_features)) for r in rows]
    console.table(COLUMNS, table, n_left=3)
    for line in lines:
        console.say(line)
    return 0
