"""Where trials that fit on no device begin: learned from how far beyond they were."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from automl.search.samplers.memory_wall import (
    MAX_DRAWS,
    OversizedTrial,
    draw_fitting_params,
    learn_boundary,
)
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import SpaceParam, parse_space
from automl.trial import FinishedOutcome, Params, TooLargeOutcome, TrialOutcome
from tests.search.conftest import Studies, ask

ENTRIES = {
    "width": {"low": 16, "high": 1024, "log": True},
    "batch": {"low": 16, "high": 1024, "log": True},
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {"low": 0.0, "high": 0.9, "when": {"optimizer": "sgd"}},
}
ROOM = 2**13
SPACE = parse_space(ENTRIES)
SEARCHED = tuple(param for param in SPACE.params if not param.when)


def needed(values: Any) -> int:
    return int(values["width"] * values["batch"] * (2 if values["optimizer"] == "adam" else 1))


def excess(values: Any) -> float:
    return math.log(needed(values) / ROOM)


def drawn(n: int) -> list[dict[str, Any]]:
    draw = random.Random(0)
    return [
        {
            "width": round(16 * 64 ** draw.random()),
            "batch": round(16 * 64 ** draw.random()),
            "optimizer": draw.choice(["sgd", "adam"]),
        }
        for _ in range(n)
    ]


def split(values: list[dict[str, Any]], *, at_least: float | None = None) -> Any:
    fitted = [v for v in values if excess(v) <= 0]
    beyond = [
        OversizedTrial(v, excess(v) if at_least is None else at_least, at_least is not None)
        for v in values
        if excess(v) > 0
    ]
    return fitted, beyond


def test_memory_that_is_a_product_of_powers_is_learned_from_a_few() -> None:
    """The excess of each trial is learned, over a space of excesses from -3.5 to 5.5."""
    wall = learn_boundary(SEARCHED, *split(drawn(12)))
    beyond = [values for values in drawn(200)[12:] if excess(values) > 0]
    errors = [abs(wall.excess(values) - excess(values)) for values in beyond]
    assert len(errors) > 50
    assert sum(errors) / len(errors) < 0.25


def test_the_excess_tells_more_than_that_there_was_one() -> None:
    """A known excess sorts fewer trials wrongly than a guessed one."""
    known, guessed = (
        learn_boundary(SEARCHED, *split(drawn(30), at_least=guess)) for guess in (None, 0.4)
    )
    wrong = [sum(w.is_beyond(v) != (excess(v) > 0) for v in drawn(500)) for w in (known, guessed)]
    assert wrong[0] < wrong[1] < 60


def test_an_excess_that_may_be_more_is_no_more_than_a_bound() -> None:
    """Trials may be far beyond the wall: the same guess for all does not flatten it."""
    values = drawn(30)
    fitted, beyond = split(values, at_least=0.4)
    as_exact = learn_boundary(
        SEARCHED, fitted, [replace(trial, at_least=False) for trial in beyond]
    )
    wall, far = learn_boundary(SEARCHED, fitted, beyond), max(values, key=excess)
    assert wall.excess(far) > 2 * as_exact.excess(far)


def test_a_draw_beyond_the_wall_is_made_again_and_the_least_beyond_is_taken() -> None:
    wide = {"width": 1024, "batch": 1024, "optimizer": "adam"}
    less, fits = wide | {"batch": 512}, wide | {"width": 16, "batch": 16}
    ended = [_trial(number, values) for number, values in enumerate(drawn(12))]
    draws = iter([wide, less, fits, less])
    assert draw_fitting_params(lambda: next(draws), SEARCHED, ended, not_alone) == fits
    assert next(draws) == less, "no draw more than needed"
    draws = iter([wide] * 3 + [less] + [wide] * (MAX_DRAWS - 4))
    assert draw_fitting_params(lambda: next(draws), SEARCHED, ended, not_alone) == less
    assert next(draws, None) is None


def test_nothing_is_drawn_again_where_nothing_was_too_large() -> None:
    fitted = [_trial(n, v) for n, v in enumerate(drawn(40)) if excess(v) <= 0]
    draws = iter([{"width": 1024, "batch": 1024, "optimizer": "adam"}])
    draw_fitting_params(lambda: next(draws), SEARCHED, fitted, not_alone)


def not_alone(param: SpaceParam) -> Any:
    raise AssertionError(f"{param.name} was drawn with the others")


def test_random_draws_are_made_again_beyond_the_wall_too() -> None:
    ended = [_trial(number, values) for number, values in enumerate(drawn(12))]
    chance = random.Random(0)
    one_by_one: dict[str, Callable[[], Any]] = {
        "width": lambda: round(16 * 64 ** chance.random()),
        "batch": lambda: round(16 * 64 ** chance.random()),
        "optimizer": lambda: chance.choice(["sgd", "adam"]),
    }
    found = [
        draw_fitting_params(dict, SEARCHED, ended, lambda param: one_by_one[param.name]())
        for _ in range(50)
    ]
    assert all(excess(values) < 0.3 for values in found)
    assert draw_fitting_params(dict, SEARCHED, [], not_alone) == {}, "no wall is known"


def _trial(number: int, values: dict[str, Any]) -> Any:
    import optuna

    from automl.search.optuna_trials import optuna_distributions
    from automl.search.samplers.memory_wall import EXCESS_KEY

    too_large = {f"constraints:{EXCESS_KEY}": excess(values)} if excess(values) > 0 else {}
    return optuna.trial.create_trial(
        state=optuna.trial.TrialState.PRUNED,
        params=values,
        distributions={p: d for p, d in optuna_distributions(SPACE).items() if p in values},
        system_attrs=too_large,
    )


@pytest.mark.parametrize("sampler", [TPE(), TPE(group=True), TPE(multivariate=False)])
def test_a_resumed_study_proposes_the_same_beside_the_wall(
    studies: Studies, sampler: Sampler
) -> None:
    """With params that not every trial has, and whether they are drawn together or not."""
    trials = []
    for folder, interruptions in (("whole", ()), ("resumed", (12, 17))):
        (studies.directory / folder).mkdir()
        settings: dict[str, Any] = {"directory": studies.directory / folder, "sampler": sampler}
        study = studies.open(entries=ENTRIES, **settings)
        asked = []
        for number in range(24):
            if number in interruptions:
                study = studies.reopen(study, entries=ENTRIES, **settings)
            asked.append(ask(study).params)
            study.tell(number, _ended(number, asked[-1]))
        trials.append(asked)
    assert trials[0] == trials[1]
    assert any(excess(params) > 0 for params in trials[0])


def _ended(number: int, params: Params) -> TrialOutcome:
    if excess(params) > 0:
        return TooLargeOutcome(number, 0.0, "does not fit", excess(params))
    return FinishedOutcome(number, 0.0, -math.log(needed(params)))


class Optunas(TPE):
    """Optuna's TPE without the memory wall."""

    def choose_draw(self, draw: Callable[[], dict[str, Any]], *_: object) -> dict[str, Any]:
        return draw()


@pytest.mark.slow
def test_tpe_spends_less_beyond_a_wall_than_optuna_s(studies: Studies) -> None:
    """More is better until it does not fit; half of the space does not. Ours learns from the
    first random trials on."""

    def n_beyond(sampler: Sampler, seed: int) -> int:
        folder = studies.directory / f"{type(sampler).__name__}-{seed}"
        folder.mkdir()
        study = studies.open(entries=ENTRIES, sampler=sampler, seed=seed, directory=folder)
        for number in range(50):
            study.tell(number, _ended(number, ask(study).params))
        return sum(excess(trial.params) > 0 for trial in study.ended())

    ours, theirs = (
        sum(n_beyond(sampler, seed) for seed in range(2)) for sampler in (TPE(), Optunas())
    )
    assert ours < 0.75 * theirs


def test_a_range_of_one_value_tells_nothing() -> None:
    one = parse_space({"width": {"low": 64, "high": 64, "log": True}}).params
    wall = learn_boundary(one, [], [OversizedTrial({"width": 64}, 0.5, at_least=False)])
    assert wall.excess({"width": 64}) == pytest.approx(0.5)
