"""Optimizer steps as they are taken, by whatever trains in this process, told to who counts them.

A user's loop steps an optimizer of torch's, which has a global hook for that; our own trainers call
the functions beneath, and tell it themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

OnStep: TypeAlias = Callable[[torch.Tensor], bool]
"""Takes the flat weights of the step; returns whether the rest of the pass need not be done."""
_listeners: list[OnStep] = []


def tell(weights: torch.Tensor) -> bool:
    """A step was taken. Whether the rest of the pass over the data need not be done."""
    answers = [listener(weights) for listener in _listeners]  # each is told
    return any(answers)


@contextmanager
def told(on_step: OnStep) -> Iterator[None]:
    """`on_step` is called after each step of our own trainers meanwhile."""
    _listeners.append(on_step)
    try:
        yield
    finally:
        _listeners.remove(on_step)
