"""Says how far each param brought the best trial, by a forest that learned the trials' values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from automl.record.trial_record import TrialRecord
from automl.report.study_data import ParamScale
from automl.trial import Direction, Params, ParamValue

MIN_TRIALS = 20
MIN_FIT = 0.3
"""A forest whose out-of-bag R² is below this says nothing of single params."""
_ABSENT = -1.0
"""Place of a param that a trial does not have; the others lie from 0 to 1."""


@dataclass(frozen=True)
class PathStep:
    """One param changed from its value in the first trial to that of the best."""

    name: str
    before: ParamValue
    after: ParamValue
    value: float
    """The metric that the forest predicts after this step."""


@dataclass(frozen=True)
class ParamPath:
    """The way from the first trial's params to the best's, the most helpful change first."""

    start: float
    """The metric that the forest predicts for the first trial."""
    steps: tuple[PathStep, ...]
    fit: float
    """The forest's out-of-bag R² on the ranks of the values."""


def param_path(
    trials: Sequence[TrialRecord],
    best: TrialRecord,
    scales: Mapping[str, ParamScale],
    direction: Direction,
) -> ParamPath | None:
    """Return the path from the first of `trials` to the best one.

    None for few trials, or if the forest explains too little of their order.
    """
    first = min(trials, key=lambda trial: trial.number, default=best)
    names = [n for n, s in scales.items() if first.params.get(n) != best.params.get(n)]
    if len(trials) < MIN_TRIALS or not names:
        return None
    from sklearn.ensemble import RandomForestRegressor  # half a second, for long studies alone

    values = np.array([trial.value for trial in trials], dtype=np.float64)
    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable") / (len(values) - 1)
    places = np.array([_places(trial.params, scales) for trial in trials])
    forest = RandomForestRegressor(80, min_samples_leaf=2, oob_score=True, random_state=0)
    forest.fit(places, ranks)
    if forest.oob_score_ < MIN_FIT:
        return None
    ordered = np.sort(values)

    def predict(candidates: Sequence[Params]) -> Sequence[float]:
        predicted = forest.predict([_places(params, scales) for params in candidates])
        places = predicted * (len(ordered) - 1)
        return [float(v) for v in np.interp(places, np.arange(len(ordered)), ordered)]

    params, steps = dict(first.params), list[PathStep]()
    (start,) = predict([params])
    while names:
        values_after = predict([_changed(params, name, best) for name in names])
        changed = dict(zip(names, values_after, strict=True))
        choose = min if direction is Direction.minimize else max
        name = choose(changed, key=lambda n: changed[n])
        steps.append(PathStep(name, params.get(name), best.params.get(name), changed[name]))
        params = _changed(params, name, best)
        names.remove(name)
    return ParamPath(start, tuple(steps), float(forest.oob_score_))


def _changed(params: Params, name: str, best: TrialRecord) -> dict[str, ParamValue]:
    """Return the params with one value of the best trial, which may lack it."""
    changed = {n: v for n, v in params.items() if n != name}
    return changed | ({name: best.params[name]} if name in best.params else {})


def _places(params: Params, scales: Mapping[str, ParamScale]) -> list[float]:
    return [s.share(params[n]) if n in params else _ABSENT for n, s in scales.items()]
