"""A study from its opening to its ranking: identity, verdicts, outcomes, storage URLs."""

from __future__ import annotations

import itertools
import math
import sqlite3
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from automl.errors import ConfigError, StorageError, StudyInUseError
from automl.search.excess import AT_LEAST, BARE, EXCESS
from automl.search.identity import FUNCTION
from automl.search.pruners.halving import Halving
from automl.search.pruners.median import Median
from automl.search.samplers.random import Random
from automl.search.samplers.sampler import Sampler
from automl.search.samplers.tpe import TPE
from automl.trial import (
    Direction,
    Failed,
    Finished,
    Interrupted,
    Outcome,
    Pruned,
    Reported,
    TooLarge,
    TrialState,
    Verdict,
)
from tests.search.conftest import ENTRIES, Studies, ask, finish, report, run

IDENTITY: dict[str, Any] = {"space": ENTRIES, "study": {"metric": "val_loss", "seed": 0}}


def test_a_study_keeps_its_uuid_and_another_has_its_own(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    uuid = study.uuid
    assert studies.reopen(study).uuid == uuid
    (tmp_path / "other").mkdir()
    assert studies.open(directory=tmp_path / "other").uuid != uuid


def test_a_changed_identity_is_refused_with_the_differences_and_nothing_written(
    studies: Studies, tmp_path: Path
) -> None:
    run(studies.open(identity=IDENTITY), 2)
    studies.close_and_check()
    before = (tmp_path / "journal.log").read_bytes()
    changed = {
        "space": ENTRIES | {"depth": {"low": 2, "high": 9}},
        "study": {"metric": "val_error", "seed": 0},
        "data": {"digest": "abc"},
    }
    with pytest.raises(ConfigError) as raised:
        studies.open(identity=changed)
    assert str(raised.value).splitlines() == [
        "study.name=toy was begun with other settings, so its trials could not be compared with "
        "new ones:",
        "  space.depth.high: 8 in the study, 9 now",
        '  study.metric: "val_loss" in the study, "val_error" now',
        '  data.digest: not set in the study, "abc" now',
        "Take the changes back to go on with it, or choose another study.name.",
    ]
    assert (tmp_path / "journal.log").read_bytes() == before
    assert studies.open(identity=IDENTITY).n_asked == 2, "and it is not left locked"


def test_what_may_change_is_so_from_then_on(studies: Studies) -> None:
    def made_of(*parts: str, metric: str = "val_loss") -> dict[str, Any]:
        return {"objective": {"parts": dict.fromkeys(parts, "x")}, "study": {"metric": metric}}

    study = studies.open(identity=made_of("source", "closure a"))
    uuid = study.uuid
    study.close()
    with pytest.raises(ConfigError, match=r"closure a: \"x\" in .*\n.*beside .* changed=True\.$"):
        studies.open(identity=made_of("source"))
    with pytest.raises(ConfigError, match=r"study\.metric.*\n.*another study\.name\.$"):
        studies.open(identity=made_of("source", metric="acc"), may_change=FUNCTION)
    study = studies.open(identity=made_of("source", "global b"), may_change=FUNCTION)
    assert studies.reopen(study, identity=made_of("source", "global b")).uuid == uuid


DEFAULTS: dict[str, Any] = {"study": {"goal": "least"}, "model": {"bias": True, "extra": None}}


def test_a_study_begun_before_a_setting_has_its_default(studies: Studies) -> None:
    newer = {**IDENTITY, "study": {**IDENTITY["study"], "goal": "least"}}
    newer |= {"model": {"bias": True, "extra": None}}
    study = studies.open(identity={**IDENTITY, "model": {}})
    studies.reopen(study, identity=newer, defaults=DEFAULTS).close()
    studies.open(identity={**IDENTITY, "model": {}}, defaults=DEFAULTS)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ({"bias": False}, "  model.bias: not set in the study, false now"),
        ({"extra": "x"}, '  model.extra: not set in the study, "x" now'),
        ({"depth": 2}, "  model.depth: not set in the study, 2 now"),
    ],
)
def test_a_setting_that_a_study_lacks_may_have_no_other_value(
    studies: Studies, model: dict[str, Any], line: str
) -> None:
    studies.open(identity=IDENTITY).close()
    with pytest.raises(ConfigError) as raised:
        studies.open(identity={**IDENTITY, "model": model}, defaults=DEFAULTS)
    assert str(raised.value).splitlines()[1:-1] == [line]


