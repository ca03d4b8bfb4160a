"""A model of torch's caching allocator for CUDA, and the fake storages that are counted in it.

The model says what torch reserves of a device, allocation by allocation. It has one stream and the
default settings of torch 2.10 to 2.13 (`c10/cuda/CUDACachingAllocator.cpp`; no expandable segments,
no `max_split_size_mb`). It is pure: it knows no tensor and no device. `DeviceStorages` replays the
births and deaths of storages through it.
"""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

MIB = 2**20
BLOCK_BYTES = 512
"""The unit of allocations, to which each is rounded up."""
SMALL_BYTES = MIB
"""The largest allocation from the small pool, whose segments are of 2 MiB."""
SMALL_SEGMENT_BYTES = 2 * MIB
LARGE_SEGMENT_BYTES = 20 * MIB
"""The segment of an allocation that is not small and below `EXACT_BYTES`."""
EXACT_BYTES = 10 * MIB
"""The least allocation with a segment of its own size, rounded up to `EXACT_STEP_BYTES`."""
EXACT_STEP_BYTES = 2 * MIB


@dataclass(eq=False, slots=True)
class MemoryBlock:
    """A piece of a segment, allocated or free; its neighbours are in the same segment."""

    size_bytes: int
    segment: int
    offset_bytes: int
    small: bool
    free: bool = False
    previous: MemoryBlock | None = None
    next: MemoryBlock | None = None

    @property
    def _key(self) -> tuple[int, int, int]:
        return self.size_bytes, self.segment, self.offset_bytes


@dataclass(slots=True)
class _BlockPool:
    """The free blocks of one pool, smallest first; equal sizes by segment and offset."""

    keys: list[tuple[int, int, int]] = field(default_factory=list)
    blocks: dict[tuple[int, int], MemoryBlock] = field(default_factory=dict)

    def add(self, block: MemoryBlock) -> None:
        bisect.insort(self.keys, block._key)
        self.blocks[block.segment, block.offset_bytes] = block

    def remove(self, block: MemoryBlock) -> None:
        del self.keys[bisect.bisect_left(self.keys, block._key)]
        del self.blocks[block.segment, block.offset_bytes]

    def take(self, size_bytes: int) -> MemoryBlock | None:
        """Remove and return the smallest free block that is large enough, if there is one."""
        index = bisect.bisect_left(self.keys, (size_bytes, -1, -1))
        if index == len(self.keys):
            return None
        _, segment, offset = self.keys.pop(index)
        return self.blocks.pop((segment, offset))


class CachingAllocator:
    """Counts the memory that torch allocates and reserves for calls of `allocate` and `free`."""

    def __init__(self) -> None:
        self.allocated_bytes = 0
        self.reserved_bytes = 0
        self.peak_allocated_bytes = 0
        self.peak_reserved_bytes = 0
        self._pools = {True: _BlockPool(), False: _BlockPool()}
        self._n_segments = 0

    def allocate(self, n_bytes: int) -> MemoryBlock:
        """Return a block of at least `n_bytes` > 0."""
        size = max(BLOCK_BYTES, _round_up(n_bytes, BLOCK_BYTES))
        small = size <= SMALL_BYTES
        block = self._pools[small].take(size) or self._new_segment(size, small)
        self._split(block, size)
        block.free = False
        self.allocated_bytes += block.size_bytes
        self.peak_allocated_bytes = max(self.peak_allocated_bytes, self.allocated_bytes)
        return block

    def free(self, block: MemoryBlock) -> None:
        """Return a block to its pool, joined with its free neighbours."""
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
        """Return whole segments that are free to the device."""
        for pool in self._pools.values():
            for block in list(pool.blocks.values()):
                if block.previous is None and block.next is None:
                    pool.remove(block)
                    self.reserved_bytes -= block.size_bytes

    @property
    def cached_bytes(self) -> int:
        """The bytes that are reserved and free."""
        return sum(key[0] for pool in self._pools.values() for key in pool.keys)

    def _new_segment(self, size_bytes: int, small: bool) -> MemoryBlock:
        segment_bytes = _segment_bytes(size_bytes, small)
        self._n_segments += 1
        self.reserved_bytes += segment_bytes
        self.peak_reserved_bytes = max(self.peak_reserved_bytes, self.reserved_bytes)
        return MemoryBlock(segment_bytes, self._n_segments, 0, small)

    def _split(self, block: MemoryBlock, size_bytes: int) -> None:
        """Cut a block to size if the rest is worth keeping."""
        left_bytes = block.size_bytes - size_bytes
        if left_bytes < BLOCK_BYTES or not (block.small or left_bytes > SMALL_BYTES):
            return
        rest = MemoryBlock(
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


def _join(left: MemoryBlock, right: MemoryBlock) -> MemoryBlock:
    left.size_bytes += right.size_bytes
    left.next = right.next
    if right.next is not None:
        right.next.previous = left
    return left


def _round_up(n: int, step: int) -> int:
    return -(-n // step) * step


class DeviceStorages:
    """The storages of device tensors; each is freed in the model when its last tensor is gone."""

    def __init__(self) -> None:
        self.memory = CachingAllocator()
        self._live: dict[int, tuple[weakref.ref[Any], MemoryBlock]] = {}
        """The counted storages by address. A weak reference has to be kept to be called."""

    def see(self, tensor: torch.Tensor) -> None:
        """Count the storage of a tensor, if it is not counted yet."""
        if tensor.layout is not torch.strided:
            return
        storage = tensor.untyped_storage()
        key, n_bytes = storage._cdata, storage.nbytes()
        if key in self._live or not n_bytes:
            return
        block = self.memory.allocate(n_bytes)

        def died(_: object) -> None:
            self._live.pop(key, None)
            self.memory.free(block)

        self._live[key] = weakref.ref(storage, died), block

    def knows(self, tensor: torch.Tensor) -> bool:
        """Return whether the storage of a tensor is counted."""
        return self.key(tensor) in self._live

    @staticmethod
    def key(tensor: torch.Tensor) -> int:
        """Return a number that identifies the storage of a tensor while it lives."""
        return int(tensor.untyped_storage()._cdata)


def storage_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return the bytes of the tensors' storages, each counted once."""
    storages = {DeviceStorages.key(t): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())
