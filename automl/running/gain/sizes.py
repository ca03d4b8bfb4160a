"""The small, the middle and the large trial of a space. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from automl.search.space import Param, Space
from automl.trial import Params, ParamValue

_N_DRAWS = 201
Work = Callable[[Params], "int | None"]
"""What a trial wants of its device, by the family's arithmetic; None: it has none."""


@dataclass(frozen=True)
class Size:
    """A trial that stands for those of its size."""

    name: str
    params: Params


def sizes(space: Space, work: Work) -> tuple[Size, ...]:
    """Those that differ, small to large; a space of one size gives one.

    By arithmetic: a trial in the space that wants least, the median of evenly drawn ones, and one
    that wants most. Where there is none, all params at their first ends, halfway and at their last.
    """
    middle = space.fill(lambda param: param.domain.at(0.5))
    if work(middle) is None:
        found = [("first", 0.0), ("halfway", 0.5), ("last", 1.0)]
        return _distinct([Size(name, _at(space, share)) for name, share in found])

    def wants(params: Params) -> int:
        return work(params) or 0

    least = space.fill(lambda param: _extreme(param, middle, wants, sign=1))
    most = space.fill(lambda param: _extreme(param, middle, wants, sign=-1))
    drawn = sorted(draws(space), key=wants)
    every = [Size("small", least), Size("middle", drawn[len(drawn) // 2]), Size("large", most)]
    return _distinct(every) if wants(least) < wants(most) else (Size("all alike", middle),)


def _extreme(
    param: Param, middle: Params, wants: Callable[[Params], int], *, sign: int
) -> ParamValue:
    """The end that wants least (`sign` -1: most), all else halfway; halfway where none does."""
    candidates = [param.domain.at(0.5), *param.domain.ends]
    return min(candidates, key=lambda value: sign * wants({**middle, param.name: value}))


def draws(space: Space) -> list[Params]:
    """Trials of it, evenly drawn; the same every time."""
    draw = random.Random(0)
    return [space.fill(lambda param: param.domain.at(draw.random())) for _ in range(_N_DRAWS)]


def _at(space: Space, share: float) -> Params:
    return space.fill(lambda param: param.domain.at(share))


def _distinct(found: list[Size]) -> tuple[Size, ...]:
    kept: list[Size] = []
    for size in found:
        if all(size.params != other.params for other in kept):
            kept.append(size)
    return tuple(kept)
