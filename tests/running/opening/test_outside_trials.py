"""Trials that somebody outside asks for and tells the results of, where no sweep works."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automl.commands.steering import ask_outside, tell_outside
from automl.config import (
    Config,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
)
from automl.config.command_arguments import AskArguments, TellArguments, ToldState
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.record.studies import read_study
from automl.record.study_requests import RequestAnswer, StudyRequest
from automl.running.opening.outside_study import UnsweptStudy, open_without_sweep
from automl.running.opening.outside_trials import ASK, ASK_SECONDS, OutsideResult
from automl.search.pruners import pruners
from automl.search.pruners.asha import PromotingHalving
from automl.search.pruners.median import MedianPruner
from automl.search.samplers import samplers
from automl.terminal.view import load_view
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    PrunedOutcome,
    TrialStarted,
    TrialState,
)

STORED = "# as composed"


@pytest.fixture
def lab(tmp_path: Path) -> Config:
    """A study of experiments that run elsewhere, which begins with the first `ask`."""
    return Config(
        study=StudyConfig(
            name="lab", dir=str(tmp_path), metric="loss", direction=Direction.minimize
        ),
        objective=ObjectiveConfig(kind=ObjectiveKind.outside),
        model=MLPFamily(),
        sampler=samplers()["tpe"](),
        pruner=pruners()["none"](),
        space={"x": {"low": 0.0, "high": 1.0}},
    )


def record(lab: Config) -> Any:
    return read_study(Path(lab.study.dir) / "lab")


def ask(lab: Config, n: int = 1, lease_seconds: float | None = 60.0) -> list[int]:
    answer = ask_outside(lab, AskArguments(n=n, lease=lease_seconds), STORED)
    return [trial["trial"] for trial in answer.values["trials"]]


def tell(lab: Config, trial: int, value: float | None = None, **more: Any) -> RequestAnswer:
    return tell_outside(lab, TellArguments(trial=trial, value=value, **more), STORED)


def opened(lab: Config) -> Any:
    return open_without_sweep(lab, STORED)


def test_an_asked_trial_is_a_trial_of_the_record(lab: Config) -> None:
    assert ask(lab, 2) == [0, 1]
    assert tell(lab, 1, 0.25).values == {
        **{"trial": 1, "state": "finished", "value": 0.25},
        "prune": False,
    }
    trials = record(lab).trials
    assert [trial.state for trial in trials.values()] == [TrialState.RUNNING, TrialState.FINISHED]
    assert record(lab).best().number == 1
    assert (trials[0].device, trials[0].kind) == ("outside", None)
    assert trials[0].lease_until == pytest.approx(time.time() + 60, abs=30)
    view = load_view(Path(lab.study.dir) / "lab" / "status.json")
    assert (view.ended, view.counts["running"], view.counts["finished"]) == ("open", 1, 1)
    assert [(row.number, row.device) for row in view.running] == [(0, "outside")]
    assert record(lab).device_seconds == 0


def test_the_sampler_learns_from_what_is_told_and_knows_what_is_out(lab: Config) -> None:
    for number in ask(lab, 12):
        tell(lab, number, abs(record(lab).trials[number].params["x"] - 0.9))
    later = [record(lab).trials[number].params["x"] for number in ask(lab, 12)]
    assert len(set(later)) == 12
    assert sum(x > 0.6 for x in later) > 8


def test_a_trial_whose_lease_has_ended_is_given_again(lab: Config) -> None:
    assert ask(lab, lease_seconds=1e-9) == [0]
    assert ask(lab) == [0], "it comes before new trials"
    events = [type(trial.outcome) for trial in record(lab).trials.values()]
    assert events == [type(None)]
    assert (record(lab).trials[0].n_starts, len(record(lab).trials)) == (2, 1)
    assert ask(lab) == [1]


def test_a_result_that_comes_after_the_lease_counts_once(lab: Config) -> None:
    ask(lab, lease_seconds=1e-9)
    assert tell(lab, 0, 0.5).values["state"] == "finished"
    with pytest.raises(ConfigError, match=r"trial=0: it has ended \(trial 0 finished with 0.5\)"):
        tell(lab, 0, 0.6)
    assert ask(lab) == [1]


def test_a_trial_that_is_given_back_comes_next(lab: Config) -> None:
    ask(lab, 2)
    tell(lab, 0, state=ToldState.interrupted, reason="no flask")
    outcome = record(lab).trials[0].outcome
    assert isinstance(outcome, InterruptedOutcome)
    assert outcome.cause == "no flask"
    assert ask(lab, 2) == [0, 2]


@pytest.mark.parametrize(
    ("first", "again", "other"),
    [
        ({"value": 0.5}, {"value": 0.5}, {"value": 0.25}),
        ({"value": 0.5}, {"state": ToldState.finished}, {"state": ToldState.failed}),
        ({"value": math.nan}, {"value": math.nan}, {"value": 0.5}),
        (
            {"state": ToldState.failed, "reason": "no flask"},
            {"state": ToldState.failed, "reason": "no flask"},
            {"value": 1.0},
        ),
        ({"state": ToldState.pruned}, {"step": 3, "value": 1.0}, {"value": 0.5}),
        (
            {"state": ToldState.pruned, "value": 0.5},
            {"state": ToldState.pruned},
            {"state": ToldState.pruned, "value": 0.25},
        ),
    ],
)
def test_the_same_may_be_told_twice_and_nothing_else(
    lab: Config, first: dict[str, Any], again: dict[str, Any], other: dict[str, Any]
) -> None:
    ask(lab)
    told = tell(lab, 0, **first)
    n_events = (Path(lab.study.dir) / "lab" / "events.log").read_bytes()
    assert tell(lab, 0, **again).text == told.text, "the cause of a failure, too"
    with pytest.raises(ConfigError, match="a trial that has ended stays as it is"):
        tell(lab, 0, **other)
    assert (Path(lab.study.dir) / "lab" / "events.log").read_bytes() == n_events


@pytest.mark.parametrize(
    ("trial", "more", "message"),
    [
        (7, {"value": 0.5}, r"trial=7: never asked for; the study has 1 trial"),
        (0, {}, r"tell needs what came out: value=0\.3"),
        (0, {"state": ToldState.finished}, r"a finished trial has a value, and none was reported"),
        (0, {"metrics": {"loss": "low"}, "value": 1.0}, r"'loss' is 'low' \(str\)"),
        (0, {"steps": {"first": 1.0}}, r"tell: .*'first'"),
        (0, {"step": 2**60, "value": 1.0}, r"a step is a whole number"),
    ],
)
def test_what_cannot_be_told_is_refused(
    lab: Config, trial: int, more: dict[str, Any], message: str
) -> None:
    ask(lab)
    with pytest.raises(ConfigError, match=message):
        tell(lab, trial, **more)
    assert record(lab).trials[0].outcome is None


def test_a_value_that_is_none_fails_the_trial(lab: Config) -> None:
    ask(lab)
    assert tell(lab, 0, math.inf).text == "trial 0 failed: ValueError: the value inf is no result"
    assert isinstance(record(lab).trials[0].outcome, FailedOutcome)


def test_steps_make_a_curve_and_renew_the_lease(lab: Config) -> None:
    ask(lab, lease_seconds=60.0)
    began = record(lab).trials[0].lease_until
    assert not tell(lab, 0, steps={1: 0.5, 0: 0.9}, metrics={"cost": 3.0}).values["prune"]
    tell(lab, 0, 0.7, step=2)
    tell(lab, 0, 0.1, step=2)  # a step counts once
    trial = record(lab).trials[0]
    assert trial.lease_until > began
    assert (trial.best_value, trial.best_step, trial.last_step) == (0.5, 1, 2)
    assert tell(lab, 0, state=ToldState.finished, metrics={"cost": 4.0}).values["value"] == 0.5
    reports = read_study(Path(lab.study.dir) / "lab", keep_reports=True).trials[0].reports
    assert reports == {0: {"loss": 0.9}, 1: {"loss": 0.5, "cost": 3.0}, 2: {"loss": 0.7, "cost": 4}}


def test_the_pruner_judges_a_trial_outside(lab: Config) -> None:
    lab = replace(lab, pruner=MedianPruner(n_startup_trials=2))
    for number in ask(lab, 3):
        said = tell(lab, number, float(number), step=5)
    assert said.values["prune"]
    tell(lab, 2, state=ToldState.pruned)
    outcome = record(lab).trials[2].outcome
    assert isinstance(outcome, PrunedOutcome)
    assert (outcome.step, outcome.value) == (5, 2.0)


def test_a_study_gives_no_more_trials_than_it_has(lab: Config) -> None:
    lab.study.n_trials = 3
    answer = ask_outside(lab, AskArguments(n=5), STORED)
    assert [trial["trial"] for trial in answer.values["trials"]] == [0, 1, 2]
    with pytest.raises(
        ConfigError, match=r"all 3 trials .* \(3 not told yet\).* edit lab n_trials=…"
    ):
        ask(lab)
    for number in range(3):
        tell(lab, number, 1.0)
    assert load_view(Path(lab.study.dir) / "lab" / "status.json").ended == "done"


def test_a_grid_ends(lab: Config) -> None:
    lab = replace(lab, sampler=samplers()["grid"](), space={"x": {"choices": [1, 2]}})
    assert ask(lab, 5) == [0, 1]
    with pytest.raises(ConfigError, match="no combination left"):
        ask(lab)


def test_enqueued_points_come_first(lab: Config) -> None:
    lab.study.enqueue = [{"x": 0.125}]
    ask(lab, 2)
    assert record(lab).trials[0].params == {"x": 0.125}


@pytest.fixture
def several(lab: Config) -> Config:
    """A study of two metrics and a limit on a third."""
    study = replace(
        lab.study,
        metric=["loss", "ms"],
        direction=[Direction.minimize] * 2,
        constraints={"grams": 10.0},
    )
    return replace(lab, study=study)


def test_a_trial_of_several_metrics_needs_all_of_them(several: Config) -> None:
    ask(several, 2)
    with pytest.raises(ConfigError, match=r"name grams, .*metrics={grams: 4\.5}"):
        tell(several, 0, 0.5, metrics={"ms": 3.0})
    assert record(several).trials[0].n_reports == 0, "nothing of it is recorded"
    all_of_them = {"loss": 0.5, "ms": 3.0, "grams": 12.0}
    assert tell(several, 0, metrics=all_of_them).values["value"] == 0.5
    assert record(several).trials[0].values == all_of_them
    tell(several, 1, 0.75, metrics={"ms": 4.0, "grams": 9.0})
    assert record(several).best().number == 1, "the other is beyond the limit"
    assert [answer["trial"] for answer in (tell(several, 0, 0.5).values,)] == [0]


def test_the_report_that_counts_has_the_further_values(several: Config) -> None:
    ask(several)
    for step, (loss, ms) in enumerate(((0.5, 9.0), (0.25, 8.0), (0.75, 7.0))):
        tell(several, 0, loss, step=step, metrics={"ms": ms})
    tell(several, 0, state=ToldState.finished, metrics={"grams": 4.0})
    assert record(several).trials[0].values == {"loss": 0.25, "ms": 8.0, "grams": 4.0}


def test_a_pruner_that_pauses_trials_stops_one_outside(lab: Config) -> None:
    lab = replace(lab, pruner=PromotingHalving(min_steps=1))
    for number in ask(lab, 9):
        said = tell(lab, number, float(number), steps={n: float(number) for n in range(9)}, step=9)
    assert said.values["prune"]
    assert tell(lab, 8, state=ToldState.pruned).values["state"] == "pruned"


# --- what a kill leaves ---------------------------------------------------------------------------


def answered(study: UnsweptStudy, request: str, age_seconds: float = 0.0) -> list[int]:
    arguments = {"n": 2, "lease_seconds": 60.0}
    asked = StudyRequest(ASK, arguments, "me", time.time() - age_seconds, request)
    trials = study.answer(asked).values["trials"]
    return [trial["trial"] for trial in trials]


def test_a_request_gets_the_trials_that_a_killed_sweep_gave_it(lab: Config) -> None:
    with opened(lab) as study:
        assert answered(study, "first") == [0, 1]
        assert answered(study, "second") == [2, 3]
    with opened(lab) as study:
        assert answered(study, "first") == [0, 1]


def test_a_request_of_a_process_that_is_gone_gets_no_trial(lab: Config) -> None:
    with opened(lab) as study, pytest.raises(ConfigError, match="has gone"):
        answered(study, "first", ASK_SECONDS + 1)
    assert not record(lab).trials


def test_a_trial_that_was_never_logged_is_given_next(lab: Config) -> None:
    with opened(lab) as study:
        study.study.ask()  # and killed before the log had it
    with pytest.raises(ConfigError, match="nobody was given it yet"):
        tell(lab, 0, 1.0)
    assert ask(lab, 2) == [0, 1]


def test_a_result_that_only_the_log_has_is_told_by_whoever_comes_next(lab: Config) -> None:
    ask(lab)
    with opened(lab) as study:
        study.log.append(FinishedOutcome(0, time.time(), 0.5))  # and killed
    with opened(lab) as study:
        assert study.study.best().value == 0.5
    assert tell(lab, 0, 0.5).values["state"] == "finished"


def test_many_may_ask_and_tell_at_once(lab: Config) -> None:
    given: list[int] = []

    def work() -> None:
        for _ in range(3):
            (number,) = ask(lab)
            given.append(number)
            tell(lab, number, number / 100)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == list(range(12))
    outcomes = {n: trial.value for n, trial in record(lab).trials.items()}
    assert outcomes == {n: n / 100 for n in range(12)}


# --- a study with an objective of its own ---------------------------------------------------------


@pytest.fixture
def own(lab: Config) -> Config:
    """A study whose trials sweeps run, too."""
    objective = ObjectiveConfig(kind=ObjectiveKind.command, command="true")
    return replace(lab, objective=objective, study=replace(lab.study, n_trials=9))


def test_the_trials_of_a_sweep_are_left_to_it(own: Config) -> None:
    with opened(own) as study:
        asked = study.study.ask()
        study.log.append(TrialStarted(asked.number, time.time(), asked.params, "cpu"))
    assert ask(own) == [1]
    with pytest.raises(ConfigError, match="the study's own sweep has it"):
        tell(own, 0, 1.0)
    with opened(own) as study:
        assert [*study.outside.trials] == [1]
        assert study.outside.may_come(9)
        study.outside.tell(OutsideResult(1, state=TrialState.INTERRUPTED), study.tell)
        assert study.outside.leave_free() == [1], "a sweep runs it now"
        assert not study.outside.may_come(9)


def test_a_shared_study_gives_no_trials(lab: Config) -> None:
    lab.study.storage = "postgresql://host/db"
    with pytest.raises(ConfigError, match="shared by sweeps of several machines"):
        ask(lab)


def test_trials_that_the_journal_has_lost_are_not_given_again(lab: Config) -> None:
    """The event log still has them, and nobody else may get their numbers."""
    assert ask(lab, 3) == [0, 1, 2]
    (Path(lab.study.dir) / "lab" / "journal.log").unlink()
    before = {number: trial.params for number, trial in record(lab).trials.items()}
    assert ask(lab) == [3]
    trials = record(lab).trials
    assert {number: trials[number].params for number in before} == before
    assert tell(lab, 2, 0.5).values["state"] == "finished"
