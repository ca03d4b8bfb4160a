"""A mapping that is changed by making another, at a cost that does not grow with its size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST = 64
"""Entries that lie over the others; then both are made one."""
_NONE = object()


class Layers(Mapping[K, V]):
    """Many entries that several have in common, and a few over them. Neither is ever changed."""

    def __init__(self, under: dict[K, V] | None = None, over: dict[K, V] | None = None) -> None:
        self._under: dict[K, V] = {} if under is None else under
        self._over: dict[K, V] = {} if over is None else over

    def with_these(self, entries: Mapping[K, V]) -> Layers[K, V]:
        """Another in which these are added, or take the place of those of their keys."""
        over = {**self._over, **entries}
        if len(over) <= _MOST:
            return Layers(self._under, over)
        return Layers({**self._under, **over})

    def __getitem__(self, key: K) -> V:
        return self._over[key] if key in self._over else self._under[key]

    def get(self, key: K, default: Any = None) -> Any:
        found = self._over.get(key, _NONE)
        return self._under.get(key, default) if found is _NONE else found

    def __iter__(self) -> Iterator[K]:
        yield from self._under
        yield from (key for key in self._over if key not in self._under)

    def __len__(self) -> int:
        return len(self._under) + sum(key not in self._under for key in self._over)
