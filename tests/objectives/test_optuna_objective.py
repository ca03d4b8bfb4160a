"""Objectives written for Optuna, in a session, with Optuna's own functions."""

from __future__ import annotations

import copy
import functools
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

from automl.config import ObjectiveConfig, ObjectiveKind
from automl.errors import ConfigError
from automl.in_trial.trial_context import TrialPruned, UnfitObjectiveError
from automl.objectives.optuna_objective.optuna_trial import OptunaObjective
from automl.objectives.optuna_objective.suggestion_entries import (
    CategoricalChoices,
    declaration_of_optuna_objective,
    float_entry,
    int_entry,
)
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import TrainingSession, open_session
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    ParamAnswer,
    ParamQuestion,
    ParamRefusal,
    ParamsNotSuggested,
    ParamsSuggested,
    ParamValue,
    PrunedOutcome,
    Question,
    Reply,
    SpaceEntry,
    SweepStopping,
    TrialSpec,
    TrialTagged,
    Verdict,
)
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.objectives.objectives import ONE_HALF

HERE = __name__


@dataclass
class Sweep:
    """Answers what the trial asks, and keeps what it asked."""

    values: Mapping[str, ParamValue] = field(default_factory=dict)
    reply: Reply | None = None
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """When the trial asks, by the number of times that it has."""
    asked: list[Question] = field(default_factory=list)
    n_verdicts: int = 0

    def ask(self, question: Question) -> Reply:
        self.asked.append(question)
        if not isinstance(question, ParamQuestion):
            return ParamAnswer()
        return self.reply or ParamAnswer(self.values[question.name])

    def verdict(self, trial: int) -> Verdict:
        self.n_verdicts += 1
        return self.verdicts.get(self.n_verdicts, Verdict.GO_ON)


def run(
    function: Callable[[optuna.Trial], object],
    folder: Path,
    sweep: Sweep,
    spec: TrialSpec | None = None,
    verdicts: dict[int, Verdict] | None = None,
    direction: Direction = Direction.minimize,
    **more: Any,
) -> Listener:
    """`more`: fields of the plan."""
    target = ObjectiveConfig(ObjectiveKind.optuna, f"{HERE}:{function.__name__}")
    plan = make_plan(objective=target, metric="loss", direction=direction)
    listener = Listener(verdicts or {})
    session = open_session(SessionSetup(replace(plan, **more)))
    session.run(spec or make_spec(folder, number=7), HOST, listener, sweep)
    return listener


# --- params ---------------------------------------------------------------------------------------


def suggests(trial: optuna.Trial) -> float:
    lr = trial.suggest_float("lr", 1e-5, 1, log=True)
    n = trial.suggest_int("n", 1, 9, step=2)
    kind = trial.suggest_categorical("kind", ["sgd", "adam"])
    assert trial.suggest_float("lr", 0, 5) == lr  # as in Optuna: the first call counts
    assert trial.params == {"lr": lr, "n": n, "kind": kind}
    assert (trial.number, type(lr), type(n)) == (7, float, int)
    return lr * n


ENTRIES: dict[str, dict[str, object]] = {
    "lr": {"low": 1e-5, "high": 1.0, "log": True, "step": None},
    "n": {"low": 1, "high": 9, "log": False, "step": 2},
    "kind": {"choices": ["sgd", "adam"]},
}
VALUES: dict[str, ParamValue] = {"lr": 0.5, "n": 3, "kind": "adam"}


def test_what_is_not_known_is_asked_for_and_once(tmp_path: Path) -> None:
    sweep = Sweep(VALUES)
    ended = run(suggests, tmp_path, sweep).outcome
    assert isinstance(ended, FinishedOutcome)
    assert ended.value == 1.5
    assert sweep.asked == [ParamQuestion(7, name, entry) for name, entry in ENTRIES.items()]


def test_what_was_drawn_for_it_is_no_question_and_what_it_left_is_told(tmp_path: Path) -> None:
    known: dict[str, SpaceEntry] = {
        "lr": ENTRIES["lr"],
        "n": {**ENTRIES["n"], "high": 99},
        "width": {"choices": [1]},
    }
    spec = TrialSpec(7, {"lr": 0.25, "n": 4, "width": 1}, str(tmp_path), 0, known)
    sweep = Sweep(VALUES)
    ended = run(suggests, tmp_path, sweep, spec).outcome
    assert isinstance(ended, FinishedOutcome)
    assert ended.value == 0.75  # its own lr, and an n of the range that it asked for
    names = [ParamQuestion(7, name, ENTRIES[name]) for name in ("n", "kind")]
    assert sweep.asked == [*names, ParamsNotSuggested(7, ("width",))]


