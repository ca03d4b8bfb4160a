"""The allocator model: its rules one by one, and its books over random sequences."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automl.measure.survey.allocator import MIB, CachingAllocator, MemoryBlock


@pytest.mark.parametrize(
    ("asked", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # 1 MiB that is left is not split off
        (33 * MIB + 1, 34 * MIB, 34 * MIB),
    ],
)
def test_sizes_are_rounded_and_segments_are_of_two_twenty_or_exact(
    asked: int, allocated: int, reserved: int
) -> None:
    memory = CachingAllocator()
    memory.allocate(asked)
    assert (memory.allocated_bytes, memory.reserved_bytes) == (allocated, reserved)


def test_a_segment_is_split_and_joined_again() -> None:
    memory = CachingAllocator()
    three = [memory.allocate(5 * MIB) for _ in range(3)]
    assert memory.reserved_bytes == 20 * MIB
    for block in (three[0], three[2], three[1]):  # the middle one last: joins both sides
        memory.free(block)
    memory.allocate(19 * MIB)
    assert memory.reserved_bytes == 20 * MIB


def test_small_ones_do_not_use_what_large_ones_left() -> None:
    memory = CachingAllocator()
    memory.free(memory.allocate(5 * MIB))
    memory.allocate(1000)
    assert memory.reserved_bytes == 22 * MIB


def test_the_best_fit_is_taken() -> None:
    memory = CachingAllocator()
    large, small = memory.allocate(40 * MIB), memory.allocate(30 * MIB)
    memory.free(large)
    memory.free(small)
    assert memory.allocate(30 * MIB).size_bytes == 30 * MIB
    assert memory.allocate(40 * MIB).size_bytes == 40 * MIB
    assert memory.reserved_bytes == 70 * MIB


def test_emptying_the_cache_gives_back_whole_segments_only() -> None:
    memory = CachingAllocator()
    kept = memory.allocate(2 * MIB)
    memory.free(memory.allocate(50 * MIB))
    memory.empty_cache()
    assert memory.reserved_bytes == 20 * MIB
    assert memory.peak_reserved_bytes == 70 * MIB
    memory.free(kept)
    memory.empty_cache()
    assert memory.reserved_bytes == 0


@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 200))
def test_books_are_straight_over_random_sequences(dice: random.Random, n_moves: int) -> None:
    memory, live, peak = CachingAllocator(), list[MemoryBlock](), 0
    for _ in range(n_moves):
        if live and dice.random() < 0.45:
            memory.free(live.pop(dice.randrange(len(live))))
        elif dice.random() < 0.02:
            memory.empty_cache()
        else:
            live.append(memory.allocate(int(2 ** dice.uniform(0, 26))))
        peak = max(peak, memory.allocated_bytes)
        check(memory, live)
    assert memory.peak_allocated_bytes == peak
    for block in live:
        memory.free(block)
    assert memory.allocated_bytes == 0
    memory.empty_cache()
    assert memory.reserved_bytes == 0, "all segments became whole again"


def check(memory: CachingAllocator, live: list[MemoryBlock]) -> None:
    """No two blocks overlap, and what is allocated and cached is what is reserved."""
    spans = sorted((b.segment, b.offset_bytes, b.size_bytes) for b in live)
    for (segment, offset, size), (next_segment, next_offset, _) in pairwise(spans):
        assert segment != next_segment or offset + size <= next_offset
    assert memory.allocated_bytes == sum(size for _, _, size in spans)
    assert memory.allocated_bytes + memory.cached_bytes == memory.reserved_bytes
    assert memory.reserved_bytes <= memory.peak_reserved_bytes
