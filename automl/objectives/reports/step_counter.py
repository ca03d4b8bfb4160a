"""Optimizer steps as they are taken, by whatever trains in this process, told to who counts them.

A user's loop steps an optimizer of torch's, which has a global hook for that; our own trainers call
the functions beneath, and tell it themselves. Where neither speaks a report counts as a step: how
fast a trial is can be told from any of them, as long as it is always the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import torch

OnStep: TypeAlias = "Callable[[torch.Tensor], bool]"
"""Takes the flat weights of the step; returns whether the rest of the pass need not be done."""
_listeners: list[OnStep] = []
_taken = 0


def n_steps_taken() -> int:
    """Steps that this process has taken in its life; those of trials in other threads at the same
    time may be missed."""
    return _taken


def count(n: int = 1) -> None:
    """So many more were taken; by a pack one in each lane."""
    global _taken
    _taken += n


def count_report(n_before: int) -> int:
    """A trial has reported, which counts where no step was taken since there were so many, at its
    last report. Returns how many there are now."""
    if _taken == n_before:
        count()
    return _taken


@functools.cache
def count_optimizer_steps() -> None:
    """Count the steps of torch's own optimizers, from now on."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
        count()

    register_optimizer_step_post_hook(stepped)


def tell_step(weights: torch.Tensor, n: int = 1) -> bool:
    """A step was taken, by a pack one in each of its `n` lanes. Whether the rest of the pass over
    the data need not be done."""
    count(n)
    answers = [listener(weights) for listener in _listeners]  # each is told
    return any(answers)


@contextmanager
def listen_to_steps(on_step: OnStep) -> Iterator[None]:
    """`on_step` is called after each step of our own trainers meanwhile."""
    _listeners.append(on_step)
    try:
        yield
    finally:
        _listeners.remove(on_step)
