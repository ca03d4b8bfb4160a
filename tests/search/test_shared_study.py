"""A study that several sweeps share, while a trial of it ends elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.storages import InMemoryStorage

from automl.config import StudyConfig
from automl.record.sharing.shared import Shared
from automl.search.identity import Identity
from automl.search.pruners.none import NoPruner
from automl.search.rules import Rules
from automl.search.samplers.random import Random
from automl.search.shared_study import SharedStudy, open_shared
from automl.search.space import parse_space
from automl.trial import Finished, Reported, Tagged
from tests.postgres import database, postgres

__all__ = ["database", "postgres"]


@pytest.fixture
def study(database: str, tmp_path: Path) -> Iterator[SharedStudy]:
    config = StudyConfig(name="a", dir=str(tmp_path), storage=database, n_trials=9)
    space = parse_space({"x": {"low": 0.0, "high": 1.0}})
    rules = Rules(
        space=space,
        sampler=Random(),
        pruner=NoPruner(),
        identity=Identity({"space": space.plain()}, {}),
    )
    shared = Shared.open(config, tmp_path)
    try:
        yield SharedStudy.open(config, rules, tmp_path, open_shared(shared, "config"))
    finally:
        shared.close()


def test_a_trial_that_ends_elsewhere_while_it_reports_here_troubles_nobody(
    study: SharedStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a sweep that was stopped for long: it hears of its trials' ends while they go on."""
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
        study.tell(asked.number, Finished(asked.number, 1.0, 0.5))
        has_ended.set()

    (elsewhere := threading.Thread(target=end)).start()
    study.report([Reported(asked.number, 0.5, step=0, metrics={"val_loss": 0.5})])
    elsewhere.join()
    study.report([Reported(asked.number, 1.5, step=1, metrics={"val_loss": 0.1})])
    study.tag(Tagged(asked.number, 1.5, "note", "late"))
    best = study.best()
    assert best is not None
    assert best.value == 0.5
