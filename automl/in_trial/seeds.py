"""Derives the seed of every random draw of a trial from the study's seed and the trial's number.

Each use has its own stream, which starts anew with each epoch. A trial that continues after an
interruption therefore draws the same numbers, also on another device, and its checkpoint holds no
generator state. A file of its own, because processes without torch import it. It draws nothing.
"""

from __future__ import annotations

import enum

import numpy as np


class SeedUse(enum.IntEnum):
    """The uses of random numbers. The values are part of every result: never reuse one."""

    WEIGHTS = 0
    SHUFFLE = 1
    DROPOUT = 2
    ROWS = 3
    """Draws of the user's own rows while they are loaded."""
    FOLDS = 4
    EVALUATION = 5
    """Seeds of trainings that score a winner, which no trial of its study had."""


def trial_seed(study_seed: int, number: int) -> int:
    """Return the seed of a trial: 32 bits, because `numpy.random.seed` takes no more."""
    return int(np.random.SeedSequence([study_seed, number]).generate_state(1, np.uint32)[0])


def derive_seed(seed: int, use: SeedUse, epoch: int = 0) -> int:
    """Return the seed of one use in one epoch: 63 bits, for `torch.Generator.manual_seed`."""
    state = np.random.SeedSequence([seed, use, epoch]).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))


def evaluation_seed(study_seed: int, repeat: int) -> int:
    """Return a seed that takes the study's place where a winner is trained again to be scored."""
    state = np.random.SeedSequence([study_seed, SeedUse.EVALUATION, repeat])
    return int(state.generate_state(1, np.uint32)[0])


def fold_seed(seed: int, fold: int) -> int:
    """Return the seed of one fold's model in a trial with folds: 32 bits, like the trial's own."""
    return int(np.random.SeedSequence([seed, SeedUse.FOLDS, fold]).generate_state(1, np.uint32)[0])
