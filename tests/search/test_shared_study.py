"""A study that several sweeps share: what each tries, and a trial of it that ends elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from optuna.storages import InMemoryStorage

from automl.config import StudyConfig
from automl.search.samplers.grid import GridSampler
from automl.search.samplers.qmc import QMC
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.shared_study import SharedStudy
from automl.search.study import AskedTrial, Study
from automl.trial import FinishedOutcome, MetricsReported, Params, TrialTagged
from tests.postgres import database, postgres
from tests.search.joining import N_COMBINATIONS, Join, join, rules_of

__all__ = ["database", "join", "postgres"]


@pytest.fixture
def study(join: Join) -> SharedStudy:
    return join(IndependentSampler(), 9)


def asked_in_turn(sweeps: Sequence[Study], n_trials: int) -> list[AskedTrial]:
    """Return the trials of sweeps that ask in turn until none gets another.

    They read each other's news only as they ask, so that each finds its number taken.
    """
    asked: list[AskedTrial] = []
    while found := [trial for sweep in sweeps if (trial := sweep.ask()) is not None]:
        asked += found
        assert len(asked) <= n_trials, "more than the study is to have"
    return asked


@pytest.mark.parametrize(
    ("sampler", "n_trials", "n_made", "enqueue"),
    [
        (GridSampler(), 100, N_COMBINATIONS, ()),
        (
            GridSampler(),
            100,
            N_COMBINATIONS,
            ({"x": 0.5, "kind": "a"}, {"x": 0.25, "kind": "b", "y": 2}),
        ),
        (QMC(), 16, 16, ()),
        (QMC(qmc_type="halton"), 16, 16, ({"x": 0.5, "kind": "a"},)),
        (
            IndependentSampler(),
            9,
            9,
            ({"x": 0.5, "kind": "a"}, {"x": 0.25}, {"kind": "b"}, {"x": 1.0}),
        ),
    ],
    ids=["grid", "grid, enqueued", "sobol", "halton, enqueued", "enqueued"],
)
def test_sweeps_share_the_points_of_one_and_none_tries_another_s(
    join: Join,
    database: str,
    tmp_path: Path,
    sampler: Sampler,
    n_trials: int,
    n_made: int,
    enqueue: Sequence[Params],
) -> None:
    """Point after point is that which a sweep alone would try."""
    (folder := tmp_path / "alone").mkdir()
    config = StudyConfig(name="alone", enqueue=[dict(e) for e in enqueue], n_trials=n_trials)
    with closing(Study.open(config, rules_of(sampler), folder)) as study:
        found = (study.ask() for _ in range(n_made))
        alone = {trial.number: trial.params for trial in found if trial is not None}
    asked = asked_in_turn([join(sampler, n_trials, enqueue) for _ in range(3)], n_trials)
    assert sorted(trial.number for trial in asked) == [*range(n_made)]
    assert {trial.number: trial.params for trial in asked} == alone
    with psycopg.connect(database) as connection:
        stored = connection.execute("SELECT number, params FROM automl_trials").fetchall()
    assert {n: json.loads(params) for n, params in stored} == alone, "as anybody hears of them"


def test_a_trial_that_ends_elsewhere_while_it_reports_here_troubles_nobody(
    study: SharedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep that was stopped for long learns of its trials' ends while they go on."""
    asked = study.ask()
    assert asked is not None
    reports, has_ended = threading.Event(), threading.Event()
    write = InMemoryStorage.set_trial_intermediate_value

    def slowly(*words: Any) -> None:
        reports.set()
        has_ended.wait(0.5)
        write(*words)

    monkeypatch.setattr(InMemoryStorage, "set_trial_intermediate_value", slowly)

    def end() -> None:
        reports.wait()
        study.tell(asked.number, FinishedOutcome(asked.number, 1.0, 0.5))
        has_ended.set()

    (elsewhere := threading.Thread(target=end)).start()
    study.report([MetricsReported(asked.number, 0.5, step=0, metrics={"val_loss": 0.5})])
    elsewhere.join()
    study.report([MetricsReported(asked.number, 1.5, step=1, metrics={"val_loss": 0.1})])
    study.tag(TrialTagged(asked.number, 1.5, "note", "late"))
    best = study.best()
    assert best is not None
    assert best.value == 0.5
