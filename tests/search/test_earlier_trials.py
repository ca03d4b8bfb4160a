"""What a study takes from earlier ones: first points, and evidence that is no trial of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from automl.errors import ConfigError
from automl.search.earlier_trials import (
    N_POINTS,
    EarlierTrials,
    collect_earlier,
    read_earlier_trials,
)
from automl.search.samplers.tpe import TPE
from automl.search.search_space import parse_space
from automl.search.study_identity import read_stored_identity
from automl.trial import FinishedOutcome, Params, TrialStarted
from tests.search.conftest import Studies, ask, finish
from tests.tracking.scenes import write

SPACE = {"x": {"low": 0.0, "high": 1.0}, "opt": {"choices": ["sgd", "adam"]}}
SPACE_OF = parse_space(SPACE)
RANKED: list[tuple[Params, float | None]] = [
    ({"x": 0.9 - n / 100, "opt": "adam" if n else "sgd"}, None) for n in range(40)
]
FIRST: list[Params] = [
    {"x": 0.9, "opt": "sgd"},
    {"x": 0.9 - 1 / 100, "opt": "adam"},
    {"x": 0.9 - 12 / 100, "opt": "adam"},
]


def earlier() -> EarlierTrials:
    return collect_earlier([RANKED], SPACE_OF, 0)


def test_best_points_of_earlier_studies_go_first_each_once_and_within_the_space() -> None:
    space = {"x": {"low": 0.0, "high": 0.5}, "opt": {"choices": ["adam", "lion"]}, "new": 3}
    other: list[tuple[Params, float | None]] = [
        ({"x": 0.5, "opt": "adam"}, None),
        ({"x": 0.4, "opt": "sgd"}, None),
        ({"gone": 1}, None),
    ]
    found = collect_earlier([RANKED, other], parse_space(space), 0)
    assert found.points[:2] == [{"x": 0.5, "new": 3}, {"x": 0.5, "opt": "adam", "new": 3}]
    assert found.points[-1] == {"x": 0.4, "new": 3}, "a choice that is gone is drawn anew"
    assert found.trials, "trials that lie in the space teach its sampler"
    assert all(0.0 <= float(str(trial.params["x"])) <= 0.5 for trial in found.trials)


def test_a_study_begins_with_the_points_and_counts_only_its_own_trials(studies: Studies) -> None:
    study = studies.open(entries=SPACE, sampler=TPE(), earlier=earlier())
    asked = [ask(study) for _ in range(4)]
    assert [trial.params for trial in asked[:3]] == FIRST
    for trial in asked:
        finish(study, trial.number)
    assert study.n_asked == len(study.ranking(99)) == len(study.ended()) == 4


def test_the_sampler_learns_from_earlier_trials_before_it_has_own_ones(studies: Studies) -> None:
    study = studies.open(entries=SPACE, sampler=TPE(), earlier=earlier())
    asked = [ask(study) for _ in range(N_POINTS + 8)][N_POINTS:]
    near = [trial for trial in asked if float(str(trial.params["x"])) > 0.5]
    assert len(near) >= 6, "the best earlier ones are near 0.9"
    for number in range(N_POINTS + 8):
        finish(study, number)


def test_a_resumed_study_keeps_what_it_took_when_it_began(studies: Studies, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    whole = studies.open(
        entries=SPACE, sampler=TPE(), earlier=earlier(), directory=tmp_path / "whole"
    )
    study = studies.open(entries=SPACE, sampler=TPE(), earlier=earlier())
    for n in range(8):
        if n == 4:  # the earlier study is gone
            study = studies.reopen(study, entries=SPACE, sampler=TPE())
        assert ask(study).params == ask(whole).params
        finish(study, n, float(n))
        finish(whole, n, float(n))


def test_values_count_where_both_studies_measured_the_same(
    studies: Studies, tmp_path: Path
) -> None:
    same = {"data": {"digest": "a"}, "study": {"metric": "val_loss", "seed": 0}}
    other = {**same, "data": {"digest": "b"}}
    study = studies.open(entries=SPACE, identity=same)
    finish(study, ask(study).number)
    stored = read_stored_identity(tmp_path)
    assert stored == same
    write(tmp_path, TrialStarted(0, 1.0, {"x": 0.2, "opt": "sgd"}, "cpu"))
    write(tmp_path, FinishedOutcome(0, 2.0, 3.0))
    reseeded = {**same, "study": {"metric": "val_loss", "seed": 7}, "space": {"x": 1}}
    values = [
        [trial.value for trial in read_earlier_trials({tmp_path: stored}, SPACE_OF, now, 0).trials]
        for now in (reseeded, other)
    ]
    assert values == [[3.0], [None]]


def test_a_study_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nix holds no study"):
        read_earlier_trials({tmp_path / "nix": {}}, SPACE_OF, {}, 0)
