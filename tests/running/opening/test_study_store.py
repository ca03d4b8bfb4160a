"""What a sweep may ask of the store of its study, wherever the study is kept."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from automl.config import (
    Config,
    ExecutionConfig,
    ExecutionKind,
    ObjectiveConfig,
    ObjectiveKind,
    StudyConfig,
)
from automl.models.families.mlp.family import MLPFamily
from automl.record.study_directory import settle_place
from automl.record.study_requests import StudyRequest
from automl.running.loop.messages import LoopMessage
from automl.running.opening.parts import edits_so_far, open_study_directory, store_kind
from automl.running.opening.study_store import StudyStore
from automl.running.prepare.edited_study import SettingsChange, edit_study
from automl.running.prepare.preparation import prepare_study
from automl.search.pruners.none import NoPruner
from automl.search.samplers.random import IndependentSampler
from automl.trial import FinishedOutcome, TrialStarted
from tests.postgres import database, postgres

__all__ = ["database", "postgres"]


def trains(x: float) -> float:
    return x


@pytest.fixture(params=["folder", "database"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    storage = request.getfixturevalue("database") if request.param == "database" else None
    return Config(
        study=StudyConfig(name="calm-crane", dir=str(tmp_path), storage=storage, n_trials=9),
        space={"x": {"low": 0.0, "high": 1.0}},
        objective=ObjectiveConfig(kind=ObjectiveKind.python, target=f"{__name__}:trains"),
        execution=ExecutionConfig(kind=ExecutionKind.inline),
        model=MLPFamily(),
        sampler=IndependentSampler(),
        pruner=NoPruner(),
    )


@contextmanager
def opened(config: Config) -> Iterator[StudyStore]:
    """Open the study as a sweep does."""
    prepared = prepare_study(config, edits=edits_so_far(config.study))
    with (
        open_study_directory(config.study, must_exist=False) as directory,
        closing(store_kind(config.study).open(prepared, directory, "config")) as store,
    ):
        study = store.study
        place = settle_place(directory.path, config.study, study.uuid, study.stored_name)
        store.settle_uuid(place)
        assert store.study.uuid == place.study_uuid
        posted: list[LoopMessage] = []
        store.peers.follow_edits(lambda edit: None)
        store.peers.start(list, posted.append, lambda trials: None, lambda until_seconds: None)
        yield store


def test_a_study_that_is_closed_is_there_when_it_is_opened_again(config: Config) -> None:
    with opened(config) as store:
        assert (store.note, store.restore(), store.n_open) == ("", "", 0)
        assert store.delivery_scope().n_known_trials == 0
        asked, ended = store.study.ask(), store.study.ask()
        assert asked is not None
        assert ended is not None
        for trial in (asked, ended):
            store.log.append(TrialStarted(trial.number, time.time(), trial.params, "cpu"))
        outcome = FinishedOutcome(ended.number, time.time(), 0.5)
        store.log.append(outcome)
        store.study.tell(ended.number, outcome, "cpu")
        uuid = store.study.uuid
        assert not store.peers.is_lost(asked.number)
        assert store.peers.settle(60) is None
    with opened(config) as store:
        assert store.study.uuid == uuid
        assert (store.note, store.restore()) == ("", "")
        assert (store.n_open, store.study.n_asked) == (1, 2)
        assert store.log.record.trials[ended.number].value == 0.5
        assert store.peers.n_running() == 0
        assert store.requests.pending() == []


def test_an_edit_that_is_recorded_is_one_of_the_study(config: Config) -> None:
    with opened(config) as store:
        prepared = prepare_study(config, edits=edits_so_far(config.study))
        after = replace(config, space={"x": {"low": 0.0, "high": 0.5}})
        change = SettingsChange.between(config, after)
        asked = StudyRequest("edit", vars(change), "ada", 1.0, "1")
        edited, event = edit_study(prepared, (), asked, n_trials=0)
        assert store.record_edit(edited)
        assert store.peers.settle(60) is None
    assert [edit.id for edit in edits_so_far(config.study)] == [event.id]
