"""The command line: `python -m automl` and the script `automl` call `main`.

`arguments.py` parses the words; `option_answers.py` answers an option, `command_steps.py` runs a
command. This file turns exceptions into exit codes and messages. Modules are imported only when
they are needed: `--help` answers without Hydra, a bad key without torch.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from automl.record.signal_receiver import SignalReceiver


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line (None: this process's). Returns the exit code.

    Ends the process itself where trials still run in threads: the interpreter would wait for them.
    """
    from automl.record.signal_receiver import receive_signals

    _replace_unprintable()
    words = sys.argv[1:] if argv is None else argv
    with receive_signals(owns_process=True, to_the_exit=argv is None) as signals:
        return _run(words, signals)


def _run(words: Sequence[str], signals: SignalReceiver) -> int:
    from automl.errors import AutoMLError, TrialsLeftBehindError
    from automl.record.signal_receiver import StopSignal

    as_json = "--json" in words
    try:
        from automl.cli.arguments import parse_command_line

        line = parse_command_line(words)
        if line.asks_option:
            from automl.cli.option_answers import answer_option

            code = answer_option(line)
        else:
            from automl.cli.command_steps import run_command

            code = run_command(line)
        sys.stdout.flush()  # at the exit of the interpreter it would fail with a traceback
        return code
    except TrialsLeftBehindError as left:
        code = left.exit_code
        if left.__cause__ is not None:
            code = _explain(left.__cause__, as_json=as_json)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(code)
    except (AutoMLError, OSError) as error:
        return _explain(error, as_json=as_json)
    except KeyboardInterrupt:
        return _explain(signals.first or StopSignal(signal.SIGINT), as_json=as_json)
    except Exception:
        if signals.first is None:
            raise
        return _explain(signals.first, as_json=as_json)  # what a library made of the signal


def _explain(error: BaseException, *, as_json: bool) -> int:
    """Print what ended the command, and return the exit code."""
    from automl.record.texts import mute_stream

    if isinstance(error, BrokenPipeError):
        mute_stream(sys.stdout)
        return 128 + signal.SIGPIPE  # `| head -1` has read enough
    exit_code: int = getattr(error, "exit_code", 1)
    try:
        if as_json:
            sys.stdout.write(_error_json(error, exit_code))
        _print_error(error)
    except OSError:
        mute_stream(sys.stderr)
    return exit_code


def _error_json(error: BaseException, exit_code: int) -> str:
    """Return the error as a line of JSON. `setting` and `value` are taken from the beginning of the
    message, `rule` is the rest, with the remedy."""
    import json
    import re

    message = _message(error)
    match = re.fullmatch(r"([\w.]+)=(.*?): (.+)", message, re.DOTALL)
    setting, value, rule = match.groups() if match else (None, None, message)
    plain = {"message": message, "setting": setting, "value": value, "rule": rule}
    return json.dumps({"error": plain, "exit_code": exit_code}) + "\n"


def _replace_unprintable() -> None:
    """Let the streams print `?` for characters that a terminal cannot encode: printing never ends
    the work."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _print_error(error: BaseException) -> None:
    """Write the error's message to stderr; with AUTOML_DEBUG=1 the traceback before it."""
    from automl.record.texts import fit_text

    if os.environ.get("AUTOML_DEBUG") == "1":
        import traceback

        sys.stderr.write(fit_text("".join(traceback.format_exception(error))))
    message = _message(error)
    sys.stderr.write(f"automl: {fit_text(message)}\n")


def _message(error: BaseException) -> str:
    """Return the text for an error, including an error of the operating system that no other code
    handles."""
    if isinstance(error, KeyboardInterrupt):
        return f"{error}: stopped before its end; give the same command again."
    if not isinstance(error, OSError):
        return str(error)
    file = "" if error.filename is None else f"{error.filename}: "
    return (
        f"{file}{error.strerror or error}. Mend that and give the command again; AUTOML_DEBUG=1 "
        "shows where it was met, and `automl doctor` what is wrong here."
    )
