"""What is proposed: inside the space, the same after a restart, and learned from what ended."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import optuna
import pytest
from cmaes import CMA

from automl.errors import ConfigError
from automl.search.samplers import samplers
from automl.search.samplers.auto import AutoSampler
from automl.search.samplers.cmaes import CMAES
from automl.search.samplers.gp import MAX_FITTED, GPSampler, choose_fitted
from automl.search.samplers.qmc import QMC
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.trial import Direction, Params, PrunedOutcome, TooLargeOutcome, TrialState
from tests.search.conftest import ENTRIES, Studies, ask, finish, report, run, value_of

SAMPLERS: dict[str, Sampler] = {
    **{name: option() for name, option in samplers().items() if name != "grid"},
    "halton": QMC(qmc_type="halton", scramble=False),
    "tpe": TPE(n_startup_trials=4),
    "cmaes-small": CMAES(population_size=4),
    "tpe-alone": TPE(n_startup_trials=4, multivariate=False, constant_liar=False),
    "tpe-group": TPE(n_startup_trials=4, group=True),
}


JOINT = {
    "qmc": (optuna.samplers.QMCSampler, "sample_relative"),
    "tpe": (optuna.samplers.TPESampler, "sample_relative"),
    "cmaes": (CMA, "ask"),
    "nsga2": (optuna.samplers.NSGAIISampler, "sample_relative"),
    "nsga3": (optuna.samplers.NSGAIIISampler, "sample_relative"),
}
"""What draws several params together, of the options that do."""
DRAW_ALONE = {"random", "grid"}
JOINT_BY_ITSELF = {"gp", "auto"}
"""What draws several params together, by code of this package alone."""


@pytest.fixture(params=list(SAMPLERS.values()), ids=list(SAMPLERS))
def sampler(request: pytest.FixtureRequest) -> Sampler:
    assert isinstance(request.param, Sampler)
    return request.param


def test_params_are_inside_the_space_and_differ(studies: Studies, sampler: Sampler) -> None:
    space = parse_space(ENTRIES)
    trials = run(studies.open(sampler=sampler), 16)
    for trial in trials:
        space.check(trial.params)
        assert ("momentum" in trial.params) == (trial.params["optimizer"] == "sgd")
        assert trial.params["dropout"] == 0.1
        assert {type(trial.params["depth"]), type(trial.params["lr"])} == {int, float}
    assert len({trial.params["lr"] for trial in trials}) == 16


def test_a_study_stopped_and_resumed_proposes_what_a_whole_one_does(
    studies: Studies, sampler: Sampler
) -> None:
    settings: dict[str, Any] = {"sampler": sampler, "seed": 7}
    (studies.directory / "whole").mkdir()
    whole = run(studies.open(directory=studies.directory / "whole", **settings), 40)
    study, parts = studies.open(**settings), []
    for n_trials in (3, 5, 11, 26, 40):
        parts += run(study, n_trials)
        study = studies.reopen(study, **settings)
    assert parts == whole


@pytest.mark.parametrize("name", sorted(samplers().keys() - DRAW_ALONE - JOINT_BY_ITSELF))
def test_what_draws_together_is_asked_to(
    studies: Studies, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A sampler whose joint draw is never called draws independently, and nobody notices."""
    library, method = JOINT[name]
    real, n_calls = getattr(library, method), 0

    def counted(*args: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        return real(*args)

    monkeypatch.setattr(library, method, counted)
    run(studies.open(sampler=samplers()[name]()), 15)
    assert n_calls == 15


def test_trials_side_by_side_differ_and_come_again_after_a_restart(
    studies: Studies, sampler: Sampler
) -> None:
    study = studies.open(sampler=sampler)
    run(study, 6)
    asked = [ask(study) for _ in range(6)]
    assert len({trial.params["lr"] for trial in asked}) == 6
    study = studies.reopen(study, sampler=sampler)
    assert study.interrupted() == tuple(asked)


def test_the_seed_decides(studies: Studies) -> None:
    def first(seed: int) -> Params:
        folder = studies.directory / str(len(list(studies.directory.iterdir())))
        folder.mkdir()
        return ask(studies.open(directory=folder, seed=seed)).params

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_qmc_is_even_over_restarts(studies: Studies) -> None:
    """Eight Sobol points lie in different eighths of each axis; random points do not."""
    entries = {"x": {"low": 0.0, "high": 8.0}, "y": {"low": 0.0, "high": 8.0}}
    points: list[Params] = []
    study = studies.open(entries=entries, sampler=QMC())
    for _ in range(8):
        points.append(ask(study).params)
        study = studies.reopen(study, entries=entries, sampler=QMC())
    for axis in ("x", "y"):
        eighths = [value for point in points if isinstance(value := point[axis], float)]
        assert sorted(map(int, eighths)) == list(range(8))


@pytest.mark.parametrize(
    ("learner", "total"),
    [(TPE(), sum), (CMAES(), sum), (GPSampler(), statistics.median)],  # gp explores corners, too
    ids=["tpe", "cmaes", "gp"],
)
@pytest.mark.parametrize("direction", Direction)
def test_learns(
    studies: Studies,
    learner: Sampler,
    total: Callable[[Iterable[float]], float],
    direction: Direction,
) -> None:
    entries = {"depth": {"low": 2, "high": 64}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
    sign = 1 if direction is Direction.minimize else -1
    study = studies.open(entries=entries, sampler=learner, direction=direction)
    trials = run(study, 50, sign)
    late = total(map(value_of, trials[-15:]))
    early = total(map(value_of, trials[:15]))
    assert late < early / 2


@pytest.mark.parametrize(
    ("learner", "least_pruned"), [(TPE(), 10), (GPSampler(), 4)], ids=["tpe", "gp"]
)
def test_what_does_not_fit_is_learned_though_it_has_no_value(
    studies: Studies, learner: Sampler, least_pruned: int
) -> None:
    """The best values lie where memory ends: without the constraint a sampler would go there."""
    entries = {"width": {"low": 1, "high": 1000}}
    study = studies.open(entries=entries, sampler=learner)
    too_wide = []
    for number in range(50):
        width = ask(study).params["width"]
        assert isinstance(width, int)
        too_wide.append(width > 500)
        if too_wide[-1]:
            study.tell(number, TooLargeOutcome(number, 0.0, "needs too much", 0.5))
        else:
            finish(study, number, -float(width))
    n_pruned = sum(too_wide)
    assert study.counts()[TrialState.PRUNED] == n_pruned
    assert study.n_asked == 50
    assert sum(too_wide[-20:]) < 10
    assert n_pruned >= least_pruned
    study = studies.reopen(study, entries=entries)
    assert study.counts()[TrialState.PRUNED] == n_pruned


FAMILIES = {
    "family": {"choices": ["line", "net"]},
    "l2": {"low": 0.01, "high": 100.0, "log": True, "when": {"family": "line"}},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True, "when": {"family": "net"}},
    "units": {"low": 8, "high": 256, "log": True, "when": {"family": "net"}},
    "spread": {"low": 1, "high": 9, "step": 2, "when": {"units": [64, 65], "family": "net"}},
}


def family_value(params: Params) -> float:
    """The best of a net is better than that of a line, and found less easily."""
    if params["family"] == "line":
        return 0.2 + math.log10(float(params["l2"] or 0)) ** 2 / 50
    lr = math.log10(float(params["lr"] or 0) / 3e-3)
    return lr**2 + (math.log2(float(params["units"] or 0) / 100) / 4 + lr / 2) ** 2


def test_gp_finds_the_best_of_a_conditional_space_in_forty_trials(studies: Studies) -> None:
    """TPE stays above 0.003 with each of ten seeds, and random draws above 0.03 in the median."""
    study, values = studies.open(entries=FAMILIES, sampler=GPSampler()), []
    for number in range(40):
        params = ask(study).params
        parse_space(FAMILIES).check(params)
        values.append(family_value(params))
        finish(study, number, values[-1])
    assert min(values) < 1e-3


@pytest.mark.parametrize("unit", [1.0, 1e-15])
def test_gp_is_not_misled_by_trials_that_diverged(studies: Studies, unit: float) -> None:
    entries = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
    study, values = studies.open(entries=entries, sampler=GPSampler()), []
    for number in range(30):
        params = ask(study).params
        x, y = float(params["x"] or 0), float(params["y"] or 0)
        values.append(unit * ((x - 0.3) ** 2 + (y - 0.4) ** 2 + (1e9 if x > 0.8 else 0)))
        finish(study, number, values[-1])
    assert min(values) < 1e-4 * unit


def test_gp_fills_a_pack_with_trials_apart_from_each_other(studies: Studies) -> None:
    """If the pending trials did not count, all would be proposed at the same place."""
    entries = {"x": {"low": 0.0, "high": 1.0}, "y": {"low": 0.0, "high": 1.0}}
    study, sampler = studies.open(entries=entries, sampler=GPSampler()), GPSampler()

    def asked() -> tuple[float, float]:
        params = ask(study).params
        return float(params["x"] or 0), float(params["y"] or 0)

    assert sampler.n_may_pend(0) == sampler.n_startup_trials == 10
    for number in range(10):
        x, y = asked()
        finish(study, number, math.sin(9 * x) * math.cos(7 * y))
    assert sampler.n_may_pend(10) == 32
    pack = [asked() for _ in range(8)]
    assert min(math.dist(a, b) for a, b in itertools.combinations(pack, 2)) > 1e-3


def test_gp_is_fitted_to_the_best_trials_and_some_of_the_others() -> None:
    keys = np.array([float(i * 7919 % 1009) for i in range(1000)])
    chosen = choose_fitted(keys)
    assert len(set(chosen)) == MAX_FITTED == 200
    assert set(np.sort(keys)[:100]) <= set(keys[chosen])
    assert max(keys[chosen]) == max(keys)
    assert list(choose_fitted(keys[:5])) == [0, 1, 2, 3, 4]


def test_auto_is_gp_and_where_kinds_share_the_trials_tpe(studies: Studies) -> None:
    families = AutoSampler().decide("family")
    assert isinstance(families.sampler, TPE)
    assert "space.family" in str(families.reason)
    others = AutoSampler().decide(None)
    assert isinstance(others.sampler, GPSampler)
    assert str(others.reason).startswith("sampler=auto: gp")
    assert TPE().decide("family").reason is None
    asked = run(studies.open(sampler=AutoSampler()), 14)
    (studies.directory / "gp").mkdir()
    assert asked == run(studies.open(sampler=GPSampler(), directory=studies.directory / "gp"), 14)


def test_cmaes_draws_each_step_of_whole_numbers_about_equally_often(studies: Studies) -> None:
    """Whole numbers must not be rounded before they are put on a step: 1 and 3 are no values."""
    entries = {"n": {"low": 0, "high": 4, "step": 2}, "x": {"low": 0.0, "high": 1.0}}
    study = studies.open(entries=entries, sampler=CMAES(sigma=1.0))
    drawn = [ask(study).params["n"] for _ in range(120)]
    assert min(drawn.count(n) for n in (0, 2, 4)) > 25


def test_cmaes_needs_a_number(studies: Studies) -> None:
    entries = {"optimizer": {"choices": ["sgd", "adam"]}, "depth": {"low": 3, "high": 3}}
    with pytest.raises(ConfigError, match="sampler=cmaes needs at least one param that is a range"):
        studies.open(entries=entries, sampler=CMAES())


def test_cmaes_goes_on_after_it_has_converged_and_with_what_did_not_fit(studies: Studies) -> None:
    entries = {"x": {"low": 0.0, "high": 1.0}, "n": {"low": 1, "high": 3}}
    study = studies.open(entries=entries, sampler=CMAES(population_size=4, sigma=1e-9))
    for number in range(60):
        space = parse_space(entries)
        space.check(ask(study).params)
        if number % 3:
            finish(study, number, 1.0)
        else:
            study.tell(number, TooLargeOutcome(number, 0.0, "needs too much", 0.5))


def test_tpe_takes_pruned_trials_without_a_report(studies: Studies) -> None:
    study = studies.open(sampler=TPE(n_startup_trials=2))
    for _ in range(8):
        asked = ask(study)
        if asked.number % 2:
            report(study, asked.number, 0, 1.0)
        study.tell(asked.number, PrunedOutcome(asked.number, 0.0, step=0, value=float("nan")))
    assert study.counts()[TrialState.PRUNED] == 8
    assert study.ranking(8) == ()


def test_enqueued_params_come_first_and_are_completed(studies: Studies) -> None:
    enqueue: list[Params] = [
        {"depth": 3, "lr": 0.1},
        {"optimizer": "sgd", "momentum": 0, "lr": 1e-3},
    ]
    study = studies.open(sampler=TPE(), enqueue=enqueue)
    first, second, third = (ask(study) for _ in range(3))
    space = parse_space(ENTRIES)
    for asked, params in zip((first, second), enqueue, strict=True):
        assert {name: asked.params[name] for name in params} == params
        assert asked.params.keys() >= {"depth", "lr", "optimizer", "dropout"}
        space.check(asked.params)
    assert isinstance(second.params["momentum"], float)
    assert third.number == 2


def test_a_kill_between_enqueued_trials_loses_none(studies: Studies) -> None:
    enqueue = [{"depth": 3}, {"depth": 4}, {"depth": 5}]
    study = studies.open(enqueue=enqueue)
    depths = [ask(study).params["depth"]]
    study = studies.reopen(study, enqueue=enqueue)
    depths += [ask(study).params["depth"], ask(study).params["depth"]]
    assert depths == [3, 4, 5]


def test_enqueued_params_outside_the_space_are_refused(studies: Studies) -> None:
    with pytest.raises(ConfigError, match=r"study.enqueue\[1\].depth=99: must be whole numbers"):
        studies.open(enqueue=[{"depth": 3}, {"depth": 99}])
    assert not (studies.directory / "journal.log").exists()


def test_single_valued_ranges_and_an_all_fixed_space_work(
    studies: Studies, sampler: Sampler
) -> None:
    if isinstance(sampler, CMAES):
        pytest.skip("refuses a space without a number")
    entries = {"a": {"low": 3, "high": 3}, "b": {"choices": ["x"]}, "c": {"low": 0.5, "high": 0.5}}
    study = studies.open(entries=entries, sampler=sampler)
    for _ in range(6):
        asked = ask(study)
        assert asked.params == {"a": 3, "b": "x", "c": 0.5}
        finish(study, asked.number)


def test_group_without_multivariate_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"sampler.group=True: needs sampler.multivariate=true"):
        TPE(group=True, multivariate=False)


