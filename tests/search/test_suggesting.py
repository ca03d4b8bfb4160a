"""Params that trials ask for while they run: drawn once, written down, drawn ahead once known."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from automl.errors import ConfigError
from automl.search.earlier_trials import collect_earlier
from automl.search.samplers.cmaes import CMAES
from automl.search.samplers.grid import GridSampler
from automl.search.samplers.qmc import QMC
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler, SamplerInputs
from automl.search.samplers.tpe import TPE
from automl.search.search_space import EnqueuedPoint, parse_space
from automl.search.study import AskedTrial, Study
from automl.trial import (
    FinishedOutcome,
    ParamQuestion,
    Params,
    ParamsNotSuggested,
    ParamValue,
    PrunedOutcome,
)
from tests.search.conftest import Studies, ask, report

LR = {"low": 1e-5, "high": 1e-1, "log": True, "step": None}
DEPTH = {"low": 1, "high": 8, "log": False, "step": None}
KIND = {"choices": ["sgd", "adam"]}
Entries = Mapping[str, Mapping[str, object]]
ALL: Entries = {"lr": LR, "depth": DEPTH, "kind": KIND}


class Asking(Studies):
    """Studies whose objective asks for its params."""

    def open(self, **settings: Any) -> Study:
        given: dict[str, Any] = {"entries": {}, "asks_for_params": True} | settings
        return super().open(**given)


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Asking]:
    with warnings.catch_warnings():  # opening a study sets filters for the whole process
        opened = Asking(tmp_path)
        yield opened
        opened.close()


def suggest(study: Study, trial: int, entries: Entries) -> dict[str, ParamValue]:
    return {
        name: study.suggest(ParamQuestion(trial, name, entry)) for name, entry in entries.items()
    }


def end(study: Study, trial: int) -> None:
    study.tell(trial, FinishedOutcome(trial, 0.0, float(trial)))


def run(study: Study, n: int, entries: Entries = ALL) -> list[AskedTrial]:
    """Run `n` trials that ask for the same params; return each as it began."""
    begun = []
    for _ in range(n):
        begun.append(asked := ask(study))
        suggest(study, asked.number, entries)
        end(study, asked.number)
    return begun


def space_of(study: Study) -> Sequence[str]:
    assert study.suggester is not None
    return study.suggester.space.names


def test_the_first_trials_begin_with_nothing_and_those_after_three_alike_with_all(
    asking: Asking,
) -> None:
    begun = run(asking.open(), 5)
    assert [sorted(trial.params) for trial in begun] == [[]] * 3 + [["depth", "kind", "lr"]] * 2


def test_what_was_suggested_stays_when_it_is_asked_again_and_after_a_kill(asking: Asking) -> None:
    study = asking.open()
    run(study, 1)
    trial = ask(study)
    given = suggest(study, trial.number, {"lr": LR, "kind": KIND})
    assert suggest(study, trial.number, {"lr": LR, "kind": KIND}) == given
    # As after kill -9: nothing was closed or told, the journal is all there is.
    study.close()
    again = asking.open()
    assert [(left.number, left.params) for left in again.interrupted()] == [(1, given)]
    assert suggest(again, 1, ALL).items() >= given.items()
    end(again, 1)
    assert again.ranking(9)[1].params.keys() == ALL.keys()


def test_a_reopened_study_knows_what_was_found(asking: Asking) -> None:
    study = asking.open()
    run(study, 3)
    again = asking.reopen(study)
    assert again.suggester is not None
    assert again.suggester.found_space.is_stable
    assert ask(again).params.keys() == ALL.keys()


def test_a_trial_that_goes_on_is_given_what_it_would_have_been(
    asking: Asking, tmp_path: Path
) -> None:
    whole = asking.open(directory=_folder(tmp_path / "whole"))
    parts = asking.open(directory=_folder(tmp_path / "parts"))
    begun = suggest(parts, ask(parts).number, {"lr": LR})
    parts.close()
    parts = asking.open(directory=tmp_path / "parts")
    assert begun | suggest(parts, 0, ALL) == suggest(whole, ask(whole).number, ALL)


def test_params_alike_are_not_drawn_alike(asking: Asking) -> None:
    study = asking.open()
    names = [f"dropout{i}" for i in range(8)]
    drawn = suggest(study, ask(study).number, {n: {"low": 0.0, "high": 1.0} for n in names})
    assert len(set(drawn.values())) == len(names)


@pytest.mark.parametrize(
    "sampler", [IndependentSampler(), TPE(n_startup_trials=2), TPE(group=True), QMC()]
)
def test_a_range_may_depend_on_values_with_any_sampler(asking: Asking, sampler: Sampler) -> None:
    study = asking.open(sampler=sampler)
    for _ in range(16):
        trial = ask(study).number
        a = suggest(study, trial, {"a": {"low": 0, "high": 9}})["a"]
        b = suggest(study, trial, {"b": {"low": 0, "high": a}})["b"]
        assert isinstance(a, int)
        assert isinstance(b, int)
        assert 0 <= b <= a <= 9
        end(study, trial)
    assert space_of(study) == ("a",)


def test_cmaes_goes_on_with_what_was_found(asking: Asking) -> None:
    begun = run(asking.open(sampler=CMAES(population_size=4)), 8)
    assert len({trial.params["lr"] for trial in begun[3:]}) == 5


def test_a_grid_is_of_what_was_written_and_the_rest_is_drawn(asking: Asking) -> None:
    study = asking.open(sampler=GridSampler(), entries={"kind": KIND})
    trials = run(study, 2)
    assert sorted(str(trial.params["kind"]) for trial in trials) == ["adam", "sgd"]
    assert study.ask() is None


def test_what_is_written_wins_and_each_difference_is_said_once(asking: Asking) -> None:
    written = {"lr": {"low": 0.5, "high": 0.6}, "kind": "sgd", "width": 3}
    study = asking.open(entries=written)
    assert study.suggester is not None
    for n in range(2):
        trial = ask(study)
        given = suggest(study, trial.number, ALL)
        study.not_suggested(ParamsNotSuggested(trial.number, ("width",)))
        assert isinstance(given["lr"], float)
        assert 0.5 <= given["lr"] <= 0.6
        assert given["kind"] == "sgd"
        assert list(study.suggester.differences()) == (
            [
                "space.lr is numbers 0.5..0.6, and counts; the objective asks for numbers "
                "log:1e-05..0.1",
                "space.kind is fixed to sgd, and counts; the objective asks for one of sgd, adam",
                "space.width is written, and there are trials that do not ask for it",
            ]
            if n == 0
            else []
        )
        end(study, trial.number)


def test_a_trial_need_not_ask_for_what_was_drawn_for_it(asking: Asking) -> None:
    study = asking.open(entries={"width": {"low": 1, "high": 4}})
    wide = {**ALL, "width": DEPTH}
    assert study.entries({"lr": 0.1, "width": 3}) == {}
    run(study, 4, wide)
    trial = ask(study)
    assert study.entries(trial.params) == wide
    assert study.entries({"lr": 0.1}) == {"lr": LR}
    suggest(study, trial.number, {"lr": {**LR, "high": 0.05}})  # it varies, after all
    end(study, trial.number)
    assert "lr" not in study.entries(ask(study).params)


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"], ids=["journal", "database"])
def test_what_was_drawn_ahead_is_brought_into_a_range_that_varies_after_all(
    asking: Asking, tmp_path: Path, storage: str | None
) -> None:
    settings = {} if storage is None else {"storage": storage.format(tmp_path)}
    study = asking.open(**settings)
    run(study, 3)
    trial = ask(study)
    drawn = trial.params["depth"]
    assert isinstance(drawn, int)
    beyond = {"depth": {"low": drawn + 1, "high": drawn + 3}}
    assert suggest(study, trial.number, beyond) == {"depth": drawn + 1}
    assert suggest(study, trial.number, beyond) == {"depth": drawn + 1}
    study.close()
    again = asking.open(**settings)
    assert suggest(again, trial.number, beyond) == {"depth": drawn + 1}
    end(again, trial.number)


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"], ids=["journal", "database"])
def test_a_range_that_grows_around_what_was_drawn_is_seen_to_vary(
    asking: Asking, tmp_path: Path, storage: str | None
) -> None:
    settings = {} if storage is None else {"storage": storage.format(tmp_path)}
    study = asking.open(**settings)
    run(study, 3)
    trial = ask(study)
    wider = {**ALL, "depth": {"low": 1, "high": 64}}
    assert suggest(study, trial.number, wider) == trial.params
    end(study, trial.number)
    assert space_of(study) == ("lr", "kind")


def test_what_trials_do_not_ask_for_is_drawn_ahead_no_more(asking: Asking) -> None:
    study = asking.open()
    run(study, 3)
    trial = ask(study)
    study.not_suggested(ParamsNotSuggested(trial.number, ("depth",)))
    end(study, trial.number)
    assert space_of(study) == ("lr", "kind")
    assert space_of(asking.reopen(study)) == ("lr", "kind")


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"], ids=["journal", "database"])
def test_what_was_drawn_ahead_and_not_asked_for_is_no_param_of_the_trial(
    asking: Asking, tmp_path: Path, storage: str | None
) -> None:
    settings = {} if storage is None else {"storage": storage.format(tmp_path)}
    seen: list[set[str]] = []

    class Looking(IndependentSampler):
        def open_for_one_param(self, search: SamplerInputs) -> Any:
            seen.extend(
                {*trial.params}
                for trial in search.open_study(optuna.samplers.RandomSampler()).trials
            )
            return super().open_for_one_param(search)

    study = asking.open(sampler=Looking(), **settings)
    run(study, 3)
    trial = ask(study)
    assert trial.params.keys() == ALL.keys()
    assert study.drawn_ahead(trial.params) == [*ALL]
    study.not_suggested(ParamsNotSuggested(trial.number, ("depth",)))
    end(study, trial.number)
    study.close()
    again = asking.open(sampler=Looking(), **settings)
    for opened in (study, again):
        assert opened.params(trial.number).keys() == {"lr", "kind"}
    suggest(again, ask(again).number, {"depth": DEPTH})
    assert seen[-2] == {"lr", "kind"}, "the sampler is told so, too"


@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"], ids=["journal", "database"])
def test_choices_of_64_bits_are_exact(asking: Asking, tmp_path: Path, storage: str | None) -> None:
    settings = {} if storage is None else {"storage": storage.format(tmp_path)}
    choices = [2**53 + 1, 2**63 - 1, -(2**63)]
    study = asking.open(**settings)
    for trial in run(study, 8, {"seed": {"choices": choices}}):
        assert study.params(trial.number)["seed"] in choices
    known = [study.params(number)["seed"] for number in range(8)]
    assert {type(value) for value in known} == {int}
    study.close()
    again = asking.open(**settings)
    assert [again.params(number)["seed"] for number in range(8)] == known


def test_another_kind_of_values_is_refused_and_the_journal_stays_whole(
    asking: Asking, tmp_path: Path
) -> None:
    study = asking.open()
    run(study, 1, {"x": LR})
    trial = ask(study).number
    with pytest.raises(ConfigError, match=r"^suggest 'x': whole numbers 1\.\.8, where trials"):
        study.suggest(ParamQuestion(trial, "x", DEPTH))
    with pytest.raises(ConfigError, match="low=2 is above high=1"):
        study.suggest(ParamQuestion(trial, "y", {"low": 2, "high": 1}))
    end(study, trial)
    study.close()
    stock = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    trials = optuna.load_study(study_name="toy", storage=stock).trials
    assert [trial.params.keys() for trial in trials] == [{"x"}, set()]


def test_enqueued_params_are_given_where_they_are_asked_for(asking: Asking) -> None:
    study = asking.open(enqueue=[{"lr": 0.01, "kind": "rmsprop"}, {"depth": 5}])
    given = suggest(study, ask(study).number, ALL)
    assert given["lr"] == 0.01
    assert given["kind"] in ("sgd", "adam")  # what is enqueued is none of its choices
    assert suggest(study, ask(study).number, ALL)["depth"] == 5
    assert study.suggester is not None
    assert study.suggester.differences() == [
        f"trial 0 was to try kind=rmsprop, and the objective asks for one of sgd, adam: "
        f"it has {given['kind']}"
    ]


def test_a_point_of_a_user_is_the_next_trial_and_the_rest_is_drawn(asking: Asking) -> None:
    study = asking.open()
    run(study, 1)
    (asked,) = study.enqueue([EnqueuedPoint({"kind": "adam", "scale": 1}, "first")])
    with pytest.raises(ConfigError, match=r"params\.lr=1: must be numbers log:1e-05\.\.0\.1"):
        study.enqueue([EnqueuedPoint({"lr": 1}, "second")])
    given = suggest(study, asked.number, {**ALL, "scale": {"low": 0.5, "high": 2.0}})
    assert (asked.number, given["kind"], given["scale"]) == (1, "adam", 1.0)
    assert isinstance(given["scale"], float)
    assert given["depth"] in range(1, 9)
    assert [*study.params(asked.number)] == [*ALL, "scale"], "in the order in which it asked"


@pytest.mark.parametrize("n_before", [1, 4], ids=["unknown", "known"])
@pytest.mark.parametrize("storage", [None, "sqlite:///{}/study.db"], ids=["journal", "database"])
def test_a_point_is_tried_whole_after_a_kill_too(
    asking: Asking, tmp_path: Path, storage: str | None, n_before: int
) -> None:
    settings = {} if storage is None else {"storage": storage.format(tmp_path)}
    study = asking.open(**settings)
    run(study, n_before)
    (asked,) = study.enqueue([EnqueuedPoint({"depth": 7, "kind": "adam", "warmup": 3}, "first")])
    assert suggest(study, asked.number, {"kind": KIND}) == {"kind": "adam"}
    study.close()
    again = asking.open(**settings)
    warmup = {"warmup": {"low": 0, "high": 5}}
    given = suggest(again, asked.number, {**ALL, **warmup})
    assert (given["depth"], given["kind"], given["warmup"]) == (7, "adam", 3)
    end(again, asked.number)


def test_a_param_of_a_point_that_the_objective_never_asks_for_is_told(asking: Asking) -> None:
    study = asking.open()
    run(study, 4)
    (asked,) = study.enqueue([EnqueuedPoint({"learning_rate": 0.1}, "first")])
    suggest(study, asked.number, ALL)
    study.not_suggested(ParamsNotSuggested(asked.number, ("learning_rate",)))
    end(study, asked.number)
    assert study.suggester is not None
    assert list(study.suggester.differences()) == [
        f"trial {asked.number} was to try learning_rate=0.1, and does not ask for it"
    ]
    assert study.params(asked.number).keys() == ALL.keys()
    assert asking.reopen(study).params(asked.number).keys() == ALL.keys()


def test_points_of_users_leave_those_of_the_config_in_their_order(asking: Asking) -> None:
    study = asking.open(enqueue=[{"depth": 2}, {"depth": 3}])
    suggest(study, ask(study).number, ALL)
    (asked,) = study.enqueue([EnqueuedPoint({"lr": 0.01}, "first")])
    assert suggest(study, asked.number, ALL)["lr"] == 0.01
    assert suggest(study, ask(study).number, ALL)["depth"] == 3


def test_a_point_outside_a_range_goes_to_its_nearest_end(asking: Asking) -> None:
    study = asking.open(enqueue=[{"depth": 99}] * 5)
    begun = run(study, 5)
    assert [study.params(trial.number)["depth"] for trial in begun] == [8] * 5
    assert study.suggester is not None
    lines = study.suggester.differences()
    assert lines[0].endswith("depth=99, and the objective asks for whole numbers 1..8: it has 8")
    assert lines[4].endswith("1..8: it has 8"), "where the range is known before, too"


def test_no_value_outside_is_forced_upon_an_objective(asking: Asking) -> None:
    study = asking.open()
    with pytest.raises(ConfigError, match=r"^outside=true: the objective gives each range itself"):
        study.enqueue([EnqueuedPoint({"lr": 3.0}, "first", may_be_outside=True)])


def test_the_best_of_an_earlier_study_is_tried_first_and_teaches_the_sampler(
    asking: Asking,
) -> None:
    ranked: list[tuple[Params, float | None]] = [
        ({"lr": 0.01, "depth": 3, "kind": "adam", "gone": 1}, 0.1),
        ({"lr": 0.011, "depth": 3, "kind": "adam", "gone": 1}, 0.2),
        ({"lr": 1e-5, "depth": 8, "kind": "sgd", "gone": 2}, 0.9),
    ]
    earlier = collect_earlier([ranked], parse_space({}), 0, asks_for_params=True)
    assert [point["lr"] for point in earlier.points] == [0.01, 1e-5], "no two near each other"
    study = asking.open(sampler=TPE(), earlier=earlier)
    first = suggest(study, ask(study).number, ALL)
    assert (first["lr"], first["depth"], first["kind"]) == (0.01, 3, "adam")
    end(study, 0)
    run(study, 2)
    seen = study._open_for_sampler(optuna.samplers.RandomSampler()).trials
    assert [trial.number for trial in seen] == [0, 1, 2], "the space is not known yet"
    ask(study)
    seen = study._open_for_sampler(optuna.samplers.RandomSampler()).trials
    assert [trial.params.get("lr") for trial in seen if trial.number < 0] == [1e-5, 0.011, 0.01]


def test_what_is_enqueued_must_fit_the_space_where_that_is_written(asking: Asking) -> None:
    with pytest.raises(ConfigError, match=r"study\.enqueue\[0\]\.kind=c: must be one of a, b"):
        asking.open(entries={"kind": {"choices": ["a", "b"]}}, enqueue=[{"lr": 1, "kind": "c"}])


@pytest.mark.parametrize(("reports", "known"), [([], ()), ([0], ("lr",))])
def test_a_pruned_trial_tells_of_the_space_what_it_reported(
    asking: Asking, reports: Sequence[int], known: Sequence[str]
) -> None:
    study = asking.open()
    for _ in range(3):
        trial = ask(study).number
        suggest(study, trial, {"lr": LR})
        for step in reports:
            report(study, trial, step, 1.0)
        study.tell(trial, PrunedOutcome(trial, 0.0, 0, math.nan))
    assert space_of(study) == known


def _folder(path: Path) -> Path:
    path.mkdir()
    return path
