"""A bit that flips in a file, any on a disk without checksums, and an end that is torn off."""

from __future__ import annotations

import random
from collections.abc import Iterator

_SEAL_BYTES = len(b',"crc":"01234567"')


def one_bit_flipped(content: bytes, n_times: int, seed: int = 2026) -> Iterator[bytes]:
    """`content` again and again, each time with another bit of it flipped."""
    for bit in random.Random(seed).sample(range(len(content) * 8), n_times):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def torn_ends(content: bytes, n_times: int, seed: int = 2026) -> Iterator[bytes]:
    """Return `content` without its end, cut at some of its last 4,096 bytes."""
    places = range(max(0, len(content) - 4096), len(content))
    for size in random.Random(seed).sample(places, min(n_times, len(places))):
        yield content[:size]


def unsealed(content: bytes) -> bytes:
    """The lines as they were written before each had its checksum."""
    lines = content.splitlines(keepends=True)
    return b"".join(
        line[: -_SEAL_BYTES - 2] + b"}\n" if b',"crc":"' in line else line for line in lines
    )
