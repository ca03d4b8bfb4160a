"""Computes digests of the code of an objective, by which a study notices that the code has changed.

Comments and layout do not count. A function counts by its own source and the file that holds it, a
program by its file. What these import is not looked at.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from automl.record.study_record import FILE_OF

_N_DIGITS = 12
_COMMENT_LINE = re.compile(r"^[ \t]*#.*\n", re.MULTILINE)
_MAX_BYTES = 10_000_000
"""Size above which a file is no source that somebody writes."""


def short_digest(data: bytes) -> str:
    """Return the beginning of the SHA-256 of the bytes."""
    return hashlib.sha256(data).hexdigest()[:_N_DIGITS]


def digests_by_setting(key: str, function: object) -> dict[str, str]:
    """Return the digests of a function or class that the setting `key` names, and of its file;
    those that cannot be read are missing."""
    found: dict[str, str] = {}
    inner = function if isinstance(function, type) else innermost_function(function)
    if inner is None:
        return found
    if (source := _source(inner)) is not None:
        found[key] = short_digest(source.encode())
    with suppress(OSError, TypeError):
        if (file := inspect.getsourcefile(inspect.unwrap(inner))) is not None:
            found[f"{FILE_OF}{key}"] = digest_of_file(Path(file))
    return found


def digest_of_file(path: Path) -> str:
    """Return the digest of a source file without its comments. Raises OSError."""
    if path.stat().st_size > _MAX_BYTES:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:_N_DIGITS]
    content = path.read_bytes()
    with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
        return short_digest(ast.unparse(ast.parse(content)).encode(errors="replace"))
    if b"\0" in content:
        return short_digest(content)
    lines = (line.rstrip() for line in content.splitlines())
    return short_digest(b"\n".join(x for x in lines if x and not x.lstrip().startswith(b"#")))


def digest_of_code(function: Callable[..., Any]) -> str:
    """Return `9 lines, 1f3a…` if the function's source can be read, else a digest of its
    bytecode."""
    inner = innermost_function(function)
    if inner is None:
        return "unknown"
    source = _source(inner)
    if source is not None:
        return f"{len(source.splitlines())} lines, {short_digest(source.encode())}"
    return f"compiled, {short_digest(repr(list(_compiled(inner.__code__))).encode())}"


def innermost_function(function: Any) -> types.FunctionType | None:
    """Return the function behind a partial, a method or a callable instance; None for a builtin."""
    while not isinstance(function, types.FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif isinstance(
            call := inspect.getattr_static(function, "__call__", None), types.FunctionType
        ):
            function = call
        else:
            return None
    return function


def _source(code: types.FunctionType | type) -> str | None:
    """Return the source of a function or class without comments and in one layout. None for a
    lambda, which has no statement of its own, and for code that was never in a file."""
    try:
        text = inspect.getsource(code)
        try:
            first = ast.parse(textwrap.dedent(text)).body[0]
        except IndentationError:  # a comment stands further left than the code
            first = ast.parse(textwrap.dedent(_COMMENT_LINE.sub("", text))).body[0]
    except (OSError, SyntaxError, TypeError):
        return None
    if isinstance(first, ast.FunctionDef | ast.ClassDef) and first.name == code.__name__:
        return ast.unparse(first)
    return None


def _compiled(code: types.CodeType) -> Iterator[object]:
    yield from (code.co_code, code.co_names, code.co_varnames, code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield list(_compiled(constant))
        else:
            yield (
                repr(constant)
                if not isinstance(constant, frozenset)
                else sorted(map(repr, constant))
            )
