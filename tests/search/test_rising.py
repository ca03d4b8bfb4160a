"""Several kinds of trials in one study: who gets the next trial, and whom rungs compare."""

from __future__ import annotations

from collections import Counter

import pytest

from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.none import NoPruner
from automl.search.samplers.family_choice import N_FIRST, FamilyHistory, next_family
from automl.search.samplers.tpe import TPE
from automl.search.trial_standings import StudyStandings
from automl.trial import Direction, Params, StudyMetrics, Verdict
from tests.search.conftest import Studies, ask, finish, report

KINDS = ("linear", "trees", "mlp")
ENTRIES = {
    "family": {"choices": list(KINDS)},
    "linear_c": {"low": 0.1, "high": 1.0, "when": {"family": "linear"}},
    "trees_leaf": {"low": 1, "high": 20, "when": {"family": "trees"}},
    "mlp_lr": {"low": 1e-4, "high": 1e-1, "log": True, "when": {"family": "mlp"}},
}


def courses(**keys: list[float]) -> dict[str, FamilyHistory]:
    return {kind: FamilyHistory(keys.get(kind, [])) for kind in KINDS}


def test_each_kind_gets_its_first_trials() -> None:
    given = courses()
    chosen = []
    for _ in range(N_FIRST * len(KINDS)):
        chosen.append(kind := next_family(KINDS, given))
        given[kind].keys.append(1.0)
    assert Counter(chosen) == dict.fromkeys(KINDS, N_FIRST)
    assert chosen[: len(KINDS)] == list(KINDS)


def shares(n: int, **keys: list[float]) -> Counter[str]:
    """Count the kinds of the next `n` trials, which all gain nothing."""
    given = courses(**keys)
    chosen = []
    for _ in range(n):
        chosen.append(kind := next_family(KINDS, given))
        given[kind].keys.append(max(given[kind].keys))
    return Counter(chosen)


def test_a_kind_that_hopelessly_trails_is_dropped() -> None:
    found = shares(30, linear=[9, 9, 9.0], trees=[1, 1.2, 1.1], mlp=[1.05, 1.3, 1.4])
    assert found["linear"] == 0
    assert found["trees"] > found["mlp"] > 5


def test_a_kind_that_still_gains_is_kept_where_it_trails() -> None:
    given = courses(linear=[9, 9, 9, 9, 9, 9], trees=[1.0] * 6, mlp=[8, 7, 6, 4, 3, 2])
    assert given["mlp"].expected_best < 1 < given["linear"].expected_best
    assert next_family(KINDS, given) == "mlp"


def test_what_has_come_to_nothing_yet_promises_nothing() -> None:
    infinite = float("inf")
    found = shares(12, linear=[infinite] * 3, trees=[1, 1.2, 1.1], mlp=[1, 1, infinite])
    assert found["linear"] == 0


def test_the_expected_best_is_what_as_many_trials_again_would_gain() -> None:
    # From 5 to 2 in the last three of six: one a trial, so six in six more.
    assert FamilyHistory([9, 7, 5, 4, 3, 2]).expected_best == pytest.approx(2 - 6)
    assert FamilyHistory([3, 2, 2.5, 2.5, 2.5]).expected_best == 2  # none since: the best stays


def value(params: Params) -> float:
    """trees are best; linear hopeless."""
    if params["family"] == "linear":
        return 9.0
    if params["family"] == "trees":
        return 1.0 + abs(float(str(params["trees_leaf"])) - 5) / 20
    return 1.2 + float(str(params["mlp_lr"]))


def families_of(studies: Studies, n: int, stops: tuple[int, ...] = ()) -> list[Params]:
    study = studies.open(entries=ENTRIES, sampler=TPE(n_startup_trials=4), choice="family")
    tried = []
    for number in range(n):
        if number in stops:
            study = studies.reopen(
                study, entries=ENTRIES, sampler=TPE(n_startup_trials=4), choice="family"
            )
        asked = ask(study)
        report(study, asked.number, 0, value(asked.params))
        finish(study, asked.number, value(asked.params))
        tried.append(asked.params)
    return tried


