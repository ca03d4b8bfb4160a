"""Trials of earlier studies: points that a new study tries first, and evidence for its sampler.

They are read once, when the study begins, and stored with it, since the earlier studies may change
or go. A sampler sees them before the study's own trials (TPE gives old trials less weight). They
are never trials of the study.

Values of two studies compare where both measured the same, by their identities. Elsewhere an
earlier trial counts by its rank: it gets the value that has this rank among the study's own trials.
Ranks mislead where the optimum has moved, so that they are left out for some trials, and for all
later ones (experiments/024-steering).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from automl.record.studies import read_study
from automl.search.domains import ChoiceDomain, Domain, FixedDomain, RangeDomain
from automl.search.samplers.by_optuna import complete_params
from automl.search.search_space import SearchSpace, SpaceParam
from automl.trial import Direction, Params, ParamValue

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial

EARLIER_ATTRIBUTE = "automl:earlier"
"""The study's user attribute that holds the earlier trials."""
N_POINTS = 5
"""The number of best points of each earlier study that are tried first."""
MIN_DISTANCE = 0.1
"""Points that are tried first differ by more than this share of a param's range."""
N_BY_RANK = 30
"""The number of first trials of which all but every third are proposed with the earlier trials that
count by rank."""
LOG_RATIO = 30
"""A positive param whose values differ by more than this factor is taken for one on a log scale."""
MAX_TRIALS = 50
"""The largest number of earlier trials that a sampler sees."""


Ranking: TypeAlias = Sequence[tuple[Params, float | None]]
"""The trials of a study by params and value, the best first; None: values do not compare."""


@dataclass(frozen=True)
class EarlierTrial:
    """A trial of an earlier study, with params that the new study's space has."""

    params: Params
    rank: float
    """Its rank among the trials of its study: 0 is the best, 1 the worst."""
    value: float | None
    """Its value; None: it does not compare with those of the new study."""


@dataclass(frozen=True)
class EarlierTrials:
    """All that a study takes from earlier ones."""

    points: Sequence[Params] = ()
    """Params that are tried first, some or all of a trial's."""
    trials: Sequence[EarlierTrial] = ()
    """The trials as evidence, the best last."""

    def as_stored(self) -> dict[str, Any]:
        """Return plain values, which `from_stored` reads back."""
        return {"points": list(self.points), "trials": [asdict(trial) for trial in self.trials]}

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> EarlierTrials:
        trials = [EarlierTrial(**trial) for trial in stored["trials"]]
        return cls(stored["points"], trials)

    def before(
        self,
        own: Sequence[FrozenTrial],
        number: int,
        direction: Direction,
        space: SearchSpace,
    ) -> list[FrozenTrial]:
        """Return the earlier trials that a sampler sees, before the study's `own` ones, when it
        proposes trial `number`.

        Their negative numbers tell them from the study's own.
        """
        if not self.trials:
            return []
        import numpy as np
        from optuna.trial import create_trial

        from automl.search.optuna_trials import optuna_distributions

        by_rank = number < N_BY_RANK and number % 3 != 2
        shown = [trial for trial in self.trials if by_rank or trial.value is not None]
        values = [trial.value for trial in own if trial.state.name == "COMPLETE"]
        sign = 1.0 if direction is Direction.minimize else -1.0
        scale = sorted(sign * v for v in values if v is not None and math.isfinite(v))
        scale = scale or [0.0, 1.0]
        distributions = optuna_distributions(space) if shown else {}
        found = []
        for place, earlier in enumerate(shown):
            params = fit_into_space(space, earlier.params)
            if params is None:  # the space was edited
                continue
            known = {name: d for name, d in distributions.items() if name in params}
            ranked = sign * float(np.interp(earlier.rank, np.linspace(0, 1, len(scale)), scale))
            trial = create_trial(
                value=ranked if earlier.value is None else earlier.value,
                params={name: params[name] for name in known},
                distributions=known,
            )
            trial.number = trial._trial_id = place - len(shown)
            found.append(trial)
        return found


def take_earlier(
    storage: BaseStorage, study_id: int, read: Callable[[], EarlierTrials]
) -> EarlierTrials:
    """Return what a study takes from earlier ones: `read` once, when it begins, and stored."""
    stored = storage.get_study_user_attrs(study_id).get(EARLIER_ATTRIBUTE)
    if stored is not None:
        return EarlierTrials.from_stored(stored)
    earlier = read()
    if earlier.trials or earlier.points:
        storage.set_study_user_attr(study_id, EARLIER_ATTRIBUTE, earlier.as_stored())
    return earlier


def read_earlier_trials(
    studies: Mapping[Path, Mapping[str, Any]],
    space: SearchSpace,
    identity: Mapping[str, Any],
    seed: int,
    others: Sequence[Ranking] = (),
    *,
    asks_for_params: bool = False,
) -> EarlierTrials:
    """Return what a study of `identity` takes from `studies`, their identities by their folders,
    and from `others`.

    An identity that is not known is empty. `asks_for_params`: the space is what the objective will
    ask for. Raises ConfigError for a folder without a study.
    """
    rankings: list[Ranking] = []
    for path, earlier_identity in studies.items():
        compares = _compares(earlier_identity, identity)
        ranking = read_study(path).ranking()
        rankings.append([(trial.params, trial.value if compares else None) for trial in ranking])
    rankings += others
    return collect_earlier(rankings, space, seed, asks_for_params=asks_for_params)


