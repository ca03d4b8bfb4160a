"""A study that several sweeps share: what each tries, and a trial of it that ends elsewhere."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
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
from automl.search.samplers.tpe import TPE
from automl.search.search_space import EnqueuedPoint, parse_space
from automl.search.shared_study import SharedStudy
from automl.search.storage import OUTSIDE_SPACE
from automl.search.study import AskedTrial, Study
from automl.search.study_identity import StudyRules
from automl.trial import FinishedOutcome, MetricsReported, Params, StudyEdited, TrialTagged
from tests.postgres import database, postgres
from tests.search.joining import N_COMBINATIONS, SPACE, Join, join, rules_of

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


def point(x: float, request: str, **more: Any) -> EnqueuedPoint:
    return EnqueuedPoint({"x": x}, request, **more)


def test_a_point_that_is_enqueued_in_every_sweep_at_once_is_tried_by_one(join: Join) -> None:
    sweeps = [join(IndependentSampler(), 9) for _ in range(3)]
    points = [point(0.25, "r:0"), point(7.0, "r:1", may_be_outside=True)]
    first = sweeps[0].enqueue(points[:1])  # and is killed
    others = [trial for sweep in sweeps[1:] for trial in sweep.enqueue(points)]
    assert [trial.params["x"] for trial in (*first, *others)] == [0.25, 7.0]
    for sweep in sweeps:
        sweep.hear()
        assert sweep.by_request == {"r:0": 0, "r:1": 1}
        trials = sweep._storage.get_all_trials(sweep._study_id)
        assert [OUTSIDE_SPACE in trial.system_attrs for trial in trials] == [False, True]


def test_enqueued_points_take_no_place_in_a_grid(join: Join) -> None:
    one, other = join(GridSampler(), 100), join(GridSampler(), 100)
    one.enqueue([point(0.25, "r:0")])
    asked = asked_in_turn([other, one], N_COMBINATIONS)
    assert len({json.dumps(trial.params, sort_keys=True) for trial in asked}) == N_COMBINATIONS


WIDER = {**SPACE, "x": {"low": 2.0, "high": 3.0, "step": 0.25}, "z": {"low": 0, "high": 9}}


def edit_of(n_trials: int, sampler: Sampler) -> tuple[StudyEdited, StudyRules]:
    """Return the event of an edit of the space, and the rules since."""
    spaces = [json.dumps(parse_space(space).plain()) for space in (SPACE, WIDER)]
    before, after = spaces
    edit = StudyEdited(1.0, "edit-1", "ann", n_trials, {}, {}, before, after, {"space.z": "4"})
    return edit, replace(rules_of(sampler), space=parse_space(WIDER), edits=(edit,))


@pytest.mark.parametrize("sampler", [GridSampler(), QMC(), IndependentSampler(), TPE()])
def test_every_sweep_asks_for_trials_of_the_edited_space_from_the_edit_on(
    join: Join, tmp_path: Path, sampler: Sampler
) -> None:
    """As one sweep alone would, also where a sweep has not read the edit when it asks."""
    sweeps = [join(sampler, 16) for _ in range(3)]
    for sweep in sweeps:
        sweep.follow_edit = lambda edit, sweep=sweep: sweep.edit(  # type: ignore[misc]
            edit_of(edit.n_trials, sampler)[1]
        )
    asked = [sweep.ask() for sweep in (*sweeps, *sweeps[:2])]
    edit, rules = edit_of(5, sampler)
    maker = sweeps[2]
    maker.hear()
    assert maker._shared.record_edit(edit, n_edits=0, n_trials=None)
    assert not maker._shared.record_edit(replace(edit, id="edit-2"), n_edits=0, n_trials=None)
    # The first of them knows all trials, and not the edit.
    asked += asked_in_turn([sweeps[1], sweeps[0], maker], 16)
    assert [trial.number for trial in asked if trial] == [*range(16)]
    (folder := tmp_path / "alone").mkdir()
    with closing(Study.open(StudyConfig(name="alone"), rules_of(sampler), folder)) as study:
        alone = [study.ask() for _ in range(5)]
        study.edit(rules)
        alone += [study.ask() for _ in range(11)]
    assert asked == alone
    late = join(sampler, 16, rules=rules)
    everywhere = [trial.params for trial in alone if trial]
    assert [late.params(n) for n in range(16)] == everywhere
    for sweep in sweeps:
        sweep.hear()
        assert [sweep.params(n) for n in range(16)] == everywhere
