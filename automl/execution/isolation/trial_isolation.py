"""Isolates each trial from the next in the same process: in a worker, and in the sweep's threads.

Watched values (`watched_values.py`) are put back after a trial. Names of modules and file
descriptors cannot be put back with certainty, and are compared as well; attributes are compared by
identity, so that a function that was replaced in whatever way counts as changed. A worker that
stays changed ends; the sweep's own process cannot be ended and only warns.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from operator import is_
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from automl.execution.isolation.leftover_processes import LivingBefore
from automl.execution.isolation.watched_values import (
    WATCHED_VALUES,
    Values,
    put_back_watched_values,
    watched_values,
)
from automl.record.texts import fit_line

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
"""The attributes of each module by name, by the module's name."""


def module_names() -> Names:
    """Return the present attributes of those of `NAMESPACES` that are imported."""
    return {name: dict(vars(sys.modules[name])) for name in NAMESPACES if name in sys.modules}


def changed_attributes(before: Names) -> Sequence[str]:
    """Return the attributes that were replaced, added or removed since then, like `torch.relu`."""
    return [
        f"{module}.{name}"
        for module, attributes in before.items()
        if not _are_same(attributes, vars(sys.modules[module]))
        for name in _changed(attributes, vars(sys.modules[module]))
    ]


def put_back_attributes(before: Names) -> None:
    """Restore the attributes of modules for the rest of the process's life.

    Code that took a replaced attribute meanwhile still has the replacement.
    """
    for module, attributes in before.items():
        now = vars(sys.modules[module])
        for name in [*_changed(attributes, now)]:
            if name in attributes:
                now[name] = attributes[name]
            else:
                del now[name]


