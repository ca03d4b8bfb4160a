"""Seeds: every random draw of a trial follows from the study's seed and the trial's number.

Each use has a stream of its own, and each epoch starts it anew. So a trial that goes on after an
interruption draws what it would have drawn, with no generator state in its checkpoint, on another
device too.
"""

from __future__ import annotations

import enum

import numpy as np


class RandomStream(enum.IntEnum):
    """What random numbers are drawn for. The numbers are part of every result: never reuse one."""

    WEIGHTS = 0
    SHUFFLE = 1
    DROPOUT = 2
    ROWS = 3
    """What the user's own rows draw as they are loaded."""
    FOLDS = 4


def trial_seed(study_seed: int, number: int) -> int:
    """The seed of a trial: 32 bits, because `numpy.random.seed` takes no more."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1, np.uint32)[0])


def stream_seed(seed: int, stream: RandomStream, epoch: int = 0) -> int:
    """The seed of one use in one epoch, 63 bits, as `torch.Generator.manual_seed` takes them."""
    state = np.random.SeedSequence([seed, stream, epoch]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def fold_seed(seed: int, fold: int) -> int:
    """The seed of one of the models of a trial with folds, 32 bits as the trial's own."""
    return int(
        np.random.SeedSequence([seed, RandomStream.FOLDS, fold]).generate_state(1, np.uint32)[0]
    )
