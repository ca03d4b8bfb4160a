"""The metrics that a study optimises, and how trials compare by several of them. Pure.

With one metric and no limit a trial is worth one number, and nothing here is used but names. With
several, one trial is better than another if no metric is worse and one is better (it dominates it);
trials that none dominates are the front. A trial beyond a limit is worse than all within.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from automl.trial.trial_spec import Direction

DEFAULT_METRIC = "val_loss"


def standard_error(values: Sequence[float]) -> float | None:
    """Return the standard error of the mean of `values`; None for fewer than two finite ones."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    return statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class StudyMetric:
    """A metric that a study optimises, and its direction."""

    name: str = DEFAULT_METRIC
    direction: Direction = Direction.minimize

    def key(self, value: float) -> float:
        """Return the value as a number of which a lower one is better; NaN is the worst."""
        if math.isnan(value):
            return math.inf
        return value if self.direction is Direction.minimize else -value


@dataclass(frozen=True)
class MetricLimit:
    """A constraint: the largest value of a metric that a trial may have."""

    name: str
    largest: float

    def excess(self, value: float) -> float:
        """Return by which share of the limit a value exceeds it; 0: it is within."""
        return max(0.0, value / self.largest - 1.0) if math.isfinite(value) else math.inf


class MetricPoint(NamedTuple):
    """What a trial is worth by several metrics; of each number a lower one is better."""

    keys: tuple[float, ...]
    """A key for each metric; the leading metric's comes first."""
    excess: float = 0.0
    """The sum of the shares by which the trial exceeds limits; 0: it is within all."""

    def dominates(self, other: MetricPoint) -> bool:
        """Return whether this point is strictly better; limits come before metrics."""
        if self.excess != other.excess:
            return self.excess < other.excess
        pairs = list(zip(self.keys, other.keys, strict=True))
        return self.keys != other.keys and all(own <= its for own, its in pairs)


@dataclass(frozen=True)
class StudyMetrics:
    """All metrics of a study, and the limits that its trials shall keep to.

    The first metric is the leading one: by it the report of a trial that counts is chosen.
    """

    metrics: tuple[StudyMetric, ...] = (StudyMetric(),)
    limits: tuple[MetricLimit, ...] = ()

    @classmethod
    def single(cls, direction: Direction, name: str = DEFAULT_METRIC) -> StudyMetrics:
        """Return the metrics of a study with one metric and no limit."""
        return cls((StudyMetric(name, direction),))

    @property
    def leading(self) -> StudyMetric:
        return self.metrics[0]

    @property
    def are_several(self) -> bool:
        """Whether trials compare by points; False: by the value of the one metric alone."""
        return len(self.metrics) > 1 or bool(self.limits)

    @property
    def more_names(self) -> tuple[str, ...]:
        """The names of all metrics and limited metrics but the leading one."""
        names = [metric.name for metric in self.metrics] + [limit.name for limit in self.limits]
        return tuple(name for name in dict.fromkeys(names) if name != self.leading.name)

    def point(self, values: Mapping[str, float]) -> MetricPoint | None:
        """Return the point of a trial with these values by name; None: one is missing."""
        if not {self.leading.name, *self.more_names} <= values.keys():
            return None
        keys = tuple(metric.key(values[metric.name]) for metric in self.metrics)
        return MetricPoint(keys, sum(limit.excess(values[limit.name]) for limit in self.limits))


def find_front(points: Sequence[MetricPoint]) -> list[int]:
    """Return the positions of the points that no other dominates, in the order of their keys."""
    front: list[int] = []
    for place in sorted(range(len(points)), key=lambda place: (points[place][::-1], place)):
        # In this order only an earlier point can dominate a later one.
        if not any(points[better].dominates(points[place]) for better in front):
            front.append(place)
    return front


def find_knee(points: Sequence[MetricPoint]) -> int:
    """Return the position of the point nearest to the ideal one, which has the best key of each
    metric, where each metric ranges from 0 to 1 over the points."""
    columns = list(zip(*(point.keys for point in points), strict=True))
    lows = [min(column) for column in columns]
    widths = [max(column) - low or 1.0 for column, low in zip(columns, lows, strict=True)]

    def distance(place: int) -> float:
        keys = points[place].keys
        return math.hypot(
            *((k - low) / width for k, low, width in zip(keys, lows, widths, strict=True))
        )

    return min(range(len(points)), key=lambda place: (distance(place), place))


def hypervolume(keys: Sequence[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    """Return the volume that the keys dominate up to a reference point that is worse than all.

    After While et al., 2012 (https://doi.org/10.1109/TEVC.2010.2077298): the sum of what each point
    adds to those after it.
    """
    different = dict.fromkeys(keys)  # each equal point would double the work
    inside = [
        MetricPoint(key)
        for key in different
        if all(k < r for k, r in zip(key, reference, strict=True))
    ]
    ordered = [inside[place].keys for place in find_front(inside)]
    return sum(own_volume(key, ordered[n:], reference) for n, key in enumerate(ordered, start=1))


def own_volume(
    key: tuple[float, ...], others: Sequence[tuple[float, ...]], reference: tuple[float, ...]
) -> float:
    """Return the volume that a point dominates and none of the others does."""
    box = math.prod(end - at for at, end in zip(key, reference, strict=True))
    clipped = [tuple(map(max, key, other)) for other in others]
    return box - (hypervolume(clipped, reference) if clipped else 0.0)


def count_better(points: Sequence[MetricPoint], own: MetricPoint) -> int:
    """Return the number of points that come before `own`, which is one of them.

    Points within the limits come first, then fronts one after another (the front, the front of the
    others, and so on), and within a front those that add most to its hypervolume. Equal points
    share a place.
    """
    left, n_before = list(points), 0
    while True:
        places = set(find_front(left))
        front = [left[place] for place in places]
        if own in front:
            shares = _contributions([point.keys for point in front])
            return n_before + sum(share > shares[front.index(own)] for share in shares)
        n_before += len(front)
        left = [point for place, point in enumerate(left) if place not in places]


def _contributions(keys: Sequence[tuple[float, ...]]) -> list[float]:
    """Return what each point of a front adds to its hypervolume, each metric scaled to 0 to 1."""
    columns = [
        [k for k in column if math.isfinite(k)] or [0.0] for column in zip(*keys, strict=True)
    ]
    ranges = [(min(column), max(column) - min(column) or 1.0) for column in columns]

    def scaled(key: tuple[float, ...]) -> tuple[float, ...]:
        pairs = zip(key, ranges, strict=True)
        return tuple(min(max((k - low) / width, 0.0), 1.0) for k, (low, width) in pairs)

    points = [scaled(key) for key in keys]
    beyond = (1.1,) * len(columns)  # beyond 1, so that the best point of each metric adds something
    return [round(own_volume(p, [o for o in points if o != p], beyond), 12) for p in points]
