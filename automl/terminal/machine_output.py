"""Writes a command's answer as one JSON object, for programs that read it (`--json`).

While `machine_output` is active, lines for people go to stderr, so that stdout holds the answer
alone.
"""

from __future__ import annotations

import enum
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from typing import TextIO

from automl.errors import TrialsLeftBehindError


@dataclass
class MachineOutput:
    """The stream that the answer of one command goes to, once it has ended."""

    stream: TextIO
    answer: Mapping[str, object] | None = None

    def write(self) -> None:
        if self.answer is not None:
            text = json.dumps(to_json(self.answer), ensure_ascii=False, allow_nan=False)
            self.stream.write(text + "\n")
            self.stream.flush()


_output: ContextVar[MachineOutput | None] = ContextVar("machine_output", default=None)


@contextmanager
def machine_output() -> Iterator[MachineOutput]:
    """Write the last answer of the block to stdout. All else that is printed goes to stderr."""
    output = MachineOutput(sys.stdout)
    token = _output.set(output)
    try:
        with redirect_stdout(sys.stderr):
            yield output
    except TrialsLeftBehindError as left:
        if left.__cause__ is None:
            output.write()
        raise
    finally:
        _output.reset(token)
    output.write()


def wants_answer() -> bool:
    """Return whether the answer is for a program, and not for people."""
    return _output.get() is not None


def write_answer(answer: Mapping[str, object]) -> None:
    """Give the answer, if one is wanted; of several, as of a sweep within a refit, the last is
    written. Dataclasses become objects; a number that JSON does not have becomes null."""
    output = _output.get()
    if output is not None:
        output.answer = answer


def to_json(value: object) -> object:
    """Return a value in the types of JSON."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str) else value.name
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: to_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, Mapping):
        return {str(to_json(key)): to_json(inner) for key, inner in value.items()}
    if isinstance(value, Sequence | Set):
        return [to_json(inner) for inner in value]
    return str(value)