def test_of_what_was_drawn_ahead_the_trial_records_what_it_asked_for(tmp_path: Path) -> None:
    params: dict[str, ParamValue] = {**VALUES, "width": 1}
    spec = TrialSpec(7, params, str(tmp_path), 0, ENTRIES, drawn_ahead=("n", "kind", "width"))
    listener = run(suggests, tmp_path, Sweep(VALUES), spec)
    told = [dict(event.params) for event in listener.events if isinstance(event, ParamsSuggested)]
    assert told == [{"n": 3}, {"kind": "adam"}]


def test_a_trial_that_nobody_answers_has_what_was_written(tmp_path: Path) -> None:
    target = ObjectiveConfig(ObjectiveKind.optuna, f"{HERE}:suggests")
    session = open_session(SessionSetup(make_plan(objective=target)))
    for params, n_events in ((VALUES, 1), ({"lr": 0.5}, 1)):
        listener = Listener()
        session.run(make_spec(tmp_path, params, number=7), HOST, listener)
        assert len(listener.events) == n_events
    assert isinstance(listener.outcome, FailedOutcome)
    assert listener.outcome.cause == (
        "ValueError: suggest 'n': nobody draws params here; write it: space.n=…"
    )


@pytest.mark.parametrize(
    ("reply", "outcome", "cause"),
    [
        (
            ParamRefusal("suggest 'lr': low=2 is above high=1"),
            FailedOutcome,
            "ValueError: suggest 'lr': low",
        ),
        (SweepStopping(), InterruptedOutcome, "the sweep stops"),
    ],
)
def test_what_is_refused_fails_the_trial_and_a_sweep_that_stops_interrupts_it(
    tmp_path: Path, reply: Reply, outcome: type[FailedOutcome | InterruptedOutcome], cause: str
) -> None:
    ended = run(suggests, tmp_path, Sweep(reply=reply)).outcome
    assert isinstance(ended, outcome)
    assert ended.cause.startswith(cause)


def deprecated(trial: optuna.Trial) -> float:
    a = trial.suggest_uniform("a", 0, 1)
    b = trial.suggest_loguniform("b", 0.5, 1)
    return a + b + trial.suggest_discrete_uniform("c", 0, 1, 0.25)


def test_the_old_names_of_ranges_are_understood(tmp_path: Path) -> None:
    sweep = Sweep({"a": 0.5, "b": 1.0, "c": 0.25})
    assert isinstance(run(deprecated, tmp_path, sweep).outcome, FinishedOutcome)
    entries = [question.entry for question in sweep.asked if isinstance(question, ParamQuestion)]
    assert entries == [
        {"low": 0.0, "high": 1.0, "log": False, "step": None},
        {"low": 0.5, "high": 1.0, "log": True, "step": None},
        {"low": 0.0, "high": 1.0, "log": False, "step": 0.25},
    ]


@pytest.mark.parametrize("choices", [(1, 2.5, "a", None, True), [(64,), (64, 64)], [torch.nn.ReLU]])
def test_a_choice_may_be_any_object_and_comes_back_as_it_was(choices: Any) -> None:
    categories = CategoricalChoices.from_choices("x", choices)
    assert all(isinstance(n, int | float | str | None) for n in categories.labels)
    for label, choice in zip(categories.labels, choices, strict=True):
        assert categories.choice(label) is choice


def test_an_object_is_called_the_same_in_each_process() -> None:
    first, second = (
        CategoricalChoices.from_choices("x", [functools.partial(int, base=2)]) for _ in range(2)
    )
    assert first.labels == second.labels
    assert CategoricalChoices.from_choices("x", [object()]).labels == ("<object object>",)


def test_choices_that_look_alike_are_refused() -> None:
    class Same:
        def __repr__(self) -> str:
            return "same"

    with pytest.raises(ValueError, match="two choices are both called 'same'"):
        CategoricalChoices.from_choices("x", [Same(), Same()])


@pytest.mark.parametrize(("low", "high"), [(2**60, 2**63 - 1), (-(2**53) - 1, 0)])
def test_a_range_that_a_study_cannot_store_exactly_ends_the_sweep_at_once(
    low: int, high: int
) -> None:
    with pytest.raises(UnfitObjectiveError, match=r"go up to 2\*\*53\. Suggest a smaller one"):
        int_entry(low, high, step=1, log=False)


def test_entries_of_numpys_numbers_are_plain() -> None:
    low: Any = torch.tensor(1).numpy()
    high: Any = torch.tensor(4.0).numpy()
    assert {type(v) for v in int_entry(low, high, step=1, log=False).values()} == {
        *(int, bool, type(None))
    }
    assert {type(v) for v in float_entry(low, high, step=None, log=True).values()} == {
        *(float, bool, type(None))
    }