def test_a_setting_that_a_study_has_and_nobody_knows_is_refused(studies: Studies) -> None:
    studies.open(identity={**IDENTITY, "model": {"bias": True}}).close()
    with pytest.raises(ConfigError, match=r"model\.bias: true in the study, not set now"):
        studies.open(identity=IDENTITY, defaults=DEFAULTS)


def test_an_older_study_gets_its_metric_s_name_once(studies: Studies, tmp_path: Path) -> None:
    run(studies.open(metric="val_error"), 1)
    studies.close_and_check()
    journal = tmp_path / "journal.log"
    lines = journal.read_bytes().splitlines(keepends=True)
    older = [line for line in lines if b"metric_names" not in line]
    assert len(older) == len(lines) - 1
    journal.write_bytes(b"".join(older))
    studies.reopen(studies.open(metric="val_error"), metric="val_error")
    assert journal.read_bytes().count(b"metric_names") == 1
    assert b'["val_error"]' in journal.read_bytes()


def test_a_cause_is_noted_briefly_and_without_credentials(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    cause = "no answer from http://ann:s3cret@host " + "x" * 10_000
    study.tell(ask(study).number, Failed(0, 0.0, cause), "cpu")
    line = next(b for b in (tmp_path / "journal.log").read_bytes().splitlines() if b"cause" in b)
    assert b"http://ann:***@host" in line
    assert len(line) < 1000


def test_a_tuple_in_an_identity_is_no_change(studies: Studies) -> None:
    study = studies.open(identity={"a": (1, 2)})
    studies.reopen(study, identity={"a": [1, 2]})


def test_a_study_in_use_is_refused(studies: Studies) -> None:
    studies.open()
    with pytest.raises(StudyInUseError):
        studies.open()


@pytest.mark.parametrize("sampler", [Random(), TPE()])
def test_a_renamed_folder_goes_on_with_its_study(studies: Studies, sampler: Sampler) -> None:
    study = studies.open(sampler=sampler)
    study.ask()
    other = studies.reopen(study, name="other", sampler=sampler)
    assert (other.name, other.stored_name, other.uuid) == ("other", "toy", study.uuid)
    assert other.ask() is not None
    other.tell(1, TooLarge(1, 0.0, "no room", 0.5))
    assert other.n_asked == 2


def test_a_journal_of_several_studies_must_be_told_which(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    study.close()
    storage = JournalStorage(JournalFileBackend(str(tmp_path / "journal.log")))
    optuna.create_study(study_name="second", storage=storage)
    with pytest.raises(ConfigError, match=r"study.name=third: .* holds 2 studies \(second, toy\)"):
        studies.open(name="third")
    assert studies.open().uuid == study.uuid


def test_a_folder_whose_study_the_database_lacks_is_refused(
    studies: Studies, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    study = studies.open(storage=url)
    (tmp_path / "events.log").write_text("a trial\n")
    studies.reopen(study, storage=url).close()
    with pytest.raises(ConfigError, match="give it its name back"):
        studies.open(storage=url, name="renamed")
    assert len(optuna.get_all_study_names(url)) == 1


def test_a_study_that_someone_else_made_is_refused(studies: Studies, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    optuna.create_study(study_name="toy", storage=url).ask()
    with pytest.raises(ConfigError, match="holds a study of this name that automl did not make"):
        studies.open(storage=url)


def test_a_study_that_was_killed_while_it_was_made_is_made(studies: Studies) -> None:
    study = studies.open()
    study.close()
    journal = studies.directory / "journal.log"
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    assert studies.open().n_asked == 0


OUTCOMES: list[tuple[Outcome, TrialState]] = [
    (Finished(0, 0.0, 3.0), TrialState.FINISHED),
    (Finished(1, 0.0, 1.0), TrialState.FINISHED),
    (Pruned(2, 0.0, step=1, value=0.5), TrialState.PRUNED),
    (Failed(3, 0.0, "ValueError: no"), TrialState.FAILED),
    (TooLarge(4, 0.0, "no room", 0.5), TrialState.PRUNED),
    (Finished(5, 0.0, 1.0), TrialState.FINISHED),
    (Pruned(6, 0.0, step=1, value=0.4), TrialState.PRUNED),
]


@pytest.mark.parametrize("direction", Direction)
def test_outcomes_are_counted_and_ranked_and_read_back_the_same(
    studies: Studies, direction: Direction
) -> None:
    study = studies.open(direction=direction)
    for outcome, _ in OUTCOMES:
        ask(study)
        study.tell(outcome.trial, outcome)
    running = ask(study)

    def facts() -> tuple[object, ...]:
        return study.counts(), study.n_asked, study.best(), study.ranking(9), study.ranking(2)

    counts = study.counts()
    assert {state: n for state, n in counts.items() if n} == {
        TrialState.RUNNING: 1,
        TrialState.FINISHED: 3,
        TrialState.PRUNED: 3,
        TrialState.FAILED: 1,
    }
    order = {Direction.minimize: [1, 5, 0, 6, 2], Direction.maximize: [0, 1, 5, 2, 6]}
    assert [trial.number for trial in study.ranking(9)] == order[direction]
    assert [trial.number for trial in study.ranking(2)] == order[direction][:2]
    before = facts()
    study = studies.reopen(study, direction=direction)
    assert facts() == before
    assert study.interrupted() == (running,)
    finish(study, running.number)


def test_a_trial_that_is_interrupted_is_not_told(studies: Studies) -> None:
    study = studies.open()
    ask(study)
    with pytest.raises(TypeError, match="Interrupted does not end a trial"):
        study.tell(0, Interrupted(0, 0.0, "Ctrl-C"))
    assert study.counts()[TrialState.RUNNING] == 1


def test_trials_that_reach_a_rung_together_are_pruned_alike_in_every_order(
    studies: Studies, tmp_path: Path
) -> None:
    pruner = Halving(min_steps=1, factor=2, min_trials=2)
    verdicts = []
    for i, order in enumerate(itertools.permutations(range(4))):
        (tmp_path / str(i)).mkdir()
        study = studies.open(directory=tmp_path / str(i), pruner=pruner)
        for _ in order:
            ask(study)
        values = [0.3, 0.1, 0.2, 0.2]
        reports = [Reported(n, 0.0, 0, {"val_loss": values[n]}) for n in order]
        verdicts.append(sorted(study.report(reports).items()))
        study.close()
    assert all(verdict == verdicts[0] for verdict in verdicts)
    assert [v is Verdict.PRUNE for _, v in verdicts[0]] == [True, False, False, False]


def test_a_restart_judges_by_what_was_reported_before(studies: Studies) -> None:
    pruner = Median(n_startup_trials=3, n_warmup_steps=1)
    study = studies.open(pruner=pruner)
    for value in (1.0, 2.0, 3.0):
        number = ask(study).number
        report(study, number, 1, value)
        finish(study, number)
    study = studies.reopen(study, pruner=pruner)
    number = ask(study).number
    assert report(study, number, 1, 9.0) is Verdict.PRUNE
    study = studies.reopen(study, pruner=pruner)
    assert report(study, number, 1, 0.0) is Verdict.PRUNE, "killed before it was told: still so"


def test_a_step_counts_once_and_a_report_without_the_metric_is_not_judged(
    studies: Studies, tmp_path: Path
) -> None:
    study = studies.open(pruner=Halving(min_steps=1, min_trials=1))
    number = ask(study).number
    report(study, number, 0, 0.5)
    size_bytes = (tmp_path / "journal.log").stat().st_size
    report(study, number, 0, 0.1)
    assert study.report([Reported(number, 0.0, 1, {"other": 1.0})]) == {number: Verdict.GO_ON}
    assert study.report([]) == {}
    assert (tmp_path / "journal.log").stat().st_size == size_bytes


def test_a_late_report_of_a_trial_that_has_ended_is_dropped(studies: Studies) -> None:
    study = studies.open()
    number = ask(study).number
    finish(study, number)
    assert report(study, number, 5, 0.1) is Verdict.GO_ON


def test_values_that_are_no_numbers_are_kept_and_rank_nowhere(studies: Studies) -> None:
    study = studies.open()
    number = ask(study).number
    for step, value in enumerate((float("nan"), float("inf"), -float("inf"))):
        report(study, number, step, value)
    study.tell(number, Pruned(number, 0.0, step=2, value=float("inf")))
    study = studies.reopen(study)
    assert study.ranking(1) == ()
    assert study.counts()[TrialState.PRUNED] == 1


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
    study.tell(ask(study).number, TooLarge(3, 0.0, "no room", 0.5))
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


def test_a_study_tells_how_its_trials_ended(studies: Studies) -> None:
    study = studies.open()
    outcomes = [
        Finished(0, 1.0, 0.5),
        Pruned(1, 1.0, step=3, value=0.75),
        Pruned(2, 1.0, step=0, value=math.inf),
        Failed(3, 1.0, "ValueError: x"),
        TooLarge(4, 1.0, "no room", 0.25),
        TooLarge(5, 1.0, "no room", 0.5, at_least=True),
    ]
    params = []
    for outcome in outcomes:
        params.append(ask(study).params)
        if outcome.trial == 1:
            report(study, 1, 3, 0.75)
        study.tell(outcome.trial, outcome)
    begun = ask(study).number
    now = time.time()
    study = studies.reopen(study)
    ended = study.ended()
    assert [trial.number for trial in ended] == list(range(begun))
    assert [trial.params for trial in ended] == params
    assert all(now - 60 < t.began <= t.outcome.time <= now for t in ended)
    at = [trial.outcome.time for trial in ended]
    finished, pruned, worthless, failed, too_large, larger = (trial.outcome for trial in ended)
    assert finished == Finished(0, at[0], 0.5)
    assert pruned == Pruned(1, at[1], step=3, value=0.75)
    assert isinstance(worthless, Pruned)
    assert math.isnan(worthless.value)
    assert isinstance(failed, Failed)
    assert "lost" in failed.cause
    assert isinstance(too_large, TooLarge)
    assert (too_large.excess, too_large.at_least) == (0.25, False)
    assert "memory" in too_large.cause
    assert isinstance(larger, TooLarge)
    assert (larger.excess, larger.at_least) == (0.5, True)
    assert [trial.number for trial in study.ended(but={0, 2, 4, 5})] == [1, 3]
    finish(study, begun)


@pytest.mark.parametrize(("at_least", "key"), [(False, EXCESS), (True, AT_LEAST)])
def test_what_fits_nowhere_violates_a_constraint_by_its_excess(
    studies: Studies, at_least: bool, key: str
) -> None:
    """Also where a kill came after the constraint: told again, it is the same."""
    study = studies.open()
    outcome = TooLarge(ask(study).number, 0.0, "does not fit: no room", 0.75, at_least)
    journal = studies.directory / "journal.log"
    study.tell(0, outcome, "a GPU")
    told = journal.read_bytes()
    cut = told.index(b"\n", told.index(b"constraints")) + 1
    assert len(told[cut:].splitlines()) >= 2, "the cause and the state come after it"
    study.close()
    journal.write_bytes(told[:cut])
    study = studies.open()
    assert [trial.number for trial in study.interrupted()] == [0]
    study.tell(0, outcome, "a GPU")
    study = studies.reopen(study)
    (trial,) = stock_study(journal).trials
    assert trial.state.name == "PRUNED"
    assert trial.constraints == {key: 0.75}
    assert trial.user_attrs["cause"] == "does not fit: no room"
    assert trial.values is None
    assert study.counts()[TrialState.PRUNED] == 1


def test_what_an_earlier_version_told_bare_has_failed_as_its_log_says(
    studies: Studies, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    study = studies.open(storage=url)
    ask(study)
    stock = optuna.load_study(study_name="toy", storage=url)
    older = optuna.trial.Trial(stock, stock.trials[0]._trial_id)
    older.set_constraint(BARE, 1.0)
    stock.tell(older, state=optuna.trial.TrialState.PRUNED)
    study = studies.reopen(study, storage=url)
    assert study.counts()[TrialState.FAILED] == 1
    (ended,) = study.ended()
    assert isinstance(ended.outcome, Failed)


def stock_study(journal: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(journal)))
    return optuna.load_study(study_name="toy", storage=storage)
