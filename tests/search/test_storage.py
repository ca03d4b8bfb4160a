"""A study in a database, or in one that is no use."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import optuna
import pytest

from automl.errors import ConfigError, StorageError
from automl.trial import (
    TooLargeOutcome,
)
from tests.search.conftest import Studies, ask, report, run


def test_a_trial_of_another_writer_that_lacks_params_is_completed(
    studies: Studies, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    study = studies.open(storage=url)
    run(study, 2)
    study.close()
    stock = optuna.load_study(study_name="toy", storage=url)
    stock.ask().suggest_categorical("optimizer", ["sgd", "adam"])
    stock.enqueue_trial({"depth": 5})
    study = studies.open(storage=url)
    half, queued = study.interrupted()
    assert (half.number, queued.number) == (2, 3)
    assert half.params.keys() >= {"depth", "lr", "optimizer", "dropout"}
    assert half.params["optimizer"] == stock.trials[2].params["optimizer"]
    assert queued.params["depth"] == 5
    assert studies.reopen(study, storage=url).interrupted() == (half, queued)
    assert [t.state.name for t in stock.trials[2:]] == ["RUNNING", "RUNNING"]


def test_a_database_serves_as_well(studies: Studies, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"storage": f"sqlite:///{tmp_path}/study.db"}
    study = studies.open(**settings)
    trials = run(study, 3)
    study.tell(ask(study).number, TooLargeOutcome(3, 0.0, "no room", 0.5))
    running = ask(study)
    report(study, running.number, 0, 0.5)
    before = study.uuid, study.counts(), study.ranking(9)
    study = studies.reopen(study, **settings)
    assert (study.uuid, study.counts(), study.ranking(9)) == before
    assert study.interrupted() == (running,)
    assert not (tmp_path / "journal.log").exists()
    assert [t.params for t in run(studies.open(directory=tmp_path), 3)] == [
        t.params for t in trials
    ]


def test_a_database_that_is_lost_stops_the_study(studies: Studies, tmp_path: Path) -> None:
    study = studies.open(storage=f"sqlite:///{tmp_path}/study.db")
    number = ask(study).number
    with sqlite3.connect(tmp_path / "study.db") as database:
        database.execute("DROP TABLE trial_intermediate_values")
    database.close()
    with pytest.raises(StorageError, match=r"the database does not answer .*resume the study"):
        report(study, number, 0, 0.5)


def test_another_program_that_asks_too_is_noticed(studies: Studies, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = studies.open(storage=url)
    optuna.load_study(study_name="toy", storage=url).ask()
    with pytest.raises(StorageError, match="another program adds trials to this study"):
        study.ask()


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "nosuchdb://ann:s3cret@host/name",
        "postgresql://ann:s3cret@127.0.0.1:1/name?password=s3cret",
        "redis://ann:s3cret@127.0.0.1:1",
        "sqlite:////nowhere/at/all.db",
    ],
)
def test_an_unusable_url_is_refused_without_its_credentials(studies: Studies, url: str) -> None:
    with pytest.raises(ConfigError) as raised:
        studies.open(storage=url)
    message = str(raised.value)
    assert message.startswith("study.storage=")
    assert "sqlite:///file.db" in message
    assert "s3cret" not in message


def test_optuna_says_nothing_to_users(
    studies: Studies, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run(studies.open(), 2)
    run(studies.open(storage=f"sqlite:///{tmp_path}/study.db"), 1)
    studies.close_and_check()
    with pytest.raises(ConfigError):
        studies.open(storage="nonsense")
    assert capfd.readouterr() == ("", "")
