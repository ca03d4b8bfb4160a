"""Loggers: their handlers and levels as they were before the trial."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import TypeAlias

Setup: TypeAlias = "tuple[tuple[logging.Handler, ...], int, bool, bool]"
"""Of a logger: handlers, level, whether it is disabled, and whether it passes on."""
_AS_MADE: Setup = ((), logging.NOTSET, False, True)


@dataclass(frozen=True)
class Loggers:
    """How loggers were set up."""

    setups: Mapping[str, Setup]
    """By name; those that are as they were made are left out."""
    disabled: int
    """Levels up to it are told by nobody."""
    n_modules: int = field(compare=False)
    """How many had been imported; those that came after stand behind them."""


def get() -> Loggers:
    setups = {}
    for name, logger in _all():
        setup = tuple(logger.handlers), logger.level, logger.disabled, logger.propagate
        if setup != _AS_MADE:
            setups[name] = setup
    return Loggers(setups, logging.root.manager.disable, len(sys.modules))


def put_back(before: Loggers) -> None:
    """As they were; but what a library sets up as it is first imported stays, as the library does:
    the next trial does not import it again."""
    imported = {*islice(sys.modules, before.n_modules, None)}
    now = get().setups
    for name, logger in _all():
        was = before.setups.get(name, _AS_MADE)
        if now.get(name, _AS_MADE) != was and not _is_of(imported, name):
            _put_back(logger, was)
    if logging.root.manager.disable != before.disabled:
        logging.disable(before.disabled)


def _is_of(modules: set[str], name: str) -> bool:
    """Whether a logger is one of these, or of what is in one of them."""
    return not modules.isdisjoint(accumulate(name.split("."), "{}.{}".format))


def _put_back(logger: logging.Logger, setup: Setup) -> None:
    handlers, level, disabled, propagate = setup
    logger.handlers[:] = handlers
    logger.disabled, logger.propagate = disabled, propagate
    if logger.level != level:
        logger.setLevel(level)


def _all() -> Iterator[tuple[str, logging.Logger]]:
    yield logging.root.name, logging.root
    for name, logger in list(logging.root.manager.loggerDict.items()):
        if isinstance(logger, logging.Logger):  # else it only holds a name's place
            yield name, logger
