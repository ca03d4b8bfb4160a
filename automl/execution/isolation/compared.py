"""What cannot be put back with certainty, and is compared: names of modules, and descriptors.

Attributes are compared by identity: a function that was replaced, in whatever way, is another.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import is_
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

NAMESPACES = (
    "torch",
    "torch.nn",
    "torch.nn.functional",
    "torch.optim",
    "builtins",
    "numpy.random",
)
"""Modules whose attributes are compared, where they were imported before the trial."""

Names: TypeAlias = Mapping[str, Mapping[str, object]]
"""What each module's attributes are, by its name."""


def names() -> Names:
    """As they are now."""
    return {name: dict(vars(sys.modules[name])) for name in NAMESPACES if name in sys.modules}


def changed_names(before: Names) -> Sequence[str]:
    """Attributes that are others now, or new, or gone: `torch.relu`."""
    return [
        f"{module}.{name}"
        for module, were in before.items()
        if not _are_same(were, vars(sys.modules[module]))
        for name in _changed(were, vars(sys.modules[module]))
    ]


def put_back_names(before: Names) -> None:
    """As they were, for the rest of the process's life: whoever took one meanwhile has it still."""
    for module, were in before.items():
        now = vars(sys.modules[module])
        for name in [*_changed(were, now)]:
            if name in were:
                now[name] = were[name]
            else:
                del now[name]


def _are_same(were: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Quickly: nothing was added either, and the order is what it was."""
    return len(were) == len(now) and all(map(is_, were.values(), now.values()))


def _changed(were: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    for name, was in were.items():
        if name not in now or (now[name] is not was and not _wraps_by_torch(now[name], was)):
            yield name
    for name in now.keys() - were.keys():
        # What is imported appears in its package; Python notes in a module what it warned of there.
        if not isinstance(now[name], ModuleType) and not name.startswith("__"):
            yield name


def _wraps_by_torch(value: Any, was: object) -> bool:
    """Whether torch put a wrapper of its own around it, as it does with `torch.manual_seed` when an
    optimizer is first made. One of the user's may wrap it as well, but is not torch's code."""
    code = getattr(value, "__code__", None)
    folder = os.path.dirname(str(sys.modules["torch"].__file__)) if "torch" in sys.modules else ""
    wraps = getattr(value, "__wrapped__", None) is was
    return wraps and bool(folder) and str(getattr(code, "co_filename", "")).startswith(folder)


@dataclass(frozen=True)
class _Open:
    """What a descriptor leads to."""

    device: int
    inode: int
    name: str
    """For people."""


Descriptors: TypeAlias = Mapping[int, _Open]


def descriptors() -> Descriptors:
    """Those that are open now, but for the standard streams, which each trial has of its own; none
    where the system does not list them (it does on Linux)."""
    found = {}
    with suppress(FileNotFoundError):
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # the one that the folder was listed by is closed again
                status = os.fstat(fd)
                name = os.readlink(f"/proc/self/fd/{fd}")
                found[fd] = _Open(status.st_dev, status.st_ino, name)
    return {fd: opened for fd, opened in found.items() if fd > 2}


def closed_descriptors(before: Descriptors) -> Sequence[str]:
    """What those led to that lead there no more."""
    return [_said(opened) for fd, opened in before.items() if not _is_open(fd, opened)]


def _is_open(fd: int, opened: _Open) -> bool:
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (opened.device, opened.inode)


def _said(opened: _Open) -> str:
    """`socket:[4711]` is another at each time."""
    kind, is_numbered, _ = opened.name.partition(":[")
    return f"a {kind}" if is_numbered else str(Path(opened.name))
