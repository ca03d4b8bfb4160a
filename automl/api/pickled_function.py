"""What a function called from Python consists of: its parts as digests, and its bytes for workers.

The parts are the function's code and the values that it captures. A study stores them as digests,
recognises the function by them in another process, and names the part that changed. Comments and
the function's place in its file do not count, and objects of libraries count only by their names.
The bytes are made by cloudpickle, which no other module imports. The messages say which part of a
function cannot be pickled, and which part makes it large. Calling the function is not done here.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import pickle
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cloudpickle

from automl.errors import ConfigError
from automl.objectives.code_digest import digest_of_code, innermost_function, short_digest
from automl.record.texts import fit_line

_INSTALLED = (
    "site-packages",
    "dist-packages",  # Debian's
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")),
)
"""Texts that the paths of library files contain. Python's prefix is not one of them: it may be
/usr, below which users have files of their own, too."""
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def function_parts(function: Callable[..., Any], apart: object = None) -> dict[str, str]:
    """Return a digest per part, by the part's name; the same for the same function in any process.

    The object `apart` is left out, wherever it is reached: a study compares it by itself.
    """
    digests = {"source": digest_of_code(function)}
    return digests | {
        name: _ValueDigest(apart).of(value) for name, value in function_values(function)
    }


def part_settings(function: Callable[..., Any], apart: object = None) -> list[str]:
    """Return `NAME=DIGEST` for each part of a function, as a study's config stores them."""
    return [f"{name}={digest}" for name, digest in function_parts(function, apart).items()]


def function_values(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values that a function takes with it besides its code, with names for people."""
    if isinstance(function, functools.partial):
        yield from ((f"argument {n}", value) for n, value in enumerate(function.args))
        yield from ((f"argument {name}", value) for name, value in function.keywords.items())
        yield from function_values(function.func)
        return
    if isinstance(function, types.MethodType):
        yield from ((f"self.{name}", value) for name, value in _state(function.__self__))
        yield from function_values(function.__func__)
        return
    if not isinstance(function, types.FunctionType):
        yield from ((f"self.{name}", value) for name, value in _state(function))
        if (call := innermost_function(function)) is not None:
            yield from function_values(call)
        return
    yield from _defaults(function)
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    yield from ((f"closure {name}", _content(cell)) for name, cell in cells)
    names = function.__globals__
    yield from ((f"global {n}", names[n]) for n in _global_names(function.__code__) if n in names)


def calls_suggest(function: Callable[..., Any]) -> bool:
    """Return whether a function, or one of the user's own that it may call, calls `suggest_…` of
    Optuna's trial. It may be of a notebook, so its code is read and not its source."""
    known: set[int] = set()
    waiting: list[object] = [function]
    while waiting:
        value = _unwrapped(waiting.pop())
        if id(value) in known or not callable(value) or isinstance(value, type):
            continue
        known.add(id(value))
        inner = innermost_function(value)
        if inner is None or _is_installed(inner):
            continue
        if any(map(_suggests, _codes(inner.__code__))):
            return True
        waiting += [named for _, named in function_values(value)]
    return False


_SUGGESTIONS = frozenset(
    f"suggest_{kind}"
    for kind in ("float", "int", "categorical", "uniform", "loguniform", "discrete_uniform")
)
"""The methods by which an objective asks Optuna's trial for a param."""


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _suggests(code: types.CodeType) -> bool:
    if _SUGGESTIONS.isdisjoint(code.co_names):
        return False
    return any(
        step.opname in ("LOAD_ATTR", "LOAD_METHOD") and step.argval in _SUGGESTIONS
        for step in dis.get_instructions(code)
    )


def function_name(function: Callable[..., Any]) -> str:
    """Return the name of the function for messages, on one line: `train`, `NetworkTrainer.train`,
    `lambda`."""
    if isinstance(function, functools.partial):
        return function_name(function.func)
    name = getattr(function, "__qualname__", type(function).__name__)
    return str(name).rpartition("<locals>.")[2].replace("<lambda>", "lambda")


def function_file(function: Callable[..., Any]) -> str:
    """Return where people find the function: its file, its notebook, or a word if it has
    neither."""
    inner = innermost_function(function)
    file = "" if inner is None else str(inspect.unwrap(inner).__code__.co_filename)
    if "ipykernel" not in file and file.endswith(".py"):
        return file
    main_names = vars(sys.modules["__main__"])
    if "ipykernel" in sys.modules:
        return str(
            main_names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "a notebook")
        )
    return str(main_names.get("__file__", "an interactive session"))


