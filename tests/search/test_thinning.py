"""What Optuna's storage is given of many reports, and that nothing is decided otherwise for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.pruners.pruner import Pruner
from automl.search.pruners.report_thinning import N_WITHOUT_GAP, ReportThinning
from automl.search.study import Study
from automl.trial import Verdict
from tests.search.conftest import Studies, ask, finish, report


def is_rung(step: int) -> bool:
    return step % 97 == 41


@pytest.mark.parametrize("seed", range(5))
def test_nothing_that_a_resumed_study_needs_is_left_out(seed: int) -> None:
    draw = random.Random(seed)
    values = [draw.random() + 1 / (step + 1) for step in range(5_000)]
    thinning = ReportThinning()
    given: dict[int, float] = {}
    for step, value in enumerate(values):
        points = thinning.take((step, value), value, at_rung=is_rung(step))
        given.update(points)
        if is_rung(step):
            assert step in given
            assert min(given.values()) == min(values[: step + 1])
        if is_rung(step - 1):
            assert step in given, "it has passed the rung"
    given.update(thinning.rest())
    assert thinning.rest() == []
    assert all(values[step] == value for step, value in given.items())
    assert set(range(N_WITHOUT_GAP)) < set(given)
    assert values.index(min(values)) in given
    assert len(values) - 1 in given


def test_the_number_given_grows_with_the_logarithm() -> None:
    thinning = ReportThinning()
    given = [thinning.take((step, 1 / (step + 1)), 0.0, at_rung=False) for step in range(128_000)]
    assert sum(map(len, given)) == pytest.approx(N_WITHOUT_GAP + 7 * N_WITHOUT_GAP / 2, abs=2)


def test_of_very_many_rungs_the_rest_is_thinned_too() -> None:
    thinning = ReportThinning()
    given = [thinning.take((step, 1.0), 1.0, at_rung=True) for step in range(20_000)]
    assert sum(map(len, given)) < 4_000


PRUNERS = [
    SuccessiveHalving(min_steps=1_200, factor=2, min_trials=2),
    MedianPruner(n_startup_trials=2, n_warmup_steps=1_100, interval_steps=50),
]
N_STEPS = 1_600


def value_at(number: int, step: int) -> float:
    """Noise about a level that falls; who is best changes often."""
    return random.Random(number * N_STEPS + step).random() + 1 / (1 + step / 100)


def pruned_at(study: Study, studies: Studies, pruner: Pruner, resumed: int) -> dict[int, int]:
    """Four trials that report in turns: where each was pruned. From step `resumed` on in a study
    that was opened anew, after its trials repeated their last 300 reports, as from a checkpoint."""
    running = [ask(study).number for _ in range(4)]
    pruned = {}
    for step in range(N_STEPS):
        if step == resumed:
            study = studies.reopen(study, pruner=pruner)
            for number in running:
                for old in range(step - 300, step):
                    assert report(study, number, old, value_at(number, old)) is Verdict.GO_ON
        for number in list(running):
            if report(study, number, step, value_at(number, step)) is Verdict.PRUNE:
                pruned[number] = step
                running.remove(number)
    for number in range(4):
        finish(study, number)
    return pruned


@pytest.mark.parametrize("pruner", PRUNERS, ids=["halving", "median"])
def test_a_resumed_study_prunes_as_a_whole_one_does(
    studies: Studies, tmp_path: Path, pruner: Pruner
) -> None:
    (tmp_path / "whole").mkdir()
    whole = studies.open(pruner=pruner, directory=tmp_path / "whole")
    expected = pruned_at(whole, studies, pruner, resumed=-1)
    assert any(step > 1_100 for step in expected.values()), "some of it is after the thinning"
    assert pruned_at(studies.open(pruner=pruner), studies, pruner, resumed=1_190) == expected


@pytest.mark.parametrize("n_reports", [1_200, 1_202])
def test_what_the_storage_was_given_is_not_given_again(
    studies: Studies, tmp_path: Path, n_reports: int
) -> None:
    def n_given() -> int:
        return (tmp_path / "journal.log").read_text().count('"intermediate_value"')

    study = studies.open()
    number = ask(study).number
    for step in range(n_reports):
        report(study, number, step, 1.0)
    before = n_given()
    assert before == pytest.approx(1_100, abs=1)
    study = studies.reopen(study)
    finish(study, number)
    assert n_given() == before