# --- reports and pruning --------------------------------------------------------------------------


def reports(trial: optuna.Trial) -> float:
    for step in range(1, 5):
        trial.report(1 / step, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return 5.0


def test_the_value_is_what_the_objective_returns(tmp_path: Path) -> None:
    listener = run(reports, tmp_path, Sweep())
    assert listener.reports == [(step, {"loss": 1 / step}) for step in range(1, 5)]
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == 5.0


def test_a_verdict_that_came_with_the_report_prunes(tmp_path: Path) -> None:
    sweep = Sweep()
    ended = run(reports, tmp_path, sweep, verdicts={2: Verdict.PRUNE}).outcome
    assert isinstance(ended, PrunedOutcome)
    assert (ended.step, ended.value) == (2, 0.5)
    assert sweep.n_verdicts == 1  # not asked for at the second: it was known


def test_a_verdict_that_is_asked_for_prunes_at_the_report_just_made(tmp_path: Path) -> None:
    ended = run(reports, tmp_path, Sweep(verdicts={3: Verdict.PRUNE})).outcome
    assert isinstance(ended, PrunedOutcome)
    assert ended.step == 3


@pytest.mark.parametrize("asks", [True, False])
def test_a_sweep_that_stops_interrupts_the_trial(tmp_path: Path, asks: bool) -> None:
    sweep = Sweep(verdicts={1: Verdict.STOP} if asks else {})
    listener = run(reports, tmp_path, sweep, verdicts={} if asks else {2: Verdict.STOP})
    assert isinstance(listener.outcome, InterruptedOutcome)
    assert len(listener.reports) == (1 if asks else 2)


def never_asks(trial: optuna.Trial) -> float:
    for step in range(4):
        trial.report(float(step), step)
    return 5.0


def test_an_objective_that_does_not_ask_is_not_pruned(tmp_path: Path) -> None:
    listener = run(never_asks, tmp_path, Sweep(), verdicts={1: Verdict.PRUNE, 2: Verdict.PRUNE})
    assert len(listener.reports) == 4
    assert isinstance(listener.outcome, FinishedOutcome)


def prunes_itself(trial: optuna.Trial) -> float:
    raise optuna.TrialPruned("bad from the start")


def test_a_trial_may_be_pruned_before_it_reports(tmp_path: Path) -> None:
    ended = run(prunes_itself, tmp_path, Sweep()).outcome
    assert isinstance(ended, PrunedOutcome)
    assert math.isnan(ended.value)


def repeats(trial: optuna.Trial) -> float:
    trial.report(1.0, 3)
    with pytest.warns(UserWarning, match="step 3 was reported before"):
        trial.report(2.0, 3)
    with pytest.raises(TypeError, match=r"report\(value='a'\)"):
        trial.report("a", 4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"report\(step='b'\)"):
        trial.report(1.0, "b")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"report\(step=-1\)"):
        trial.report(1.0, -1)
    return 0.0


def test_of_a_step_the_first_report_counts_and_bad_ones_are_named(tmp_path: Path) -> None:
    listener = run(repeats, tmp_path, Sweep())
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert listener.reports == [(3, {"loss": 1.0})]


# --- what else there is, and is not ---------------------------------------------------------------


def looks_around(trial: optuna.Trial) -> float:
    assert isinstance(trial, optuna.trial.BaseTrial)  # Optuna's TorchDistributedTrial asks for that
    assert isinstance(trial, optuna.trial.Trial)
    assert trial.study.direction == optuna.study.StudyDirection.MAXIMIZE  # its LightGBM callback
    assert trial.study.directions == [trial.study.direction]
    assert trial.datetime_start is not None
    trial.set_user_attr("note", {"a": 1})
    trial.set_user_attr("long", "x" * 10_000)
    assert trial.user_attrs["note"] == {"a": 1}
    with pytest.warns(UserWarning, match="automl"):
        trial.set_user_attr("automl.state", "mine")
    return 1.0


def test_it_is_optunas_trial_to_those_who_look(tmp_path: Path) -> None:
    listener = run(looks_around, tmp_path, Sweep(), direction=Direction.maximize)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    tags = {e.name: e.text for e in listener.events if isinstance(e, TrialTagged)}
    assert tags.keys() == {"note", "long"}
    assert tags["note"] == "{'a': 1}"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("study.best_value", "decide by its own reports"),
        ("study._storage", 'automl.integrations.lightning.Report(trial, "val_loss")'),
        ("study.stop", "study.n_trials, study.timeout_seconds and study.stop_value"),
        ("storage", "in place of Optuna's callback"),
        ("set_constraint", "study.constraints={seconds: 5}"),
        ("whatever", "has suggest_…, report, should_prune"),
    ],
)
def test_what_cannot_be_had_is_named_with_a_remedy(tmp_path: Path, name: str, remedy: str) -> None:
    def look(trial: optuna.Trial) -> float:
        functools.reduce(getattr, name.split("."), trial)
        return 1.0

    globals()["look"] = look
    ended = run(look, tmp_path, Sweep()).outcome
    assert isinstance(ended, FailedOutcome)
    assert ended.cause.startswith(f"NotInATrialError: trial.{name}: ")
    assert remedy in ended.cause


