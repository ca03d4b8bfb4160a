"""The keys that belong to one option of a group: such a key chooses its option, and is refused
beside another one.

A key of the options that share a class (`data.path` is for data=csv) would otherwise be ignored
silently. Models, samplers and pruners have a class per option, and Hydra refuses foreign keys.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from automl.cli.command_registry import default_options
from automl.cli.config_keys import DEFAULT_MODEL, OPTIONS_BY_CLASS, config_keys
from automl.config import Config
from automl.errors import ConfigError

_FUNCTION_OPTIONS = ("python", "optuna", "called")
_OPTIONS_BY_KEY: Mapping[str, tuple[str, ...]] = {
    "data.path": ("csv",),
    "data.target": ("csv",),
    "data.columns": ("csv",),
    "data.combine": ("csv",),
    "data.group": ("csv",),
    "data.time": ("csv",),
    "data.source": ("python",),
    "data.n_train": ("disc",),
    "data.n_validation": ("disc",),
    "objective.target": _FUNCTION_OPTIONS,
    "objective.command": ("command",),
    "objective.pattern": ("command",),
    "ray": ("ray",),
}
"""The kinds of data, objective or execution that a key, or all keys of a section, are for."""
_GROUP_OF_SECTION = {"ray": "execution"}
_NO_VALUE = frozenset(("", "null", "none", "[]", "{}"))


def options_named_by_keys(lines: Sequence[str], defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the keys of overrides choose, by group; `defaults` are the options
    of the groups in which nothing was chosen.

    Raises ConfigError for a key that belongs to several options, if the default has no such key.
    """
    named: dict[str, str] = {}
    given_groups = {key.partition(".")[0] for key, _ in _pairs(lines) if _chooses(key)}
    for key, value in _pairs(lines):
        group, options = _group_and_options(key, defaults)
        is_open = group in defaults and group not in given_groups and group not in named
        if not is_open or not options or not _says_something(key, value):
            continue
        if options == _FUNCTION_OPTIONS:
            named[group] = "optuna" if asks_by_suggest(value) else "python"
        elif len(options) == 1:
            named[group] = options[0]
        else:
            listed = ", ".join(f"{group}={option}" for option in options)
            raise ConfigError(f"{key}={value}: {listed} have this key; add one of them.")
    return named


def refuse_kinds(lines: Sequence[str]) -> None:
    """Raise ConfigError for a `kind` on a command line: it would not choose the option of that
    name, but leave all its other values out."""
    for key, value in _pairs(lines):
        group, _, name = key.partition(".")
        if name == "kind" and group in default_options():
            also = ", or table=FILE, which chooses it" if (group, value) == ("data", "csv") else ""
            raise ConfigError(f"{key}={value}: the option says this: write {group}={value}{also}.")


def refuse_unused_keys(config: Config, lines: Sequence[str]) -> None:
    """Raise ConfigError for the first override whose key is for another option than the config
    has."""
    kinds = {
        "data": config.data.kind.value,
        "objective": config.objective.kind.value,
        "execution": config.execution.kind.value,
    }
    for key, value in _pairs(lines):
        group, options = _shared_class_options(key)
        if options and kinds[group] not in options and _says_something(key, value):
            raise ConfigError(
                f"{key}={value}: is for {group}={options[0]}, and {group}={kinds[group]} is "
                f"chosen: add {group}={options[0]}, or leave {key} out."
            )


def _chooses(key: str) -> bool:
    """Return whether a key says the option of its group: `data`, or `data.kind` as in older
    studies."""
    return "." not in key or key.endswith(".kind")


def _group_and_options(key: str, defaults: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Return the group of a key, and the options that have it; none where the default has it."""
    group, _, name = key.partition(".")
    classes = OPTIONS_BY_CLASS.get(group)
    if classes is None or not name:
        group, options = _shared_class_options(key)
        return group, () if defaults.get(group) in options else options
    default = classes.get(defaults.get(group, ""))
    if default is None or name in config_keys(default):
        return group, ()
    return group, tuple(
        option
        for option, cls in classes.items()
        if option != DEFAULT_MODEL and name in config_keys(cls)
    )


def _shared_class_options(key: str) -> tuple[str, tuple[str, ...]]:
    section = key.partition(".")[0]
    names = (key, ".".join(key.split(".")[:2]), section)
    options = next((_OPTIONS_BY_KEY[name] for name in names if name in _OPTIONS_BY_KEY), ())
    return _GROUP_OF_SECTION.get(section, section), options


def _says_something(key: str, value: str) -> bool:
    """Return whether a value differs from what holds where the key is not given."""
    return value not in _NO_VALUE and (value != "auto" or key == "ray.address")


def _pairs(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each override that is no deletion."""
    for line in lines:
        key, is_setting, value = line.lstrip("+").partition("=")
        if is_setting:
            yield key, value.strip("'\"")


# --- the source of a function ---------------------------------------------------------------------


def asks_by_suggest(target: str) -> bool:
    """Return whether the source of a function (`module:function`, `file.py:function`) calls
    `suggest_…`, as objectives for Optuna do. Nothing is imported; False where there is no source.
    """
    place, _, name = target.rpartition(":")
    for file in _source_files(place):
        with suppress(OSError, SyntaxError, ValueError, RecursionError):
            node = _find(ast.parse(file.read_bytes()), name.split("."))
            return node is not None and any(map(_is_suggest, ast.walk(node)))
    return False


def _source_files(place: str) -> Iterator[Path]:
    if not place:  # a function that was given to `automl.sweep` has a name alone
        return
    if place.endswith(".py"):
        yield Path(place).expanduser()
        return
    path = Path(*place.split("."))
    for folder in ("", *sys.path):
        for file in (Path(folder, path).with_suffix(".py"), Path(folder, path, "__init__.py")):
            if file.is_file():
                yield file


def _find(tree: ast.AST, names: Sequence[str]) -> ast.AST | None:
    """Return the definition of a function by its dotted name within a tree."""
    found: ast.AST | None = tree
    for name in names:
        inner = ast.iter_child_nodes(found) if found is not None else ()
        found = next((node for node in inner if getattr(node, "name", None) == name), None)
    return found


def _is_suggest(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.startswith("suggest_")