def _are_same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Return quickly whether no attribute was replaced, added, removed or moved."""
    return len(before) == len(now) and all(map(is_, before.values(), now.values()))


def _changed(before: Mapping[str, object], now: Mapping[str, object]) -> Iterator[str]:
    for name, value in before.items():
        if name not in now or (now[name] is not value and not _wraps_by_torch(now[name], value)):
            yield name
    for name in now.keys() - before.keys():
        # An imported submodule appears in its package. Python keeps in a module the warnings that
        # were given there, under a name that begins with `__`.
        if not isinstance(now[name], ModuleType) and not name.startswith("__"):
            yield name


def _wraps_by_torch(value: Any, original: object) -> bool:
    """Return whether `value` is a wrapper that torch put around the original.

    torch wraps `torch.manual_seed`, for example, when an optimizer is first made. A user's code may
    wrap it as well, but that wrapper's code does not lie in torch's folder.
    """
    code = getattr(value, "__code__", None)
    folder = os.path.dirname(str(sys.modules["torch"].__file__)) if "torch" in sys.modules else ""
    wraps = getattr(value, "__wrapped__", None) is original
    return wraps and bool(folder) and str(getattr(code, "co_filename", "")).startswith(folder)


@dataclass(frozen=True)
class _OpenDescriptor:
    """Identifies the file or socket that a descriptor leads to."""

    device: int
    inode: int
    name: str
    """Name of the file or socket for people to read."""


Descriptors: TypeAlias = Mapping[int, _OpenDescriptor]


def open_descriptors() -> Descriptors:
    """Return the open descriptors without the standard streams, which each trial has of its own.

    Returns none where the system does not list them; Linux does.
    """
    found = {}
    with suppress(FileNotFoundError):
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # the descriptor that listed the folder is closed by now
                status = os.fstat(fd)
                name = os.readlink(f"/proc/self/fd/{fd}")
                found[fd] = _OpenDescriptor(status.st_dev, status.st_ino, name)
    return {fd: opened for fd, opened in found.items() if fd > 2}


def closed_descriptors(before: Descriptors) -> Sequence[str]:
    """Return display names of the descriptors that no longer lead where they led before."""
    return [_display_name(opened) for fd, opened in before.items() if not _is_open(fd, opened)]


def _is_open(fd: int, opened: _OpenDescriptor) -> bool:
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (opened.device, opened.inode)


def _display_name(opened: _OpenDescriptor) -> str:
    """Name a descriptor without the number in `socket:[4711]`, which differs each time."""
    kind, is_numbered, _ = opened.name.partition(":[")
    return f"a {kind}" if is_numbered else str(Path(opened.name))


logger = logging.getLogger(__name__)

_PER_THREAD = tuple(watched for watched in WATCHED_VALUES if watched.own_thread)
_SHARED = tuple(watched for watched in WATCHED_VALUES if not watched.own_thread)


class ThreadIsolation:
    """Isolates trials that run in threads of the sweep's own process (a `TrialIsolation`).

    Values that each thread has of its own are put back after each trial. Values of the whole
    process are put back when no trial runs, since the other running trials rely on them. Threads,
    processes and descriptors are not compared: they may be the sweep's, or the user's.
    """

    spent = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._n_running = 0
        self._before: tuple[Values, Names] = {}, {}
        """Values and names of the process as they were when no trial ran."""
        self._warnings: set[str] = set()
        """Warnings that were given already."""

    @contextmanager
    def __call__(self) -> Iterator[None]:
        own = watched_values(_PER_THREAD)
        with self._lock:
            self._n_running += 1
            if self._n_running == 1:
                self._before = watched_values(_SHARED), module_names()
            else:
                self._warn_once(
                    "execution=inline: trials run side by side in this process; what one changes "
                    "there (environment, working directory, default dtype, …) is put back when "
                    "none runs. execution=workers keeps them apart."
                )
        try:
            yield
        finally:
            left = put_back_watched_values(own)
            with self._lock:
                self._n_running -= 1
                if self._n_running == 0:
                    left = [*left, *self._put_back()]
                self._warn_of_changes(left)

    def _put_back(self) -> Iterator[str]:
        values, names = self._before
        yield from put_back_watched_values(values)
        changed = changed_attributes(names)
        if changed:
            put_back_attributes(names)
        yield from (f"{name} was another" for name in changed)

    def _warn_of_changes(self, left: Sequence[str]) -> None:
        if left:
            self._warn_once(
                "a trial left this process changed, which execution=inline cannot end, and the "
                f"next one may meet that: {fit_line('; '.join(left))}"
            )

    def _warn_once(self, text: str) -> None:
        if text not in self._warnings:
            self._warnings.add(text)
            logger.warning("%s", text)


class WorkerIsolation:
    """Isolates the trials of a worker process (a `TrialIsolation`), which ends if it stays changed.

    It is used by the worker's main thread, and is made when everything is loaded that every trial
    may rely on.
    """

    def __init__(self) -> None:
        self.spent = False
        # Only the worker's own: what a trial leaves open may be closed whenever it is garbage.
        self._descriptors = open_descriptors()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        values, names, living = watched_values(), module_names(), LivingBefore()
        try:
            yield
        finally:
            try:
                left = [
                    *put_back_watched_values(values),
                    *_put_back_names(names),
                    *self._leftovers(living),
                ]
            except BaseException as error:  # noqa: BLE001  the trial may have broken anything
                left = [f"what it left cannot be looked at ({type(error).__name__}: {error})"]
            if left:
                self.spent = True
                logger.warning(
                    "a trial left its process changed, which is ended, and the next trial gets "
                    "another: %s",
                    fit_line("; ".join(left)),
                )

    def _leftovers(self, living: LivingBefore) -> Iterator[str]:
        left = living.end_others()
        yield from (f"thread {name} lives on" for name in left.threads)
        yield from (f"{name} was closed" for name in closed_descriptors(self._descriptors))
        yield from (f"process was left behind, and killed: {name}" for name in left.processes)


def _put_back_names(before: Names) -> Iterator[str]:
    """Restore the names of modules, and yield a sentence for each name that was changed.

    Call it after the values are put back: torch names a class by the default dtype. The names are
    restored although the worker ends, since its own remaining work uses what the trial may have
    broken.
    """
    changed = changed_attributes(before)
    if changed:
        put_back_attributes(before)
    yield from (f"{name} is another" for name in changed)
