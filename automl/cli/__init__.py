"""The command line. `python -m automl` and the script `automl` call `main`.

`program_arguments.py` takes the words apart, `compose.py` makes a checked `Config` of them (the
only module
family that knows Hydra), and what `command_registry.py` names for the command runs it. Nothing is
imported
here before it is needed: `--help` answers without Hydra, a bad key without torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: this process's). Returns the exit code.

    Ends the process itself where trials run on in threads: the interpreter would wait for them.
    """
    from automl.errors import AutoMLError, TrialsLeftBehindError

    _print_what_can_be()
    try:
        from automl.cli.arguments import parse
        from automl.cli.command_dispatch import run

        code = run(parse(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()  # at the exit of the interpreter it would fail with a traceback
        return code
    except TrialsLeftBehindError as left:
        code = left.exit_code if left.__cause__ is None else _explain(left.__cause__)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    except (AutoMLError, OSError, KeyboardInterrupt) as error:
        return _explain(error)


def _explain(error: BaseException) -> int:
    """Say what ended the command; returns the exit code."""
    from automl.errors import AutoMLError
    from automl.running.display.display_failures import mute_stream

    if isinstance(error, KeyboardInterrupt):
        return 130  # before the sweep has taken the signal over, or after it has given it back
    if isinstance(error, BrokenPipeError):
        mute_stream(sys.stdout)
        return 128 + signal.SIGPIPE  # `| head -1` has read enough
    try:
        _tell(error)
    except OSError:
        mute_stream(sys.stderr)
    return error.exit_code if isinstance(error, AutoMLError) else 1


def _print_what_can_be() -> None:
    """What a terminal cannot encode becomes `?` there: printing never ends the work."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _tell(error: BaseException) -> None:
    """One message on stderr; with AUTOML_DEBUG=1 the traceback before it."""
    from automl.record.texts import fit

    if os.environ.get("AUTOML_DEBUG") == "1":
        import traceback

        sys.stderr.write(fit("".join(traceback.format_exception(error))))
    words = _words(error) if isinstance(error, OSError) else str(error)
    sys.stderr.write(f"automl: {fit(words)}\n")


def _words(error: OSError) -> str:
    """What the system refused, where nobody foresaw that it would."""
    file = "" if error.filename is None else f"{error.filename}: "
    return (
        f"{file}{error.strerror or error}. Mend that and give the command again; AUTOML_DEBUG=1 "
        "shows where it was met."
    )
