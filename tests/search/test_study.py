"""A study from its opening to its ranking: verdicts, outcomes, what is read back."""

from __future__ import annotations

import itertools
import math
import time
from pathlib import Path

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.samplers.memory_wall import AT_LEAST_KEY, BARE_KEY, EXCESS_KEY
from automl.trial import (
    Direction,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    PrunedOutcome,
    TooLargeOutcome,
    TrialOutcome,
    TrialState,
    Verdict,
)
from tests.search.conftest import Studies, ask, finish, report


def test_a_cause_is_noted_briefly_and_without_credentials(studies: Studies, tmp_path: Path) -> None:
    study = studies.open()
    cause = "no answer from http://ann:s3cret@host " + "x" * 10_000
    study.tell(ask(study).number, FailedOutcome(0, 0.0, cause), "cpu")
    line = next(b for b in (tmp_path / "journal.log").read_bytes().splitlines() if b"cause" in b)
    assert b"http://ann:***@host" in line
    assert len(line) < 1000


OUTCOMES: list[tuple[TrialOutcome, TrialState]] = [
    (FinishedOutcome(0, 0.0, 3.0), TrialState.FINISHED),
    (FinishedOutcome(1, 0.0, 1.0), TrialState.FINISHED),
    (PrunedOutcome(2, 0.0, step=1, value=0.5), TrialState.PRUNED),
    (FailedOutcome(3, 0.0, "ValueError: no"), TrialState.FAILED),
    (TooLargeOutcome(4, 0.0, "no room", 0.5), TrialState.PRUNED),
    (FinishedOutcome(5, 0.0, 1.0), TrialState.FINISHED),
    (PrunedOutcome(6, 0.0, step=1, value=0.4), TrialState.PRUNED),
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
    with pytest.raises(TypeError, match="InterruptedOutcome does not end a trial"):
        study.tell(0, InterruptedOutcome(0, 0.0, "Ctrl-C"))
    assert study.counts()[TrialState.RUNNING] == 1


def test_trials_that_reach_a_rung_together_are_pruned_alike_in_every_order(
    studies: Studies, tmp_path: Path
) -> None:
    pruner = SuccessiveHalving(min_steps=1, factor=2, min_trials=2)
    verdicts = []
    for i, order in enumerate(itertools.permutations(range(4))):
        (tmp_path / str(i)).mkdir()
        study = studies.open(directory=tmp_path / str(i), pruner=pruner)
        for _ in order:
            ask(study)
        values = [0.3, 0.1, 0.2, 0.2]
        reports = [MetricsReported(n, 0.0, 0, {"val_loss": values[n]}) for n in order]
        verdicts.append(sorted(study.report(reports).items()))
        study.close()
    assert all(verdict == verdicts[0] for verdict in verdicts)
    assert [v is Verdict.PRUNE for _, v in verdicts[0]] == [True, False, False, False]


def test_a_restart_judges_by_what_was_reported_before(studies: Studies) -> None:
    pruner = MedianPruner(n_startup_trials=3, n_warmup_steps=1)
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
    study = studies.open(pruner=SuccessiveHalving(min_steps=1, min_trials=1))
    number = ask(study).number
    report(study, number, 0, 0.5)
    size_bytes = (tmp_path / "journal.log").stat().st_size
    report(study, number, 0, 0.1)
    assert study.report([MetricsReported(number, 0.0, 1, {"other": 1.0})]) == {
        number: Verdict.GO_ON
    }
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
    study.tell(number, PrunedOutcome(number, 0.0, step=2, value=float("inf")))
    study = studies.reopen(study)
    assert study.ranking(1) == ()
    assert study.counts()[TrialState.PRUNED] == 1


def test_a_study_tells_how_its_trials_ended(studies: Studies) -> None:
    study = studies.open()
    outcomes = [
        FinishedOutcome(0, 1.0, 0.5),
        PrunedOutcome(1, 1.0, step=3, value=0.75),
        PrunedOutcome(2, 1.0, step=0, value=math.inf),
        FailedOutcome(3, 1.0, "ValueError: x"),
        TooLargeOutcome(4, 1.0, "no room", 0.25),
        TooLargeOutcome(5, 1.0, "no room", 0.5, at_least=True),
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
    assert finished == FinishedOutcome(0, at[0], 0.5)
    assert pruned == PrunedOutcome(1, at[1], step=3, value=0.75)
    assert isinstance(worthless, PrunedOutcome)
    assert math.isnan(worthless.value)
    assert isinstance(failed, FailedOutcome)
    assert "lost" in failed.cause
    assert isinstance(too_large, TooLargeOutcome)
    assert (too_large.excess, too_large.at_least) == (0.25, False)
    assert "memory" in too_large.cause
    assert isinstance(larger, TooLargeOutcome)
    assert (larger.excess, larger.at_least) == (0.5, True)
    assert [trial.number for trial in study.ended(excluded={0, 2, 4, 5})] == [1, 3]
    finish(study, begun)


@pytest.mark.parametrize(("at_least", "key"), [(False, EXCESS_KEY), (True, AT_LEAST_KEY)])
def test_what_fits_nowhere_violates_a_constraint_by_its_excess(
    studies: Studies, at_least: bool, key: str
) -> None:
    """Also where a kill came after the constraint: told again, it is the same."""
    study = studies.open()
    outcome = TooLargeOutcome(ask(study).number, 0.0, "does not fit: no room", 0.75, at_least)
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
    older.set_constraint(BARE_KEY, 1.0)
    stock.tell(older, state=optuna.trial.TrialState.PRUNED)
    study = studies.reopen(study, storage=url)
    assert study.counts()[TrialState.FAILED] == 1
    (ended,) = study.ended()
    assert isinstance(ended.outcome, FailedOutcome)


def stock_study(journal: Path) -> optuna.Study:
    storage = JournalStorage(JournalFileBackend(str(journal)))
    return optuna.load_study(study_name="toy", storage=storage)
