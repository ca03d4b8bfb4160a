"""Studies that Optuna made, of its old versions and of this one, are read and begun with."""

from __future__ import annotations

import gc
import hashlib
import shutil
import sqlite3
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import optuna
import pytest
from optuna.trial import TrialState as OptunaState

from automl.config import StudyConfig
from automl.errors import ConfigError
from automl.record.event_log import EventLog
from automl.record.studies import read_study
from automl.running.opening.recovery import restore_lost_events
from automl.search.optuna_address import parse_optuna_source
from automl.search.optuna_source import OptunaStudy, read_optuna_study
from automl.search.search_space import parse_space
from automl.search.storage import IMPORTED
from automl.search.study import Study
from automl.search.study_identity import StudyRules
from automl.trial import (
    IMPORTED_DEVICE,
    Direction,
    FinishedOutcome,
    Params,
    PrunedOutcome,
    TrialState,
)
from tests.postgres import database, postgres
from tests.search.conftest import Studies, ask, finish

__all__ = ["database", "postgres"]  # fixtures
STORED = Path(__file__).parent / "stored_optuna"
SPACE = {
    "lr": {"low": 1e-4, "high": 1e-1, "log": True, "step": None},
    "depth": {"low": 2, "high": 8, "log": False, "step": None},
    "optimizer": {"choices": ["sgd", "adam"]},
    "momentum": {
        "low": 0.0,
        "high": 0.9,
        "log": False,
        "step": 0.1,
        "when": {"optimizer": ["sgd"]},
    },
}


def read(address: str) -> OptunaStudy:
    source = parse_optuna_source(address)
    assert source is not None
    return read_optuna_study(source)