def collect_earlier(
    rankings: Sequence[Ranking],
    space: SearchSpace,
    seed: int,
    *,
    asks_for_params: bool = False,
) -> EarlierTrials:
    """Return what a study takes from the trials of earlier ones, each from its best trial on.

    A trial is given by its params and its value; None: values do not compare. What a trial lacks is
    drawn with `seed`, unless the objective `asks_for_params`: then the params that `space` lacks
    are taken, too.
    """
    if asks_for_params:
        space = _spanned_space(space, [params for ranking in rankings for params, _ in ranking])
    points: list[Params] = []
    found: list[EarlierTrial] = []
    for ranking in rankings:
        points += _choose_points(space, [params for params, _ in ranking], points)
        for place, (params, value) in enumerate(ranking):
            known = fit_into_space(space, params)
            if known is not None:
                whole = known if asks_for_params else complete_params(space, seed, place, known)
                found.append(EarlierTrial(whole, (place + 0.5) / len(ranking), value))
    found.sort(key=lambda trial: trial.rank)
    n = min(len(found), MAX_TRIALS)  # evenly over the ranks
    chosen = [found[i * len(found) // n] for i in range(n)]
    return EarlierTrials(points, chosen[::-1])


def _choose_points(
    space: SearchSpace, ranking: Sequence[Params], known: Sequence[Params]
) -> list[Params]:
    """Return the best points, clipped into the space, that are not near to a better one, and the
    best point with each choice that they lack."""
    clipped = (fit_into_space(space, params, clip=True) for params in ranking)
    points = [point for point in clipped if point is not None]
    found: list[Params] = []
    for point in points[: max(N_POINTS, len(points) // 2)]:
        others = (*known, *found)
        if len(found) < N_POINTS and all(
            _distance(space, point, other) > MIN_DISTANCE for other in others
        ):
            found.append(point)
    for name in (param.name for param in space.params if isinstance(param.domain, ChoiceDomain)):
        for point in points:
            if name in point and point[name] not in [other.get(name) for other in (*known, *found)]:
                found.append(point)
    return found


def _spanned_space(written: SearchSpace, trials: Sequence[Params]) -> SearchSpace:
    """Return the written space with all other params of the trials, from the lowest to the highest
    value of each, or with its values as choices."""
    values: dict[str, list[ParamValue]] = {}
    for params in trials:
        for name in params.keys() - {*written.names}:
            values.setdefault(name, []).append(params[name])
    found = (SpaceParam(name, _spanned_domain(values[name])) for name in sorted(values))
    return SearchSpace((*written.params, *found))


def _spanned_domain(values: Sequence[ParamValue]) -> Domain:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < len(values):
        return ChoiceDomain(tuple(dict.fromkeys(values)))
    if not all(isinstance(number, int) for number in numbers):
        numbers = [float(number) for number in numbers]
    low, high = min(numbers), max(numbers)
    return RangeDomain(low, high, log=low > 0 and high > LOG_RATIO * low)


def _distance(space: SearchSpace, one: Params, other: Params) -> float:
    """Return the largest difference of a param, as a share of its range; choices differ by 1."""
    differences = [float(one.keys() != other.keys())]
    for name in one.keys() & other.keys():
        domain, a, b = space[name].domain, one[name], other[name]
        if isinstance(domain, RangeDomain):
            assert isinstance(a, int | float)
            assert isinstance(b, int | float)
            differences.append(abs(domain.share(a) - domain.share(b)))
        else:
            differences.append(float(a != b))
    return max(differences)


def fit_into_space(
    space: SearchSpace, params: Params, *, clip: bool = False
) -> dict[str, ParamValue] | None:
    """Return those of the params that the space has; None: it has no searched one.

    With `clip` a value outside of its domain goes to the nearest end, or is left out; without, it
    gives None.
    """
    found: dict[str, ParamValue] = {}
    for param in space.params:
        domain, value = param.domain, params.get(param.name)
        if not param.is_active(found) or (param.name not in params and param.is_searched):
            continue
        if isinstance(domain, FixedDomain) and (clip or param.name not in params):
            value = domain.value
        if not domain.contains(value):
            if not clip:
                return None
            if not (isinstance(domain, RangeDomain) and isinstance(value, int | float)):
                continue
            value = domain.nearest(value)
        found[param.name] = domain.cast(value)
    return found if any(space[name].is_searched for name in found) else None


def _compares(earlier: Mapping[str, Any], identity: Mapping[str, Any]) -> bool:
    """Return whether two studies measure the same, so that their values compare."""

    def measured(values: Mapping[str, Any]) -> Any:
        study = values.get("study", {})
        kept = {key: value for key, value in values.items() if key not in ("space", "study")}
        return json.dumps([kept, study.get("metric"), study.get("direction")], sort_keys=True)

    return bool(earlier) and measured(earlier) == measured(identity)
