"""Overrides that are taken as they are typed: a command, a pattern, the name of a column.

`objective.command=python train.py --lr {lr}` is no text in Hydra's grammar, which would read the
braces as a mapping and refuse the rest. Nor is the name of a column a key in it, which may hold
spaces and dots; it is written as a key of a mapping.
"""

from __future__ import annotations

import re

from automl.cli.space import override_text

_RAW = re.compile(r"(\+{0,2}objective\.(?:command|pattern)=)(.*)", re.DOTALL)
_COLUMN = re.compile(r"\+{0,2}data\.columns\.([^\n]+)=(\w+)")
_NULL = frozenset(("", "null", "???"))


def quoted(override: str) -> str:
    """The override as Hydra takes it; one that is quoted for Hydra already stays."""
    if column := _COLUMN.fullmatch(override):
        name = re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", column[1])
        return f"++data.columns={{{name}: {column[2]}}}"  # which adds to what is there
    match = _RAW.fullmatch(override)
    if match is None or match[2] in _NULL or _is_quoted(match[2]):
        return override
    return match[1] + override_text(match[2])


def _is_quoted(value: str) -> bool:
    """Whether one pair of quotation marks holds all of it: `'a' 'b'` is a command of two words."""
    mark, inner = value[0], value[1:-1]
    if mark not in "'\"" or not value.endswith(mark) or len(value) < 2:
        return False
    return re.search(rf"(?<!\\){mark}", inner) is None
