"""Warns of tables on which a trial takes minutes, and tries quick families first on them. Pure.

A sweep does not ask whether it may take long. It says instead about how long a trial takes, and
what is quicker.

Points that did well on many tables are tried in the order in which `model=auto` names their
families. If trials of some family take minutes, a sweep with little time might end with unfinished
trials only. The quick families of each turn then go first. On a large table, a sweep with a time
limit tries no forests and networks whose trials take much of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from automl.config import Config, DataKind
from automl.data.dataset import Dataset
from automl.models.families.auto.family import LEADING, MANY_ROWS, PART_ROWS, AutoFamily
from automl.models.families.boosting.family import LARGE_TABLE_ROWS
from automl.models.family import family_name, family_of
from automl.trial import ROWS_PARAM, Params, ParamValue

LONG_TRIAL_SECONDS = 60.0
LONG_FRACTION = 0.05
"""On a large table, families whose trial takes a larger fraction of the sweep's time limit are not
tried by that sweep."""


def long_trial_warnings(
    config: Config, dataset: Dataset, ends: Mapping[str, Iterable[ParamValue]]
) -> tuple[str, ...]:
    """Return warning lines if trials of some family are long, and if the sweep tries none of them.

    `ends`: the ends of each param's range.
    """
    seconds = seconds_by_family(config, dataset, ends)
    return (
        *_minutes_warning(config, _sized_for_trials(dataset, ends), seconds),
        *_not_tried(config, dataset, seconds),
    )


def _not_tried(
    config: Config, dataset: Dataset, seconds: Mapping[str, float | None]
) -> Iterable[str]:
    slow = slow_families(config, dataset, seconds)
    if not slow:
        return
    needs = ", ".join(f"{name} (some {need:.0f} s a trial)" for name, need in slow.items())
    yield (
        f"not tried in study.timeout_seconds={config.study.timeout_seconds:g}: {needs}. A sweep "
        f"with more time tries them, and so does one with model.families=[{','.join(seconds)}]."
    )


def _minutes_warning(
    config: Config, dataset: Dataset, seconds: Mapping[str, float | None]
) -> Iterable[str]:
    long = {
        name: need
        for name, need in seconds.items()
        if need is not None and need > LONG_TRIAL_SECONDS
    }
    if not long:
        return
    needs = ", ".join(f"{name} {_minutes(need)}" for name, need in long.items())
    n_rows, n_columns = dataset.first_fold.n_train, len(dataset.columns.all)
    models = f", {dataset.n_models} models a trial" if dataset.n_models > 1 else ""
    line = (
        f"a trial takes minutes of a core ({n_rows:,} rows of {n_columns:,} columns{models}; "
        f"about: {needs})."
    )
    quicker = "; ".join(_quicker(config, dataset, seconds, long))
    yield f"{line} Quicker: {quicker}." if quicker else line


def slow_families(
    config: Config, dataset: Dataset, seconds: Mapping[str, float | None]
) -> dict[str, float]:
    """Return the families that a sweep with a time limit does not try, with the seconds of a trial.

    On a large table, boosted trees do better with the time of a trial of a forest or a network.
    Families that the user has named are tried. `seconds`: time of a trial by family.
    """
    family, limit = family_of(config), config.study.timeout_seconds
    if limit is None or not isinstance(family, AutoFamily) or not family.are_default:
        return {}
    slow = {
        name: need
        for name, need in seconds.items()
        if need is not None and need > LONG_FRACTION * limit and name not in LEADING
    }
    return slow if dataset.n_train > LARGE_TABLE_ROWS and len(slow) < len(seconds) else {}


def seconds_by_family(
    config: Config, dataset: Dataset, ends: Mapping[str, Iterable[ParamValue]]
) -> dict[str, float | None]:
    """Return the seconds of a trial of each family by `Family.trial_seconds`. None if unknown."""
    family, n_rows = family_of(config), dataset.n_train
    dataset = _sized_for_trials(dataset, ends)
    searched = set(ends.get(family.choice or "", family.by_choice))
    members = {name: one for name, one in family.by_choice.items() if name in searched}
    training = config.training
    if not members:
        own = family.trial_seconds(dataset, family.with_length(training, n_rows), ends)
        return {family_name(family): own}
    return {
        name: one.trial_seconds(
            dataset,
            one.with_length(training, n_rows),
            {param.removeprefix(f"{name}_"): of for param, of in ends.items()},
        )
        for name, one in members.items()
    }


def _sized_for_trials(dataset: Dataset, ends: Mapping[str, Iterable[ParamValue]]) -> Dataset:
    """Return the data set with as many rows as a trial of the space trains on."""
    numbers = [n for n in ends.get(ROWS_PARAM, ()) if isinstance(n, int)]
    return dataset.first_rows(max(numbers)) if numbers else dataset


def _quicker(
    config: Config,
    dataset: Dataset,
    seconds: Mapping[str, float | None],
    long: Mapping[str, float],
) -> Iterable[str]:
    if dataset.n_models > 1:
        yield f"data.folds=1 trains one model in place of {dataset.n_models}"
    elif _may_take_a_part(config) and dataset.n_train > MANY_ROWS:
        yield f"data.sweep_rows={PART_ROWS} (trials have so many rows, refit all)"
    short = [name for name in seconds if name not in long]
    if short and len(seconds) > 1:
        yield f"model.families=[{','.join(short)}]"
    elif "linear" not in seconds:
        yield "model=linear"
    if len(seconds) > 1 and config.study.timeout_seconds is None:
        yield "timeout=1min ends with what there is so far"


def _may_take_a_part(config: Config) -> bool:
    return config.data.kind is DataKind.csv and config.data.sweep_rows is None


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else "1 min"


def order_quick_families_first(
    points: Sequence[Params],
    choice: str,
    seconds: Mapping[str, float | None],
) -> Sequence[Params]:
    """Return `points` with the quick families of each turn first, if a trial of some family takes
    minutes.

    `seconds`: time of a trial by family; None if unknown, which counts as little. `choice`: the
    param that names the family.
    """
    if all(
        (seconds.get(str(params.get(choice))) or 0.0) <= LONG_TRIAL_SECONDS for params in points
    ):
        return points
    n_before = Counter[str]()
    order = []
    for params in points:
        family = str(params.get(choice))
        order.append((n_before[family], seconds.get(family) or 0.0))
        n_before[family] += 1
    return [points[place] for place in sorted(range(len(points)), key=order.__getitem__)]
