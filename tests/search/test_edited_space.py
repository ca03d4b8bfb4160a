"""A study whose space is edited: new trials follow the new space, and earlier ones teach."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

import pytest
from optuna.samplers import RandomSampler

from automl.errors import ConfigError
from automl.record.event_log import EventLog, read_edits
from automl.record.study_record import record_from_events
from automl.search.edited_space import SpaceHistory
from automl.search.samplers.cmaes import CMAES
from automl.search.samplers.gp import GPSampler
from automl.search.samplers.grid import GridSampler
from automl.search.samplers.qmc import QMC
from automl.search.samplers.random import IndependentSampler
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.search.search_space import EnqueuedPoint, parse_space
from automl.search.study import AskedTrial, Study
from automl.trial import Params, StudyEdited
from tests.record.every_event import events_of
from tests.search.conftest import Studies, ask, finish

BEFORE: dict[str, Any] = {
    "lr": {"low": 0.1, "high": 0.5, "step": 0.1},
    "opt": {"choices": ["sgd", "adam"]},
    "wd": 0.25,
}
LEARNING = {
    "tpe": TPE(n_startup_trials=4),
    "tpe-alone": TPE(n_startup_trials=4, multivariate=False),
    "tpe-group": TPE(n_startup_trials=4, group=True),
    "cmaes": CMAES(population_size=4),
    "gp": GPSampler(n_startup_trials=4),
}
SAMPLERS: dict[str, Sampler] = {
    "random": IndependentSampler(),
    "qmc": QMC(),
    "grid": GridSampler(),
    **LEARNING,
}
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "wider": ({"lr": {"low": 0.1, "high": 0.9, "step": 0.1}}, {}),
    "narrower": ({"lr": {"low": 0.1, "high": 0.3, "step": 0.1}}, {}),
    "moved": ({"lr": {"low": 0.6, "high": 0.9, "step": 0.1}}, {}),
    "choice added": ({"opt": {"choices": ["sgd", "adam", "lion"]}}, {}),
    "choice dropped": ({"opt": {"choices": ["adam"]}}, {}),
    "choice reordered": ({"opt": {"choices": ["lion", "adam"]}}, {}),
    "fixed": ({"opt": "adam"}, {}),
    "no longer fixed": ({"wd": {"low": 0.0, "high": 0.5, "step": 0.25}}, {}),
    "param added": ({"drop": {"low": 0.0, "high": 0.5, "step": 0.25}}, {"space.drop": "0.0"}),
    "param dropped": ({"opt": None}, {}),
}
"""By name: the entries that an edit changes (None: takes out), and the defaults of earlier
trials."""


def edited(entries: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry for name, entry in ({**entries, **changes}).items() if entry is not None}


def edit(
    before: Mapping[str, Any], after: Mapping[str, Any], n_trials: int, **fields: Any
) -> StudyEdited:
    spaces = [json.dumps(parse_space(entries).plain()) for entries in (before, after)]
    return StudyEdited(
        1.0,
        str(n_trials),
        "ada",
        n_trials,
        {},
        {},
        space_before=spaces[0],
        space=spaces[1],
        **fields,
    )


def ask_up_to(study: Study, n: int) -> list[AskedTrial]:
    """Return up to `n` new trials; a small grid has fewer left."""
    asked = (study.ask() for _ in range(n))
    return [trial for trial in asked if trial is not None]


def first_trials(studies: Studies, sampler: Sampler, n: int) -> tuple[Study, list[AskedTrial]]:
    study = studies.open(entries=BEFORE, sampler=sampler)
    trials = []
    for _ in range(n):
        trials.append(ask(study))
        finish(study, trials[-1].number, float(str(trials[-1].params["lr"])))
    return study, trials


@pytest.mark.parametrize("kind", EDITS)
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_after_an_edit_trials_are_of_the_new_space_in_this_sweep_and_the_next(
    studies: Studies, sampler: Sampler, kind: str
) -> None:
    changes, defaults = EDITS[kind]
    after = edited(BEFORE, changes)
    study, first = first_trials(studies, sampler, 5)
    running = ask(study)
    event = edit(BEFORE, after, 6, defaults=defaults)
    settings: dict[str, Any] = {"entries": after, "sampler": sampler, "edits": [event]}
    study.edit(studies.rules(**settings))
    trials = ask_up_to(study, 2)
    for trial in trials:
        parse_space(after).check(trial.params)
        finish(study, trial.number)
    live = ask_up_to(study, 1)
    study.close()
    # The next sweep has all trials, goes on with those that run, and asks for the same.
    study = studies.open(**settings)
    assert study.interrupted() == (running, *live)
    params = [study.params(number) for number in range(study.n_asked)]
    assert params == [trial.params for trial in (*first, running, *trials, *live)]
    for trial in ask_up_to(study, 1):
        parse_space(after).check(trial.params)


def taught(study: Study) -> dict[int, Params]:
    """Return what the sampler sees of each trial."""
    trials = study._open_for_sampler(RandomSampler()).get_trials()
    assert all(trial.params.keys() == trial.distributions.keys() for trial in trials)
    return {trial.number: trial.params for trial in trials}


TAUGHT: dict[str, Params] = {
    "wider": {"lr": 0.5, "opt": "sgd"},
    "narrower": {"lr": 0.5, "opt": "sgd"},
    "moved": {"lr": 0.5, "opt": "sgd"},
    "choice added": {"lr": 0.5, "opt": "sgd"},
    "choice dropped": {"lr": 0.5},
    "choice reordered": {"lr": 0.5},
    "fixed": {"lr": 0.5},
    "no longer fixed": {"lr": 0.5, "opt": "sgd", "wd": 0.25},
    "param added": {"lr": 0.5, "opt": "sgd", "drop": 0.0},
    "param dropped": {"lr": 0.5},
}


@pytest.mark.parametrize("kind", EDITS)
def test_a_sampler_sees_of_an_earlier_trial_what_the_new_space_can_hold(
    studies: Studies, kind: str
) -> None:
    study = studies.open(entries=BEFORE, enqueue=[{"lr": 0.5, "opt": "sgd"}])
    finish(study, ask(study).number)
    changes, defaults = EDITS[kind]
    after = edited(BEFORE, changes)
    study.edit(studies.rules(entries=after, edits=[edit(BEFORE, after, 1, defaults=defaults)]))
    assert taught(study) == {0: TAUGHT[kind]}


@pytest.mark.parametrize("kind", ["wider", "choice added", "no longer fixed", "param added"])
@pytest.mark.parametrize("name", LEARNING)
def test_a_sampler_that_learns_goes_on_with_what_earlier_trials_showed(
    studies: Studies, name: str, kind: str
) -> None:
    """It proposes other params than where earlier trials had had other values."""
    changes, defaults = EDITS[kind]
    after = edited(BEFORE, changes)
    proposed = []
    for sign in (1.0, -1.0):
        folder = studies.directory / f"{sign}"
        folder.mkdir()
        study = studies.open(entries=BEFORE, sampler=IndependentSampler(), directory=folder)
        for _ in range(24):
            trial = ask(study)
            finish(study, trial.number, sign * float(str(trial.params["lr"])))
        event = edit(BEFORE, after, 24, defaults=defaults)
        study.edit(studies.rules(entries=after, sampler=LEARNING[name], edits=[event]))
        trials = [ask(study) for _ in range(6)]
        proposed.append(sum(float(str(trial.params["lr"])) for trial in trials) / 6)
    assert proposed[0] < proposed[1]


def test_a_grid_goes_over_the_new_combinations_and_repeats_none(studies: Studies) -> None:
    study, first = first_trials(studies, GridSampler(), 7)
    after = edited(BEFORE, {"lr": {"low": 0.1, "high": 0.6, "step": 0.1}})
    study.edit(studies.rules(entries=after, sampler=GridSampler(), edits=[edit(BEFORE, after, 7)]))
    later = []
    while (trial := study.ask()) is not None:
        later.append(trial.params)
        finish(study, trial.number)
    all_params = [*(trial.params for trial in first), *later]
    assert len(all_params) == 12
    assert len({json.dumps(params, sort_keys=True) for params in all_params}) == 12


def test_a_grid_that_is_edited_repeats_none_though_others_were_enqueued(studies: Studies) -> None:
    entries = {"depth": {"low": 1, "high": 3}}
    study = studies.open(entries=entries, sampler=GridSampler())
    tried = [ask(study).params["depth"]]
    study.enqueue([EnqueuedPoint({"depth": depth}, f"a-request:{depth}") for depth in (1, 2)])
    after = {"depth": {"low": 1, "high": 4}}
    event = edit(entries, after, 3)
    study.edit(studies.rules(entries=after, sampler=GridSampler(), edits=[event]))
    while (trial := study.ask()) is not None:
        tried.append(trial.params["depth"])
    assert sorted(map(str, tried)) == ["1", "2", "3", "4"]


def test_gp_learns_that_an_earlier_trial_lies_outside_the_new_range(studies: Studies) -> None:
    """If such trials counted as the middle of the range, all values would seem to lie there."""
    before, after = {"x": {"low": 0.0, "high": 1.0}}, {"x": {"low": 0.5, "high": 1.0}}
    study = studies.open(entries=before, enqueue=[{"x": n / 20} for n in range(21)])
    for n in range(21):
        x = float(str(ask(study).params["x"]))
        finish(study, n, (x - 0.6) ** 2)
    event = edit(before, after, 21)
    study.edit(studies.rules(entries=after, sampler=GPSampler(), edits=[event]))
    proposed = []
    for n in range(21, 25):
        params = ask(study).params
        parse_space(after).check(params)
        proposed.append(abs(float(str(params["x"])) - 0.6))
        finish(study, n, proposed[-1] ** 2)
    assert min(proposed[:2]) < 0.01


def test_cmaes_learns_from_the_trials_inside_the_new_ranges_alone(studies: Studies) -> None:
    """A trial outside would draw the mean of the distribution out of the space."""
    sampler = CMAES(population_size=4)
    study = studies.open(entries=BEFORE, sampler=sampler)
    for lr in (0.4, 0.5, 0.5, 0.4, 0.1, 0.2, 0.3, 0.2):
        finish(study, ask(study).number, lr)
    after = edited(BEFORE, {"lr": {"low": 0.1, "high": 0.3}})
    study.edit(studies.rules(entries=after, sampler=sampler, edits=[edit(BEFORE, after, 8)]))
    for _ in range(4):
        parse_space(after).check(ask(study).params)


def test_a_space_that_the_sampler_cannot_take_changes_nothing(studies: Studies) -> None:
    study, _ = first_trials(studies, GridSampler(), 2)
    after = edited(BEFORE, {"lr": {"low": 0.1, "high": 0.5}})
    with pytest.raises(ConfigError, match="sampler=grid needs a step"):
        study.edit(
            studies.rules(entries=after, sampler=GridSampler(), edits=[edit(BEFORE, after, 2)])
        )
    parse_space(BEFORE).check(ask(study).params)


def test_a_space_that_was_not_edited_is_refused_still(studies: Studies) -> None:
    study, _ = first_trials(studies, IndependentSampler(), 2)
    study.close()
    after = edited(BEFORE, {"wd": 0.5})
    event = edit(BEFORE, after, 2)
    with pytest.raises(ConfigError, match=r"space\.wd: 0\.25 in the study, 0\.5 now"):
        studies.open(entries=after)
    studies.open(entries=after, edits=[event]).close()
    with pytest.raises(ConfigError, match=r"space\.wd: 0\.5 in the study, 0\.25 now"):
        studies.open(entries=BEFORE, edits=[event])


def random_change(rng: random.Random) -> dict[str, Any]:
    low = round(rng.uniform(0, 1), 2)
    return rng.choice(
        [
            {"lr": {"low": low, "high": low + rng.randint(1, 9)}},
            {"lr": low},
            {"opt": {"choices": rng.sample(["sgd", "adam", "lion", "lamb"], rng.randint(1, 4))}},
            {"opt": None},
            {"wd": {"low": 0.0, "high": low}},
            {"wd": rng.choice([0.25, 0.5, None])},
        ]
    )


@pytest.mark.parametrize("n_edits", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_edits_between_kills_lose_no_trial_and_fold_alike_from_any_prefix(
    studies: Studies, n_edits: int
) -> None:
    """A kill leaves trials unfinished, and part of a line at the end of the log."""
    rng, entries = random.Random(0), {**BEFORE, "n": {"low": 1, "high": 9}}
    begun, log_path = dict(entries), studies.directory / "events.log"
    asked: dict[int, Params] = {}
    for round_number in range(n_edits):
        edits = read_edits(log_path)
        study = studies.open(entries=entries, edits=edits, sampler=IndependentSampler())
        assert {n: study.params(n) for n in range(study.n_asked)} == asked
        for trial in study.interrupted():
            assert trial.params == asked[trial.number]
            finish(study, trial.number)
        asked |= {trial.number: trial.params for trial in (ask(study) for _ in range(2))}
        after = edited(entries, random_change(rng))
        event = edit(entries, after, study.n_asked)
        with EventLog.open(log_path) as log:
            log.append(event)
            if round_number % 3 == 0:
                log.append(event)  # the kill came before its request was answered
        with log_path.open("ab") as torn:
            torn.write(b'{"event":"Edited","ti')
        study.close()
        entries = after
    events = events_of(log_path)
    whole = record_from_events(events)
    assert len(whole.edits) == n_edits
    assert json.loads(whole.edits[0].space_before) == parse_space(begun).plain()
    history = SpaceHistory.from_edits(parse_space(entries), whole.edits)
    for number, params in asked.items():
        history.at(number).check(params)
    for n in range(0, len(events), 5):
        assert (
            record_from_events(events[:n]).edits
            == whole.edits[: len(record_from_events(events[:n]).edits)]
        )
        assert record_from_events([*events[:n], *events]) == whole