LIKELY = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True, "likely": 1e-3},
    "optimizer": {"choices": ["sgd", "adam", "lion"], "likely": "lion"},
    "depth": {"low": 1, "high": 100},
}


def test_a_study_begins_at_the_likely_values(studies: Studies, sampler: Sampler) -> None:
    first = ask(studies.open(entries=LIKELY, sampler=sampler))
    assert (first.params["lr"], first.params["optimizer"]) == (1e-3, "lion")


def test_early_trials_are_more_often_near_likely_values_than_late_ones(studies: Studies) -> None:
    n_near = {True: 0, False: 0}
    for seed in range(4):
        (studies.directory / str(seed)).mkdir()
        study = studies.open(entries=LIKELY, seed=seed, directory=studies.directory / str(seed))
        for number in range(49):
            trial = ask(study)
            is_near = 10**-3.5 < float(str(trial.params["lr"])) < 10**-2.5
            n_near[number < 13] += is_near
            finish(study, number, float(str(trial.params["depth"])))
    n_late = n_near[False] / 3
    assert n_near[True] > 16, "a fifth of the range is near: 10 of 48 by chance"
    assert n_late < n_near[True] - 4, "the guess is forgotten"


def test_a_likely_value_is_part_of_the_space_that_is_stored() -> None:
    space = parse_space(LIKELY)
    assert parse_space(space.plain()) == space
    assert "likely" not in parse_space(ENTRIES).plain()["lr"]
