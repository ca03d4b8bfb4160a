"""Models as a footprint meets them: what arithmetic would tell of their memory, and what they hold.

Four families with the usual formulas of their weights and activations; what a trial really holds is
that times a factor that nobody knows (libraries, fragments), one for a whole family, with noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

MIB = 2**20
SEGMENT_BYTES = 2 * MIB
"""torch takes memory in such pieces."""
LEAST_BYTES = 16 * MIB
"""Smaller models are nothing to admit by."""

Parts: TypeAlias = tuple[float, float]
"""Bytes of weights with gradients and optimizer state, and of activations."""


def mlp(random: Random) -> Parts:
    width, depth = int(8 * 2 ** random.uniform(0, 10)), random.randint(1, 8)
    n_weights = 100 * width + (depth - 1) * width**2
    return _weights(random, n_weights), 4.0 * random.choice([32, 512, 8192]) * width * depth * 7


def transformer(random: Random) -> Parts:
    width, depth = random.choice([64, 128, 256, 512, 1024]), random.randint(1, 12)
    batch, length = random.choice([8, 16, 32, 64]), random.choice([32, 128, 256, 512])
    n_items = batch * depth * (17 * length * width + 20 * length**2)
    return _weights(random, 12 * width**2 * depth + 32_000 * width), 4.0 * n_items


def conv(random: Random) -> Parts:
    width, depth = random.randint(8, 128), random.randint(1, 5)
    n_weights = sum(18 * (width * 2**stage) ** 2 for stage in range(depth))
    pixels = random.choice([32, 64]) ** 2 * random.choice([16, 32, 64, 128])
    return _weights(random, n_weights), 4.0 * pixels * width * 16 * (1 - 0.5**depth)


def rnn(random: Random) -> Parts:
    width, depth = random.randint(32, 1024), random.randint(1, 3)
    n_steps = random.choice([16, 64, 256]) * random.choice([8, 32, 128])
    return _weights(random, 8 * width**2 * depth), 4.0 * n_steps * width * depth * 9


FAMILIES: Mapping[str, Callable[[Random], Parts]] = {
    "MLP": mlp,
    "transformer": transformer,
    "conv": conv,
    "RNN": rnn,
}


@dataclass(frozen=True)
class World:
    """What nobody knows of a family."""

    factor: float
    noise: float
    base_bytes: float = 0.0

    @classmethod
    def drawn(cls, random: Random, base_bytes: float = 0.0) -> World:
        return cls(random.uniform(0.85, 1.35), random.choice([0.02, 0.05, 0.1]), base_bytes)

    def peak_bytes(self, parts: Parts, random: Random) -> int:
        """What a trial of these parts holds."""
        held = self.factor * sum(parts) + self.base_bytes
        held *= math.exp(self.noise * random.gauss(0, 1))
        return math.ceil(held / SEGMENT_BYTES) * SEGMENT_BYTES


def shapes(draw: Callable[[Random], Parts], random: Random) -> Iterator[Parts]:
    """Without end."""
    while True:
        if sum(parts := draw(random)) >= LEAST_BYTES:
            yield parts


def _weights(random: Random, n_weights: int) -> float:
    """With their gradient, and one or two moments of the optimizer."""
    return 4.0 * random.choice([3, 4]) * n_weights