def is_pruned_by_a_callback_of_ours(trial: optuna.Trial) -> None:
    suggests(trial)
    raise TrialPruned


def test_what_a_callback_of_ours_prunes_has_asked(tmp_path: Path) -> None:
    sweep = Sweep(VALUES)
    spec = make_spec(tmp_path, {"other": 1}, number=7)
    run(is_pruned_by_a_callback_of_ours, tmp_path, sweep, spec)
    assert ParamsNotSuggested(7, ("other",)) in sweep.asked


def copies(trial: optuna.Trial) -> object:
    return copy.deepcopy(trial)


def test_it_cannot_be_taken_elsewhere(tmp_path: Path) -> None:
    ended = run(copies, tmp_path, Sweep()).outcome
    assert isinstance(ended, FailedOutcome)
    assert ended.cause.startswith("NotInATrialError: pickling trial: ")
    assert 'automl.integrations.lightning.Report(trial, "val_loss")' in ended.cause


def returns_one(trial: optuna.Trial) -> object:
    return [0.5]


def returns_two(trial: optuna.Trial) -> object:
    return 0.5, 1.0


def returns_two_and_notes_a_third(trial: optuna.Trial) -> object:
    trial.report(0.4, 0)
    trial.set_user_attr("seconds", 3.5)
    trial.set_user_attr("directions", [each.name for each in trial.study.directions])
    return 0.5, True


def test_several_values_are_those_of_the_metrics_and_a_user_attribute_is_limited(
    tmp_path: Path,
) -> None:
    """The second value is a truth value, which Optuna takes for a number."""
    listener = run(
        returns_two_and_notes_a_third,
        tmp_path,
        Sweep(),
        more_metrics=("score", "seconds"),
        more_directions=(Direction.maximize,),
    )
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert listener.outcome.values == {"loss": 0.5, "score": 1.0, "seconds": 3.5}
    tags = {e.name: e.text for e in listener.events if isinstance(e, TrialTagged)}
    assert tags == {"seconds": "3.5", "directions": "['MINIMIZE', 'MAXIMIZE']"}


def notes_a_text(trial: optuna.Trial) -> object:
    trial.set_user_attr("seconds", "long")
    return 0.5


def test_a_user_attribute_that_is_limited_is_a_number(tmp_path: Path) -> None:
    ended = run(notes_a_text, tmp_path, Sweep(), more_metrics=("seconds",)).outcome
    assert isinstance(ended, FailedOutcome)
    assert "set_user_attr('seconds', 'long'): a str is no number; give a float." in ended.cause


def test_a_value_too_many_is_refused_and_no_other_trial_is_tried(tmp_path: Path) -> None:
    one, two = (run(f, tmp_path, Sweep()).outcome for f in (returns_one, returns_two))
    assert isinstance(one, FinishedOutcome)
    assert isinstance(two, FailedOutcome)
    assert two.hopeless
    assert "the objective returned 2 values, and study.metric names 1: name each" in two.cause


@pytest.mark.parametrize("value", [*ONE_HALF, "0.5", ["0.5"]], ids=repr)
def test_a_number_of_any_library_and_a_text_that_is_one_are_values(
    tmp_path: Path, value: Any
) -> None:
    def objective(trial: optuna.Trial) -> Any:
        trial.report(value[0] if isinstance(value, list) else value, 0)
        return value

    target = ObjectiveConfig(ObjectiveKind.optuna, f"{HERE}:reports")
    session = TrainingSession(make_plan(objective=target), OptunaObjective(objective))
    listener = Listener()
    session.run(make_spec(tmp_path), HOST, listener, Sweep())
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert listener.outcome.value == 0.5
    assert listener.reports == [(0, {"val_loss": 0.5})]


def test_it_is_called_with_a_trial_alone() -> None:
    declared = declaration_of_optuna_objective(reports, "objective.target=a:b")
    assert (declared.params, declared.required) == (None, ())
    with pytest.raises(ConfigError, match=r"a:b: missing a required argument: 'data'.*partial"):
        declaration_of_optuna_objective(lambda trial, data: 0, "objective.target=a:b")


@pytest.fixture(autouse=True)
def _warnings_are_the_objectives() -> None:
    warnings.simplefilter("default")
