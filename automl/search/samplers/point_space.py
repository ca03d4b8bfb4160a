"""A search space as points of the unit cube, for samplers that compute with many points at once.

A point has a column for each searched param: its place from 0 to 1 in a range, on the log scale of
the range if it has one, or the number of a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from automl.search.domains import ChoiceDomain, RangeDomain, is_same_value
from automl.search.samplers.gaussian_process import ColumnDistances
from automl.search.samplers.memory_wall import ExcessBoundary
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Params, ParamValue

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Flags: TypeAlias = NDArray[np.bool_]

MAX_LEVELS = 1000
"""A range of more values counts as continuous."""
BEYOND_PENALTY = 1e6
"""What a trial that is expected not to fit loses; more than any improvement."""


@dataclass(frozen=True)
class ParamAxis:
    """Maps a param to its column."""

    param: SpaceParam
    levels: tuple[ParamValue, ...]
    """The values of a param that has few, in order; empty: the param is continuous."""
    places: Floats
    """The place of each level."""

    @property
    def is_choice(self) -> bool:
        return isinstance(self.param.domain, ChoiceDomain)

    @property
    def absent(self) -> float:
        """The place of a param that a trial lacks: the middle of a range, a choice of its own."""
        return -1.0 if self.is_choice else 0.5

    def place(self, params: Params) -> float:
        """Return the place of a trial's value, which is not in 0 to 1 if its range was wider."""
        name, domain = self.param.name, self.param.domain
        value = params.get(name)
        if isinstance(domain, RangeDomain) and isinstance(value, int | float):
            return domain.share(value)
        if isinstance(domain, ChoiceDomain) and name in params and domain.contains(value):
            return float(domain.values.index(domain.cast(value)))
        return self.absent

    def value(self, place: float) -> ParamValue:
        if not self.levels:
            return self.param.domain.at(place)
        return self.levels[int(abs(self.places - place).argmin())]

    def snap(self, shares: Floats) -> Floats:
        """Return the places nearest to `shares`, 0 to 1 of the range or the list of choices."""
        import numpy as np

        if not self.levels:
            return np.clip(shares, 0.0, 1.0)
        if self.is_choice:
            return np.minimum(np.floor(shares * len(self.levels)), len(self.levels) - 1)
        return self.places[np.searchsorted((self.places[1:] + self.places[:-1]) / 2, shares)]


def make_axis(param: SpaceParam) -> ParamAxis:
    import numpy as np

    domain = param.domain
    if isinstance(domain, ChoiceDomain):
        return ParamAxis(param, domain.values, np.arange(len(domain.values), dtype=float))
    assert isinstance(domain, RangeDomain), "a fixed param is not searched"
    levels = domain.all_values() if domain.n_values <= MAX_LEVELS else ()
    axis = ParamAxis(param, levels, np.array([]))
    return replace(axis, places=np.array([axis.place({param.name: level}) for level in levels]))


class PointSpace:
    """The searched params of a space, as columns of points."""

    def __init__(self, space: SearchSpace) -> None:
        import numpy as np

        self._space = space
        searched = [param for param in space.params if param.is_searched]
        singles = [p for p in searched if is_same_value(p.domain.ends[0], p.domain.ends[-1])]
        self._singles = {param.name: param.domain.ends[0] for param in singles}
        self.axes = tuple(make_axis(param) for param in searched if param not in singles)
        self.common = tuple(axis.param for axis in self.axes if not axis.param.when)
        """The params that every trial has."""
        self.columns = ColumnDistances(np.array([axis.is_choice for axis in self.axes]))
        self._column = {axis.param.name: i for i, axis in enumerate(self.axes)}

    def points(self, trials: Sequence[Params]) -> Floats:
        """Return the points of trials, of shape (n_trials, n_columns)."""
        import numpy as np

        places = [[axis.place(params) for axis in self.axes] for params in trials]
        return np.array(places).reshape(len(trials), len(self.axes))

    def params(self, point: Floats) -> dict[str, ParamValue]:
        """Return a value for each searched param, those included that the trial will not have."""
        places = zip(self.axes, point, strict=True)
        return self._singles | {axis.param.name: axis.value(float(at)) for axis, at in places}

    def draw(self, rng: np.random.Generator, n: int) -> Floats:
        """Return `n` points drawn from the whole space."""
        return self._snap(rng.random((n, len(self.axes))))

    def near(self, rng: np.random.Generator, points: Floats, n: int, width: float) -> Floats:
        """Return `n` points near each; some of their columns differ, by up to about `width`.

        A choice that differs is any other; a param that only the new point has is drawn anew.
        """
        import numpy as np

        origins = np.repeat(points, n, axis=0)
        n_points, n_columns = origins.shape
        choices, absent = self.columns.are_choices, origins == [axis.absent for axis in self.axes]
        moved = rng.random(origins.shape) < 2 / max(n_columns, 2)
        moved &= ~choices | (rng.random(origins.shape) < 0.5)
        steps = width * 10 ** rng.uniform(-1, 0, (n_points, 1)) * rng.normal(size=origins.shape)
        fresh = rng.random(origins.shape)
        other = np.where(choices, fresh, origins + steps)
        same = self._shares(origins)
        return self._snap(np.where(absent, fresh, np.where(moved, other, same)))

    def nearest(self, points: Floats) -> Floats:
        """Return the points of the space that are nearest to points which may lie outside."""
        return self._snap(self._shares(points))

    def _shares(self, points: Floats) -> Floats:
        """Return points with the places in the list of choices instead of their numbers."""
        import numpy as np

        sizes = np.array([len(axis.levels) if axis.is_choice else 1 for axis in self.axes])
        shares: Floats = np.where(self.columns.are_choices, (points + 0.5) / sizes, points)
        return shares

    def penalty(self, wall: ExcessBoundary, points: Floats) -> Floats:
        """Return what points lose that are expected not to fit; more, the larger their excess."""
        import numpy as np

        features = [np.ones(len(points))]
        for param in wall.params:
            axis, places = self.axes[self._column[param.name]], points[:, self._column[param.name]]
            features += [places == at for at in axis.places] if axis.is_choice else [places]
        beyond: Floats = np.stack(features, axis=1) @ wall.slopes - wall.least / 2
        return np.where(beyond > 0, BEYOND_PENALTY * (1 + beyond), 0.0)

    def _snap(self, shares: Floats) -> Floats:
        """Return the points nearest to `shares`, with the params absent whose condition fails."""
        import numpy as np

        columns = [axis.snap(shares[:, i]) for i, axis in enumerate(self.axes)]
        points = np.stack(columns, axis=1)
        present: dict[str, Flags] = {}
        for param in self._space.params:  # each after those that its condition names
            present[param.name] = here = np.ones(len(points), dtype=bool)
            for name, values in param.when.items():
                here &= present[name] & self._is_one_of(points, name, values)
            if param.name in self._column:
                i = self._column[param.name]
                points[~here, i] = self.axes[i].absent
        return points

    def _is_one_of(self, points: Floats, name: str, values: Sequence[ParamValue]) -> Flags:
        """Return which points have one of `values` of a param."""
        import numpy as np

        if name not in self._column:
            only = self._space[name].domain.ends[0]
            return np.full(len(points), any(is_same_value(only, value) for value in values))
        i = self._column[name]
        return np.isin(points[:, i], [self.axes[i].place({name: value}) for value in values])
