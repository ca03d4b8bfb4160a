"""A mapping that is changed by making another, at a cost that does not grow with its size.

A file of its own, since it knows nothing of ledgers: these are its only user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST_OVER = 64
"""Most entries of the upper layer; beyond it both layers are merged."""
_NONE = object()


class LayeredMapping(Mapping[K, V]):
    """A mapping of many entries that several mappings share, and a few entries that override them.

    It is never changed: `with_these` makes another at a cost that does not grow with the number of
    entries.
    """

    def __init__(self, under: dict[K, V] | None = None, over: dict[K, V] | None = None) -> None:
        self._under: dict[K, V] = {} if under is None else under
        self._over: dict[K, V] = {} if over is None else over

    def with_these(self, entries: Mapping[K, V]) -> LayeredMapping[K, V]:
        """Return another mapping with these entries added, or in place of those with the same
        keys."""
        over = {**self._over, **entries}
        if len(over) <= _MOST_OVER:
            return LayeredMapping(self._under, over)
        return LayeredMapping({**self._under, **over})

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
