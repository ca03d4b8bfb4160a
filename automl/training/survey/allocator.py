"""A model of torch's caching allocator for CUDA: what it reserves of a device, allocation by
allocation.

One stream, the default settings of torch 2.10 to 2.13 (`c10/cuda/CUDACachingAllocator.cpp`; no
expandable segments, no `max_split_size_mb`). Pure: knows no tensor and no device.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

MIB = 2**20
BLOCK_BYTES = 512
"""Every allocation is a multiple of it."""
SMALL_BYTES = MIB
"""An allocation of at most so much comes from the small pool, whose segments are of 2 MiB."""
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
"""The segment of an allocation that is not small and below `EXACT_BYTES`."""
EXACT_BYTES = 10 * MIB
"""From here on a segment is as large as what was asked, rounded up to `EXACT_STEP_BYTES`."""
EXACT_STEP_BYTES = 2 * MIB


@dataclass(eq=False, slots=True)
class Block:
    """A piece of a segment, allocated or free; its neighbours are those of the segment."""

    size_bytes: int
    segment: int
    offset_bytes: int
    small: bool
    free: bool = False
    previous: Block | None = None
    next: Block | None = None

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.size_bytes, self.segment, self.offset_bytes


@dataclass(slots=True)
class _Pool:
    """The free blocks of one pool, smallest first; among equals the one that was there first."""

    keys: list[tuple[int, int, int]] = field(default_factory=list)
    blocks: dict[tuple[int, int], Block] = field(default_factory=dict)

    def add(self, block: Block) -> None:
        bisect.insort(self.keys, block._key)
        self.blocks[block.segment, block.offset_bytes] = block

    def remove(self, block: Block) -> None:
        del self.keys[bisect.bisect_left(self.keys, block._key)]
        del self.blocks[block.segment, block.offset_bytes]

    def take(self, size_bytes: int) -> Block | None:
        """The smallest free block that is large enough, taken out."""
        index = bisect.bisect_left(self.keys, (size_bytes, -1, -1))
        if index == len(self.keys):
            return None
        _, segment, offset = self.keys.pop(index)
        return self.blocks.pop((segment, offset))


class CachingAllocator:
    """`allocate` and `free` blocks, and read off what torch would have allocated and reserved."""

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self._pools = {True: _Pool(), False: _Pool()}
        self._n_segments = 0

    def allocate(self, n_bytes: int) -> Block:
        """A block of at least `n_bytes` > 0."""
        size = max(BLOCK_BYTES, _round_up(n_bytes, BLOCK_BYTES))
        small = size <= SMALL_BYTES
        block = self._pools[small].take(size) or self._new_segment(size, small)
        self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: Block) -> None:
        """Give a block back to its pool, joined with its free neighbours."""
        assert not block.free, "freed twice"
        self.allocated_bytes -= block.size_bytes
        pool = self._pools[block.small]
        block.free = True
        previous, following = block.previous, block.next
        if previous is not None and previous.free:
            pool.remove(previous)
            block = _join(previous, block)
        if following is not None and following.free:
            pool.remove(following)
            block = _join(block, following)
        pool.add(block)

    def empty_cache(self) -> None:
        """Give whole segments that are free back to the device."""
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                if block.previous is None and block.next is None:
                    pool.remove(block)
                    self.reserved_bytes -= block.size_bytes

    @property
    def cached_bytes(self) -> int:
        """What is reserved and free."""
        return sum(key[0] for pool in self._pools.values() for key in pool.keys)

    def _new_segment(self, size_bytes: int, small: bool) -> Block:
        segment_bytes = _segment_bytes(size_bytes, small)
        self._n_segments += 1
        self.reserved_bytes += segment_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return Block(segment_bytes, self._n_segments, 0, small)

    def _split(self, block: Block, size_bytes: int) -> None:
        """Cut a block to size where what is left over is worth keeping."""
        left_bytes = block.size_bytes - size_bytes
        if left_bytes < BLOCK_BYTES or not (block.small or left_bytes > SMALL_BYTES):
            return
        rest = Block(
            left_bytes, block.segment, block.offset_bytes + size_bytes, block.small, free=True
        )
        rest.previous, rest.next = block, block.next
        if block.next is not None:
            block.next.previous = rest
        block.next, block.size_bytes = rest, size_bytes
        self._pools[block.small].add(rest)


def _segment_bytes(size_bytes: int, small: bool) -> int:
    if small:
        return SMALL_SEGMENT_BYTES
    if size_bytes < EXACT_BYTES:
        return LARGE_SEGMENT_BYTES
    return _round_up(size_bytes, EXACT_STEP_BYTES)


def _join(left: Block, right: Block) -> Block:
    left.size_bytes += right.size_bytes
    left.next = right.next
    if right.next is not None:
        right.next.previous = left
    return left


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step
