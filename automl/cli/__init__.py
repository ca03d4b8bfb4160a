"""The command line. `python -m automl` and the script `automl` call `main`.

`arguments.py` takes the words apart, `compose.py` makes a checked `Config` of them (the only module
family that knows Hydra), `commands.py` hands it to what does the work. Nothing is imported here
before it is needed: `--help` answers without Hydra, a bad key without torch.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: this process's). Returns the exit code."""
    from automl.errors import AutoMLError

    _print_what_can_be()
    try:
        from automl.cli.arguments import parse
        from automl.cli.commands import run

        return run(parse(sys.argv[1:] if argv is None else argv))
    except AutoMLError as error:
        _tell(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130  # before the sweep has taken the signal over


def _print_what_can_be() -> None:
    """What a terminal cannot encode becomes `?` there: printing never ends the work."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _tell(error: Exception) -> None:
    """One message on stderr; with AUTOML_DEBUG=1 the traceback before it."""
    from automl.texts import fit

    if os.environ.get("AUTOML_DEBUG") == "1":
        import traceback

        sys.stderr.write(fit("".join(traceback.format_exception(error))))
    sys.stderr.write(f"automl: {fit(str(error))}\n")