def _defaults(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    by_position = function.__defaults__ or ()
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    first = len(names) - len(by_position)
    yield from ((f"default {n}", v) for n, v in zip(names[first:], by_position, strict=True))
    yield from ((f"default {n}", v) for n, v in (function.__kwdefaults__ or {}).items())


def _state(instance: object) -> list[tuple[str, Any]]:
    return sorted(getattr(instance, "__dict__", {}).items())


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # a name that has no value yet
        return None


def _global_names(code: types.CodeType) -> list[str]:
    """Return the names that code, inner functions included, may look up in its module."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names.update(_global_names(constant))
    return sorted(names)


_IN_PROGRESS = short_digest(b"again")  # stored digests depend on this text


class _ValueDigest:
    """Computes the digest of a value, which may contain itself. One instance serves one part."""

    def __init__(self, apart: object) -> None:
        self._known: dict[int, str] = {} if apart is None else {id(apart): short_digest(b"apart")}
        """Digests by the identity of the value; `_IN_PROGRESS` while one is being computed."""
        self._kept: list[object] = []
        """Keeps the digested values alive, so that no other object gets an identity in `_known`."""

    def of(self, value: object) -> str:
        """Return the type and the digest of a value: `float, 1f3a…`."""
        return f"{type(value).__name__}, {self._hex(value)}"

    def _hex(self, value: object) -> str:
        if isinstance(value, _PLAIN):
            return short_digest(f"{type(value).__name__} {value!r}".encode(errors="replace"))
        if id(value) not in self._known:
            self._known[id(value)] = _IN_PROGRESS
            self._kept.append(value)
            self._known[id(value)] = short_digest(self._of_object(_unwrapped(value)))
        return self._known[id(value)]

    def _of_object(self, value: object) -> bytes:
        if isinstance(value, types.ModuleType):
            return value.__name__.encode()
        if isinstance(value, Mapping):
            return self._joined("dict", [x for pair in value.items() for x in pair])
        if isinstance(value, list | tuple):
            return self._joined(type(value).__name__, value)
        if isinstance(value, set | frozenset):
            return b" ".join(sorted(self._hex(item).encode() for item in value))
        if (is_class := isinstance(value, type)) or inspect.isroutine(value):
            return self._of_code(value, is_class=is_class)
        return self._of_data(value)

    def _joined(self, kind: str, items: Any) -> bytes:
        return " ".join([kind, *(self._hex(item) for item in items)]).encode()

    def _of_code(self, value: Any, *, is_class: bool) -> bytes:
        """Return a digest of the user's own functions and classes by their parts, of a library's by
        name."""
        name = f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"
        if _is_installed(value):
            return name.encode()
        if is_class:
            return self._joined(name, [x for pair in _members(value) for x in pair])
        if isinstance(value, types.FunctionType):
            inner = [v for pair in function_values(value) for v in pair]
            return self._joined(f"{name} {digest_of_code(value)}", inner)
        return name.encode()

    def _of_data(self, value: Any) -> bytes:
        array = _array(value)
        if array is not None:
            return array
        if not _is_installed(type(value)) and hasattr(value, "__dict__"):
            return self._joined(type(value).__qualname__, [x for p in _state(value) for x in p])
        try:
            return pickle.dumps(value, protocol=5)
        except Exception:  # noqa: BLE001 - what cannot be pickled counts by its type
            return type(value).__qualname__.encode()


def _unwrapped(value: Any) -> object:
    """Return the function inside a property, a static or class method, or a cache of results."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, types.MethodType):
        return (value.__func__, value.__self__)
    if isinstance(value, staticmethod | classmethod | functools._lru_cache_wrapper):
        return value.__wrapped__
    return value


def _members(cls: type) -> list[tuple[str, object]]:
    """Return the methods and attributes of a class, less what Python adds."""
    own = vars(cls).items()
    return sorted(
        ((n, v) for n, v in own if not n.startswith("__") or isinstance(v, types.FunctionType)),
        key=lambda member: member[0],
    )


def _array(value: Any) -> bytes | None:
    """Return type, shape and content of an array or a tensor; None for any other value."""
    try:
        if hasattr(value, "requires_grad"):  # a tensor; files, too, can be detached
            value = value.detach().cpu()
        view = memoryview(value.__array__() if hasattr(value, "__array__") else value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if "O" in view.format:  # the bytes would be addresses of objects
        return None
    return f"{view.format} {view.shape}".encode() + view.tobytes()


def _is_installed(value: Any) -> bool:
    """Return whether the value belongs to a library: its module's file is installed, or is none."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    if module is None or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or any(part in file for part in _INSTALLED)


LARGE_BYTES = 64 * 1024**2
"""Size above which a message warns of the pickled function: each worker receives and keeps it."""
_WORTH_NAMING_BYTES = 1024**2
_N_NAMED = 5


def pickle_function(function: Callable[..., Any]) -> bytes:
    """Return the function as bytes. Raises ConfigError that names what of it cannot be sent."""
    try:
        pickled: bytes = cloudpickle.dumps(function)
    except Exception as error:
        raise ConfigError(
            f"{function_name(function)} cannot be sent to worker processes: "
            f"{_culprit(function, error)}. "
            "Make that inside the function, or train in this process with "
            'overrides=["execution=inline"].'
        ) from error
    return pickled


def pickle_size_notes(function: Callable[..., Any], n_bytes: int) -> tuple[str, ...]:
    """Return a note on what makes a large function large, the largest first; none if it is
    small."""
    if n_bytes <= LARGE_BYTES:
        return ()
    sizes = {name: _n_bytes(value) for name, value in function_values(function)}
    large = sorted((n for n in sizes if sizes[n] >= _WORTH_NAMING_BYTES), key=sizes.__getitem__)
    named = ", ".join(f"{name} {_mib(sizes[name])}" for name in large[: -_N_NAMED - 1 : -1])
    return (
        f"{function_name(function)} takes {_mib(n_bytes)} along into each worker process"
        f"{f' ({named})' if named else ''}: read data inside of it, or from a file",
    )


def _culprit(function: Callable[..., Any], error: Exception) -> str:
    """Return the values that cannot be pickled by themselves; if each can, the function's own
    error."""
    culprits = []
    for name, value in function_values(function):
        try:
            cloudpickle.dumps(value)
        except Exception as value_error:  # noqa: BLE001 - any object may raise anything
            culprits.append(f"{name} ({type(value).__name__}): {value_error}")
    return fit_line("; ".join(culprits) or f"{type(error).__name__}: {error}", 500)


def _n_bytes(value: object) -> int:
    try:
        return len(cloudpickle.dumps(value))
    except Exception:  # noqa: BLE001 - the function was pickled: only a note needs it
        return 0


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 1024**2:.1f} MiB"
