"""Counts the optimizer steps of all training in this process, and tells them to listeners.

torch's optimizers have a global hook. The built-in trainers call the functions beneath it, and call
`tell_step` themselves. If neither happens, a report counts as a step. A file of its own, because
the trainers import it, and it must not load torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

OnStep: TypeAlias = "Callable[[torch.Tensor], bool]"
"""Takes the flat weights after a step; returns whether the rest of the pass can be skipped."""
_listeners: list[OnStep] = []
_n_steps = 0


def n_steps_taken() -> int:
    """Return the number of steps in this process; simultaneous ones may be missed."""
    return _n_steps


def count(n: int = 1) -> None:
    """Add `n` steps; a pack takes one in each of its lanes."""
    global _n_steps
    _n_steps += n


def count_report(n_before: int) -> int:
    """Count a trial's report as a step if no step was taken since its last report.

    `n_before` is the number of steps at the last report. Returns the present number.
    """
    if _n_steps == n_before:
        count()
    return _n_steps


@functools.cache
def count_optimizer_steps() -> None:
    """Count the steps of torch's own optimizers from now on."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def count_step(optimizer: Any, args: Any, kwargs: Any) -> None:
        count()

    register_optimizer_step_post_hook(count_step)


def tell_step(weights: torch.Tensor, n: int = 1) -> bool:
    """Count a step of `n` lanes, and return whether the rest of the pass can be skipped."""
    count(n)
    answers = [listener(weights) for listener in _listeners]  # a list: every listener must hear it
    return any(answers)


@contextmanager
def listen_to_steps(on_step: OnStep) -> Iterator[None]:
    """Call `on_step` after each step of the built-in trainers while the block runs."""
    _listeners.append(on_step)
    try:
        yield
    finally:
        _listeners.remove(on_step)