def test_a_study_shares_its_trials_by_what_kinds_may_reach(studies: Studies) -> None:
    tried = families_of(studies, 30)
    counts = Counter(params["family"] for params in tried)
    assert counts["linear"] == N_FIRST
    assert counts["trees"] > counts["mlp"] > N_FIRST
    assert all(set(params) == {"family", *own(str(params["family"]))} for params in tried)


def own(family: str) -> set[str]:
    return {name for name in ENTRIES if name.startswith(f"{family}_")}


def test_a_resumed_study_proposes_what_an_uninterrupted_one_would(
    studies: Studies, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Studies(tmp_path_factory.mktemp("other"))
    try:
        assert families_of(studies, 20) == families_of(other, 20, stops=(7, 15))
    finally:
        other.close()


def test_rungs_compare_one_kind_alone(studies: Studies) -> None:
    pruner = SuccessiveHalving(min_steps=1, factor=2, min_trials=2)
    portfolio: list[Params] = [{"family": kind} for kind in ["trees"] * 4 + ["mlp"] * 2]
    study = studies.open(entries=ENTRIES, pruner=pruner, choice="family", portfolio=portfolio)
    asked = [ask(study) for _ in portfolio]
    verdicts = [report(study, one.number, 0, 1.0 + one.number) for one in asked]
    assert verdicts[:4] == [Verdict.GO_ON, Verdict.PRUNE, Verdict.PRUNE, Verdict.PRUNE]
    # Worse than every tree, and the best of its kind; the second is behind it.
    assert verdicts[4:] == [Verdict.GO_ON, Verdict.PRUNE]
    for one in asked:
        finish(study, one.number, 1.0 + one.number)


def test_each_kind_is_judged_where_its_own_pruner_has_rungs() -> None:
    early, late = (SuccessiveHalving(min_steps=n, factor=2, min_trials=2) for n in (1, 3))
    table = StudyStandings(
        StudyMetrics.single(Direction.minimize), NoPruner(), "family", {"trees": early, "mlp": late}
    )
    numbers = [table.start({"family": kind}) for kind in (*("trees", "mlp", "linear") * 2,)]
    stopped: dict[int, list[int]] = {}
    for step in range(4):
        for number in numbers:
            table.record(number, step, float(number))
        stopped[step] = [number for number in numbers if table.judge(number)]
    assert stopped == {0: [3], 1: [3], 2: [3, 4], 3: [3, 4]}


def test_the_portfolio_goes_after_what_is_enqueued_as_far_as_the_space_has_it(
    studies: Studies,
) -> None:
    portfolio: list[Params] = [
        {"family": "mlp", "mlp_lr": 0.01},
        {"family": "mlp", "mlp_lr": 7.0},  # beyond the space
        {"family": "boosting"},  # of none
        {"family": "trees", "trees_leaf": 3},
    ]
    enqueued = {"family": "linear", "linear_c": 0.5}
    study = studies.open(entries=ENTRIES, choice="family", portfolio=portfolio, enqueue=[enqueued])
    tried = [ask(study).params for _ in range(3)]
    assert tried == [enqueued, portfolio[0], portfolio[3]]
    for number in range(3):
        finish(study, number)


def test_no_kind_is_proposed_that_the_sweep_has_too_little_time_for(studies: Studies) -> None:
    sampler = TPE(n_startup_trials=4)
    study = studies.open(
        entries=ENTRIES, sampler=sampler, choice="family", slow_kinds={"trees", "mlp"}
    )
    for number in range(4):
        assert ask(study).params["family"] == "linear"
        finish(study, number, 1.0)
    study = studies.reopen(study, entries=ENTRIES, sampler=sampler, choice="family")
    assert ask(study).params["family"] == "trees", "with more time it gets its turn"
    finish(study, 4, 1.0)
    every = set(KINDS)
    study = studies.reopen(
        study, entries=ENTRIES, sampler=sampler, choice="family", slow_kinds=every
    )
    assert ask(study).params["family"] in every, "there is no other"
    finish(study, 5, 1.0)
