"""In which order what did well on many tables is tried on this one. Pure.

A family's turn comes by the order in which `model=auto` names them. Where a trial of some family
takes minutes, a sweep with little time would end with what it has begun and not with what it could
have had: there the quick families of each turn go first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from automl.running.lengthy import LONG_SECONDS
from automl.trial import Params


def quick_first(
    points: Sequence[Params], choice: str, seconds: Mapping[str, float | None]
) -> Sequence[Params]:
    """`points`, each turn's by the `seconds` of a trial of its family where some takes minutes
    (None: not known, and little); `choice` is the param that names it."""
    if all((need or 0.0) <= LONG_SECONDS for need in seconds.values()):
        return points
    n_before = Counter[str]()
    order = []
    for params in points:
        family = str(params.get(choice))
        order.append((n_before[family], seconds.get(family) or 0.0))
        n_before[family] += 1
    return [points[place] for place in sorted(range(len(points)), key=order.__getitem__)]
