"""Holds this process to what it may take of its GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def _set_fraction(share: float, device: int) -> None:
    import torch  # whoever has a GPU to be capped has loaded it

    torch.cuda.set_per_process_memory_fraction(share, device)


def _total_bytes(device: int) -> int:
    import torch

    total: int = torch.cuda.get_device_properties(device).total_memory
    return total


class MemoryCaps:
    """torch's own limit per device: whoever meets it gets torch's out-of-memory error."""

    def __init__(
        self,
        set_fraction: Callable[[float, int], None] = _set_fraction,
        total_bytes: Callable[[int], int] = _total_bytes,
    ) -> None:
        self._set_fraction, self._total_bytes = set_fraction, total_bytes
        self._set: dict[int, int] = {}

    def apply(self, caps_bytes: Sequence[int]) -> None:
        """By device, in their order; 0: no cap. What is set already costs nothing."""
        for device, cap in enumerate(caps_bytes):
            if cap != self._set.get(device, 0):
                share = cap / self._total_bytes(device) if cap else 1.0
                self._set_fraction(min(1.0, share), device)
                self._set[device] = cap
