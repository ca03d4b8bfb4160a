"""A sweep says once that the objective's code is not what it was, or refuses to begin."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from automl.config import CodeChange, Config, ObjectiveConfig, ObjectiveKind
from automl.errors import ConfigError
from automl.models.families.mlp.family import MLPFamily
from automl.record.study_record import StudyRecord, record_from_events
from automl.running.opening.parts import changed_code_note
from automl.running.prepare.preparation import prepare_study
from automl.running.prepare.prepared_config import PreparedStudy
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import Event, SweepStarted, TrialStarted

TARGET, FILE = "objective.target", "the file of objective.target"


def begun(*sweeps: tuple[Mapping[str, str], int]) -> StudyRecord:
    """The record of sweeps with their code and the number of trials that each began."""
    events: list[Event] = []
    number = 0
    for code, n_trials in sweeps:
        events.append(SweepStarted(0.0, "s", "u", {}, code=code, n_trials=number))
        events += [TrialStarted(n, 0.0, {}, "cpu") for n in range(number, number + n_trials)]
        number += n_trials
    return record_from_events(events)


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PreparedStudy:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print('val_loss: 1')\n")
    command = f"{sys.executable} train.py"
    config = Config(
        model=MLPFamily(),
        objective=ObjectiveConfig(kind=ObjectiveKind.command, command=command),
        sampler=IndependentSampler(),
        pruner=NoPruner(),
        space={"lr": 0.1},
    )
    return prepare_study(config)


@pytest.mark.parametrize(
    ("sweeps", "lines"),
    [
        ([({TARGET: "a"}, 5), ({TARGET: "a"}, 5)], []),
        ([({TARGET: "a"}, 5), ({TARGET: "b"}, 5), ({TARGET: "b"}, 1)], [f"{TARGET} has 4"]),
        (
            [({TARGET: "a"}, 1), ({TARGET: "b"}, 1), ({TARGET: "a"}, 1)],
            ["objective.target has 0", "objective.target has 1"],
        ),
        ([({TARGET: "a"}, 0), ({TARGET: "b"}, 3)], []),
        ([({}, 3), ({TARGET: "b"}, 3)], []),
        (
            [({TARGET: "a", FILE: "a"}, 3), ({TARGET: "b", FILE: "b"}, 3)],
            [f"{TARGET} has 2"],
        ),
        (
            [({TARGET: "a", FILE: "a"}, 3), ({TARGET: "a", FILE: "b"}, 3)],
            [f"{FILE} has 2"],
        ),
        ([({"m": "a", "n": "a"}, 3), ({}, 1), ({"m": "b", "n": "b"}, 3)], ["m and n have 3"]),
    ],
)
def test_the_record_tells_what_changed_and_since_which_trial(
    sweeps: list[tuple[Mapping[str, str], int]], lines: list[str]
) -> None:
    told = begun(*sweeps).code_changes()
    shown = [line.partition(":")[0].replace("changed since trial ", "") for line in told]
    assert shown == lines


def test_a_change_is_said_once(prepared: PreparedStudy) -> None:
    code = prepared.code
    assert list(code) == ["the file of objective.command"]
    assert changed_code_note(prepared, begun((code, 3))) == ""
    before = dict.fromkeys(code, "other")
    note = changed_code_note(prepared, begun((before, 3)))
    assert note.startswith("the file of objective.command has changed since trial 2: later values")
    assert changed_code_note(prepared, begun((before, 3), (code, 0))) == ""


def test_a_setting_makes_a_change_a_refusal(prepared: PreparedStudy) -> None:
    before = dict.fromkeys(prepared.code, "other")
    prepared.config.objective.if_changed = CodeChange.refuse
    changed_code_note(prepared, begun((before, 0)))
    with pytest.raises(
        ConfigError, match=r"^objective\.if_changed=refuse: .* since trial 2\. Take"
    ):
        changed_code_note(prepared, begun((before, 3)))
