"""What an edit changes, what is refused, and what is taken back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from automl.config import (
    Config,
    DataConfig,
    ExecutionConfig,
    ExecutionKind,
    ObjectiveConfig,
    ObjectiveKind,
    RefitArguments,
    RefitOrigin,
    StudyConfig,
)
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.record.study_record import edit_lines
from automl.record.study_requests import StudyRequest
from automl.running.prepare.edited_study import (
    SettingsChange,
    edit_study,
    editable_settings,
    refuse_uneditable_study,
)
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.samplers.grid import GridSampler
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.tpe import TPE

SPACE: dict[str, Any] = {
    "lr": {"low": 0.1, "high": 0.5},
    "opt": {"choices": ["sgd", "adam"]},
}


def trains(lr: float, opt: str = "sgd", wd: float = 0.0) -> float:
    return lr + wd + len(opt)


def config(**fields: Any) -> Config:
    target = f"{__name__}:trains"
    settings: dict[str, Any] = {
        "study": StudyConfig(name="a", n_trials=9),
        "space": SPACE,
        "objective": ObjectiveConfig(kind=ObjectiveKind.python, target=target),
        "execution": ExecutionConfig(kind=ExecutionKind.inline),
        "model": MLPFamily(),
        "sampler": TPE(),
        "pruner": SuccessiveHalving(),
    }
    return Config(**settings | fields)


def with_space(**entries: Any) -> Config:
    space = {name: entry for name, entry in {**SPACE, **entries}.items() if entry is not None}
    return config(space=space)


def ask_for(after: Config, before: Config | None = None, request_id: str = "1") -> StudyRequest:
    change = SettingsChange.between(before or config(), after)
    return StudyRequest("edit", vars(change), "ada", 1.0, request_id)


def undo(request_id: str) -> StudyRequest:
    return StudyRequest("edit", {"undo": True}, "ada", 1.0, request_id)


@pytest.fixture(scope="module")
def prepared() -> PreparedStudy:
    return prepare_study(config())


CHANGES: dict[str, tuple[Config, list[str]]] = {
    "range": (
        with_space(lr={"low": 0.1, "high": 0.9}),
        ["space.lr.high: 0.5 → 0.9"],
    ),
    "choices": (
        with_space(opt={"choices": ["adam", "lion"]}),
        ["space.opt.choices: [sgd, adam] → [adam, lion]"],
    ),
    "fixed": (with_space(lr=0.2), ["space.lr: 0.1..0.5 → 0.2"]),
    "added": (
        with_space(wd={"low": 0.0, "high": 1.0, "default": 0.5}),
        ["space.wd: added, 0.0..1.0, earlier trials had 0.5"],
    ),
    "taken out": (with_space(opt=None), ["space.opt: taken out, was sgd,adam"]),
    "totals": (
        config(study=StudyConfig(name="a", n_trials=200, timeout_seconds=60.0)),
        ["study.n_trials: 9 → 200", "study.timeout_seconds: null → 60.0"],
    ),
    "value": (
        config(study=StudyConfig(name="a", n_trials=9, stop_value=0.1)),
        ["study.stop_value: null → 0.1"],
    ),
    "pruner": (
        config(pruner=MedianPruner()),
        [
            "pruner: {name: halving, min_steps: 2, max_steps: null, factor: 3, min_trials: 4} → "
            "{name: median, n_startup_trials: 5, n_warmup_steps: 2, interval_steps: 1}"
        ],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_an_edit_says_what_it_changes_and_is_taken_back_whole(
    prepared: PreparedStudy, name: str
) -> None:
    after, lines = CHANGES[name]
    edited, event = edit_study(prepared, (), ask_for(after), n_trials=5)
    assert edit_lines(event) == lines
    assert (event.id, event.user, event.n_trials) == ("1", "ada", 5)
    assert bool(event.space) == name.startswith(("range", "choices", "fixed", "added", "taken"))
    taken_back, undone = edit_study(edited, edited.edits, undo("2"), n_trials=7)
    assert undone.undoes == "1"
    assert editable_settings(taken_back.config) == editable_settings(prepared.config)
    assert taken_back.space == prepared.space
    with pytest.raises(ConfigError, match="there is no edit to take back"):
        edit_study(taken_back, taken_back.edits, undo("3"), n_trials=7)


def test_a_study_whose_objective_asks_for_its_params_gets_another_total() -> None:
    optunas = ObjectiveConfig(kind=ObjectiveKind.optuna, target=f"{__name__}:trains")
    points = [{"lr": 0.1}, {"lr": 0.2}]
    study = StudyConfig(name="a", n_trials=9, enqueue=points)
    before = config(objective=optunas, space={}, study=study)
    after = replace(before, study=replace(study, n_trials=12))
    edited, event = edit_study(prepare_study(before), (), ask_for(after, before), n_trials=1)
    assert edit_lines(event) == ["study.n_trials: 9 → 12"]
    assert edited.edited_total == 12


def test_two_undos_take_the_last_two_edits_back(prepared: PreparedStudy) -> None:
    edited, _ = edit_study(prepared, (), ask_for(CHANGES["range"][0]), 0)
    edited, _ = edit_study(edited, edited.edits, ask_for(CHANGES["totals"][0], request_id="2"), 0)
    for number, undone in (("3", "2"), ("4", "1")):
        edited, event = edit_study(edited, edited.edits, undo(number), 0)
        assert event.undoes == undone
    assert editable_settings(edited.config) == editable_settings(prepared.config)


def test_edits_of_different_settings_at_once_are_both_made(prepared: PreparedStudy) -> None:
    edited, _ = edit_study(prepared, (), ask_for(CHANGES["range"][0]), 0)
    other = ask_for(CHANGES["choices"][0], request_id="2")  # composed before the first was made
    edited, _ = edit_study(edited, edited.edits, other, 0)
    assert edited.config.space == {
        "lr": {"low": 0.1, "high": 0.9},
        "opt": {"choices": ["adam", "lion"]},
    }


def test_of_two_edits_of_one_setting_at_once_the_second_is_refused(
    prepared: PreparedStudy,
) -> None:
    edited, _ = edit_study(prepared, (), ask_for(CHANGES["range"][0]), 0)
    with pytest.raises(ConfigError, match=r"space\.lr is 0\.1\.\.0\.9 now: another edit .* status"):
        edit_study(edited, edited.edits, ask_for(with_space(lr=0.3), request_id="2"), 0)


REFUSED: dict[str, tuple[Config, str]] = {
    "empty": (config(space={}), "the space would be empty"),
    "reversed": (with_space(lr={"low": 0.9, "high": 0.1}), r"low=0\.9 is above high=0\.1"),
    "no choice": (with_space(opt={"choices": []}), "no choices"),
    "unknown param": (with_space(nope=1), r"space\.nope: unknown here; the objective takes"),
    "required param": (with_space(lr=None), "lr not there, which the objective requires"),
    "no default": (with_space(wd={"low": 0.0, "high": 1.0}), r"say which value .* space\.wd\.def"),
    "wrong default": (
        with_space(wd={"low": 0.0, "high": 1.0, "default": 2}),
        r"space\.wd\.default=2: must be numbers 0\.0\.\.1\.0",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_edit_that_no_sweep_could_go_on_with_is_refused(
    prepared: PreparedStudy, name: str
) -> None:
    after, message = REFUSED[name]
    with pytest.raises(ConfigError, match=message):
        edit_study(prepared, (), ask_for(after), n_trials=5)


def test_no_default_is_asked_for_where_earlier_trials_have_a_value(
    prepared: PreparedStudy,
) -> None:
    wd = {"low": 0.0, "high": 1.0}
    edit_study(prepared, (), ask_for(with_space(wd=wd)), n_trials=0)
    out, _ = edit_study(prepared, (), ask_for(CHANGES["taken out"][0]), n_trials=5)
    again = ask_for(config(), before=CHANGES["taken out"][0], request_id="2")
    edited, event = edit_study(out, out.edits, again, n_trials=8)
    assert edited.space.names == ("lr", "opt")
    assert event.defaults == {}


def test_an_enqueued_point_that_is_still_to_come_stays_in_the_space() -> None:
    points = [{"lr": 0.45}, {"lr": 0.4}]
    study = StudyConfig(name="a", n_trials=9, enqueue=points)
    before = config(study=study)
    after = replace(with_space(lr={"low": 0.1, "high": 0.42}), study=study)
    edit_study(prepare_study(before), (), ask_for(after, before), n_trials=1)
    with pytest.raises(ConfigError, match=r"study\.enqueue\[0\]\.lr=0\.45"):
        edit_study(prepare_study(before), (), ask_for(after, before), n_trials=0)


def test_choices_in_optunas_own_tables_stay() -> None:
    study = StudyConfig(name="a", n_trials=9, storage="sqlite:///a.db")
    before = config(study=study)
    after = replace(CHANGES["choices"][0], study=study)
    with pytest.raises(ConfigError, match=r"space\.opt: Optuna's own tables"):
        edit_study(prepare_study(before), (), ask_for(after, before), n_trials=0)


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (config(data=DataConfig(n_train=7)), r"sweep from=a name=… data\.n_train=…"),
        (
            config(study=StudyConfig(name="a", n_trials=9, metric="accuracy")),
            r"study\.metric=accuracy: it says what the values of trials mean",
        ),
        (
            config(execution=ExecutionConfig(kind=ExecutionKind.workers)),
            r"resume a execution\.kind=…",
        ),
    ],
)
def test_what_no_edit_changes_is_refused_with_the_remedy(after: Config, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SettingsChange.between(config(), after)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"refit": RefitOrigin("b", None, RefitArguments())}, "a refit is no search"),
        (
            {"objective": ObjectiveConfig(kind=ObjectiveKind.called, target="x:y")},
            "called from Python",
        ),
    ],
)
def test_studies_that_cannot_be_edited(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        refuse_uneditable_study(config(**settings))


def test_another_sampler_keeps_its_settings(prepared: PreparedStudy) -> None:
    edited, _ = edit_study(prepared, (), ask_for(config(sampler=IndependentSampler())), 3)
    assert edited.sampler == IndependentSampler()
    edited, _ = edit_study(
        prepared, (), ask_for(config(sampler=TPE(n_startup_trials=3, group=True))), 3
    )
    assert edited.sampler == TPE(n_startup_trials=3, group=True)


def test_a_space_that_the_sampler_cannot_take_is_refused(prepared: PreparedStudy) -> None:
    with pytest.raises(ConfigError, match=r"space\.lr=0\.1\.\.0\.5: sampler=grid needs a step"):
        edit_study(prepared, (), ask_for(config(sampler=GridSampler())), 3)