def store(kind: str, folder: Path) -> Path:
    """Return a file with the studies of `stored_optuna/make_study.py`, as `kind` keeps them."""
    if kind == "2.10.1":
        file = folder / "old.db"
        with sqlite3.connect(file) as database:
            database.executescript((STORED / "optuna-2.10.1.sql").read_text())
        database.close()
        return file
    if kind == "3.1.1":
        return Path(shutil.copy(STORED / "optuna-3.1.1.log", folder / "old.log"))
    file = folder / ("now.db" if kind == "sqlite" else "now.log")
    command = [sys.executable, str(STORED / "make_study.py"), kind, str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return file


@pytest.fixture(params=["2.10.1", "3.1.1", "sqlite", "journal"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return store(request.param, tmp_path)


def test_every_version_is_read_and_its_file_is_left_alone(stored: Path) -> None:
    before = hashlib.sha256(stored.read_bytes()).digest()
    study = read(f"{stored}:prices")
    assert (study.name, study.directions) == ("prices", (Direction.minimize,))
    assert study.counts == "1 running, 10 complete, 1 pruned, 1 fail, 1 waiting"
    assert study.space_entries() == SPACE
    parse_space(study.space_entries())
    pruned = study.trials[4]
    assert (pruned.state, list(pruned.intermediate_values)) == (OptunaState.PRUNED, [0, 1, 2])
    assert pruned.user_attrs == {"host": "node-0"}
    assert read(f"{stored}:front").directions == (Direction.minimize, Direction.maximize)
    assert hashlib.sha256(stored.read_bytes()).digest() == before
    assert {path.name for path in stored.parent.iterdir()} == {stored.name}


def test_what_is_no_optuna_study_is_refused_by_its_name(tmp_path: Path) -> None:
    file = store("2.10.1", tmp_path)
    for address, says in (
        (str(file), r"it holds 2 studies \(front, prices\)\. Name one: from=.*:NAME"),
        (f"{file}:nix", r"there is no study of this name; studies: front, prices"),
        (f"{tmp_path}/none.db", "there is no such file"),
        (f"sqlite:///{__file__}:x", "cannot be read as a storage of Optuna's"),
        ("postgresql://u:hunter2@127.0.0.1:1/x:y", "cannot be read as a storage of Optuna's"),
    ):
        with pytest.raises(ConfigError, match=says) as refused:
            read(address)
        assert "hunter2" not in str(refused.value)
    assert parse_optuna_source("quick-heron") is None


def test_a_param_without_a_telling_choice_is_refused_with_the_remedy(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/odd.db"
    study = optuna.create_study(storage=storage, study_name="odd")

    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", 0, 1)
        return x + (trial.suggest_float("y", 0, 1) if trial.number % 2 else 0)

    study.optimize(objective, n_trials=4)
    with pytest.raises(ConfigError, match=r"param y is in 2 of 4 trials of study odd.*space\.y="):
        read(storage).space_entries()


# --- a study of ours begins with its trials -------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EventLog]:
    (tmp_path / "ours").mkdir()
    with EventLog.open(tmp_path / "ours" / "events.log") as opened:
        yield opened


def begin(studies: Studies, source: OptunaStudy | None, enqueue: Sequence[Params] = ()) -> Study:
    rules = studies.rules(entries=SPACE)
    read_imported = None if source is None else lambda: source
    return Study.open(
        StudyConfig(name="toy", enqueue=[dict(params) for params in enqueue]),
        StudyRules(**{**vars(rules), "read_imported": read_imported}),
        studies.directory / "ours",
    )


def test_its_trials_are_trials_of_the_study_which_goes_on(
    studies: Studies, log: EventLog, tmp_path: Path
) -> None:
    source = read(f"{store('3.1.1', tmp_path)}:prices")
    study = begin(studies, source)
    assert study.import_note == (
        f"began with 14 trials of study prices ({source.where}): {source.counts}"
    )
    assert restore_lost_events(study, log) == "", "nothing was lost"
    going_on = study.interrupted()
    assert [(trial.number, trial.params["lr"]) for trial in going_on] == [(12, 0.01), (13, 0.02)]
    assert going_on[0].params["depth"] == 3
    for trial in going_on:
        finish(study, trial.number)
    assert ask(study).number == 14
    study.close()
    record = read_study(tmp_path / "ours", keep_reports=True)
    assert record.counts() == {**record.counts(), TrialState.FINISHED: 10, TrialState.PRUNED: 1}
    for theirs in source.trials[:12]:
        ours = record.trials[theirs.number]
        assert (ours.params, ours.device) == (theirs.params, IMPORTED_DEVICE)
        assert ours.kind is None, "it ran on no device of this study"
        assert ours.tags == theirs.user_attrs
        values = {step: m["val_loss"] for step, m in (ours.reports or {}).items()}
        assert values == theirs.intermediate_values
        if isinstance(ours.outcome, FinishedOutcome):
            assert ours.outcome.value == theirs.value


def pruned_study(direction: Literal["minimize", "maximize"], folder: Path) -> OptunaStudy:
    """A study with one pruned trial, whose last report is neither the best nor the worst."""
    made = optuna.create_study(
        study_name="old", storage=f"sqlite:///{folder}/old.db", direction=direction
    )

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("lr", 1e-4, 1)
        for step, value in enumerate((0.3, 0.1, 0.5, 0.2)):
            trial.report(value, step)
        raise optuna.TrialPruned

    made.optimize(objective, n_trials=1)
    return read(f"{folder}/old.db")


@pytest.mark.parametrize(("direction", "best"), [("minimize", 0.1), ("maximize", 0.5)])
def test_a_pruned_trial_has_its_best_report_as_its_value(
    direction: Literal["minimize", "maximize"], best: float, tmp_path: Path
) -> None:
    assert pruned_study(direction, tmp_path).trials[0].value == best


def test_a_pruned_trial_keeps_its_value_in_our_study(
    studies: Studies, log: EventLog, tmp_path: Path
) -> None:
    study = begin(studies, pruned_study("minimize", tmp_path))
    restore_lost_events(study, log)
    study.close()
    outcome = read_study(tmp_path / "ours").trials[0].outcome
    assert isinstance(outcome, PrunedOutcome)
    assert outcome.value == 0.1


def test_a_kill_while_they_are_copied_costs_none_and_doubles_none(
    studies: Studies, log: EventLog, tmp_path: Path
) -> None:
    source = read(f"{store('3.1.1', tmp_path)}:prices")
    begin(studies, source).close()
    journal = tmp_path / "ours" / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    created = [n for n, line in enumerate(lines) if IMPORTED.encode() in line]
    journal.write_bytes(b"".join(lines[: created[5]]))  # five trials are there
    study = begin(studies, source)
    assert study.n_asked == 14
    restore_lost_events(study, log)
    study.close()
    again = begin(studies, None)  # it needs the other study no more
    assert (again.n_asked, again.import_note) == (14, "")
    assert restore_lost_events(again, log) == ""
    again.close()
    record = read_study(tmp_path / "ours")
    assert [record.trials[n].n_reports for n in range(12)] == [
        len(trial.intermediate_values) for trial in source.trials[:12]
    ]


def test_a_study_of_other_metrics_is_refused_with_the_words_that_fit(
    studies: Studies, log: EventLog, tmp_path: Path
) -> None:
    source = read(f"{store('3.1.1', tmp_path)}:front")
    with pytest.raises(ConfigError, match=r"metric=\[value_0,value_1\] direction=\[minimize,max"):
        begin(studies, source)


def test_points_to_try_first_are_refused_with_the_way_to_add_them(
    studies: Studies, log: EventLog, tmp_path: Path
) -> None:
    source = read(f"{store('3.1.1', tmp_path)}:prices")
    with pytest.raises(ConfigError, match=r"study\.enqueue: .* add the points once the study is"):
        begin(studies, source, [{"lr": 0.01, "depth": 4, "optimizer": "adam"}])


def test_a_study_in_postgresql_is_read(database: str) -> None:
    head, _, options = database.partition("?")
    url = f"{head.replace('postgresql://', 'postgresql+psycopg://')}?{options}"
    storage = optuna.storages.RDBStorage(url)
    made = optuna.create_study(study_name="prices", storage=storage, direction="maximize")
    made.optimize(lambda trial: trial.suggest_float("lr", 1e-4, 1, log=True), n_trials=3)
    trials = tuple(made.trials)
    storage.remove_session()
    storage.engine.dispose()
    study = read(f"{head}:prices?{options}")
    assert (study.directions, study.counts) == ((Direction.maximize,), "3 complete")
    assert study.trials == trials
    with pytest.raises(ConfigError, match=r"there is no study of this name; studies: prices"):
        read(f"{head}:nix?{options}")


def test_the_trials_of_an_optuna_study_are_ranked(tmp_path: Path) -> None:
    file = store("sqlite", tmp_path)
    study = read(f"{file}:prices")
    ranking = study.ranking()
    values = [value for _, value in ranking]
    assert (len(values), values) == (10, sorted(values))
    assert ranking[0][0] == dict(min(study.trials, key=lambda t: t.value or 1e9).params)
    assert read(f"{file}:front").ranking() == []


def test_constraints_are_named_as_not_taken(tmp_path: Path) -> None:
    made = optuna.create_study(study_name="limited", storage=f"sqlite:///{tmp_path}/old.db")
    for excess in (-1.0, 1.0):
        trial = made.ask()
        trial.set_constraint("seconds", excess)
        made.tell(trial, 1.0)
    made.tell(made.ask(), 2.0)
    assert read(f"{tmp_path}/old.db").n_constrained == 2


def test_a_study_is_read_once_for_two_readers_and_not_kept(tmp_path: Path) -> None:
    file = store("sqlite", tmp_path)
    first = read(f"{file}:prices")
    kept = weakref.ref(first)
    assert read(f"{file}:prices") is first
    del first
    gc.collect()
    assert kept() is None
    again = read(f"{file}:prices")
    other = read(f"{file}:front")
    assert read(f"{file}:prices") is not again, "only the last one waits for its second reader"
    assert read(f"{file}:front") is not other
