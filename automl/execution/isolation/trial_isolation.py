"""Trials in threads of the sweep's own process, which cannot be ended for what they leave there.

A process that carries out one trial after another, and ends where one leaves it changed.

What cannot be put back with certainty, and is compared: names of modules, and descriptors.

Attributes are compared by identity: a function that was replaced, in whatever way, is another.
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
from automl.execution.isolation.watched_values import WATCHED, Values, put_back, watched_values
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
"""What each module's attributes are, by its name."""


def module_names() -> Names:
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
class _OpenDescriptor:
    """What a descriptor leads to."""

    device: int
    inode: int
    name: str
    """For people."""


Descriptors: TypeAlias = Mapping[int, _OpenDescriptor]


def open_descriptors() -> Descriptors:
    """Those that are open now, but for the standard streams, which each trial has of its own; none
    where the system does not list them (it does on Linux)."""
    found = {}
    with suppress(FileNotFoundError):
        for fd in map(int, os.listdir("/proc/self/fd")):
            with suppress(OSError):  # the one that the folder was listed by is closed again
                status = os.fstat(fd)
                name = os.readlink(f"/proc/self/fd/{fd}")
                found[fd] = _OpenDescriptor(status.st_dev, status.st_ino, name)
    return {fd: opened for fd, opened in found.items() if fd > 2}


def closed_descriptors(before: Descriptors) -> Sequence[str]:
    """What those led to that lead there no more."""
    return [_said(opened) for fd, opened in before.items() if not _is_open(fd, opened)]


def _is_open(fd: int, opened: _OpenDescriptor) -> bool:
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (opened.device, opened.inode)


def _said(opened: _OpenDescriptor) -> str:
    """`socket:[4711]` is another at each time."""
    kind, is_numbered, _ = opened.name.partition(":[")
    return f"a {kind}" if is_numbered else str(Path(opened.name))


logger = logging.getLogger(__name__)

_OWN = tuple(watched for watched in WATCHED if watched.own_thread)
_SHARED = tuple(watched for watched in WATCHED if not watched.own_thread)


class ThreadIsolation:
    """See `automl.trial.TrialIsolation`. What a thread has of its own is put back after each
    trial; what the
    process has, when no trial runs, since the others that run rely on it. Threads, processes and
    descriptors are not looked at: they may be the sweep's, or the user's."""

    spent = False

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards all below
        self._n_running = 0
        self._before: tuple[Values, Names] = {}, {}
        """As it was when none ran."""
        self._said: set[str] = set()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        own = watched_values(_OWN)
        with self._lock:
            self._n_running += 1
            if self._n_running == 1:
                self._before = watched_values(_SHARED), module_names()
            else:
                self._say(
                    "execution=inline: trials run side by side in this process; what one changes "
                    "there (environment, working directory, default dtype, …) is put back when "
                    "none runs. execution=workers keeps them apart."
                )
        try:
            yield
        finally:
            left = put_back(own)
            with self._lock:
                self._n_running -= 1
                if self._n_running == 0:
                    left = [*left, *self._put_back()]
                self._say_left(left)

    def _put_back(self) -> Iterator[str]:
        before, were = self._before
        yield from put_back(before)
        changed = changed_names(were)
        if changed:
            put_back_names(were)
        yield from (f"{name} was another" for name in changed)

    def _say_left(self, left: Sequence[str]) -> None:
        if left:
            self._say(
                "a trial left this process changed, which execution=inline cannot end, and the "
                f"next one may meet that: {fit_line('; '.join(left))}"
            )

    def _say(self, text: str) -> None:
        """Once."""
        if text not in self._said:
            self._said.add(text)
            logger.warning("%s", text)


class WorkerIsolation:
    """See `automl.trial.TrialIsolation`: of a worker, which is fit for another trial or ends. For
    its main
    thread; made when all is there that every trial may rely on."""

    def __init__(self) -> None:
        self.spent = False
        # Those of its own: what a trial leaves open may be closed whenever it is garbage.
        self._descriptors = open_descriptors()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        before, were, living = watched_values(), module_names(), LivingBefore()
        try:
            yield
        finally:
            try:
                left = [*put_back(before), *_put_back_names(were), *self._compared(living)]
            except BaseException as error:  # noqa: BLE001  the trial may have broken anything
                left = [f"what it left cannot be looked at ({type(error).__name__}: {error})"]
            if left:
                self.spent = True
                logger.warning(
                    "a trial left its process changed, which is ended, and the next trial gets "
                    "another: %s",
                    fit_line("; ".join(left)),
                )

    def _compared(self, living: LivingBefore) -> Iterator[str]:
        left = living.end_others()
        yield from (f"thread {name} lives on" for name in left.threads)
        yield from (f"{name} was closed" for name in closed_descriptors(self._descriptors))
        yield from (f"process was left behind, and killed: {name}" for name in left.processes)


def _put_back_names(were: Names) -> Iterator[str]:
    """After the values: torch names a class by the default dtype. Our own work goes on with what
    the trial may have broken."""
    changed = changed_names(were)
    if changed:
        put_back_names(were)
    yield from (f"{name} is another" for name in changed)
