"""The end of events.log is lost while the journal is whole: a resume puts back what only that has.

Power cuts, repaired file systems and old copies do it. Outcomes would be missing for good, and runs
stay RUNNING in MLflow.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from automl.trial import FailedOutcome, FinishedOutcome, TrialStarted
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import Program, objective_words
from tests.end_to_end.records import Records
from tests.flips import one_bit_flipped

pytestmark = pytest.mark.slow

N_TRIALS = 8
WORDS = (
    "study.name=lost",
    f"study.n_trials={N_TRIALS}",
    "sampler=grid",
    "pruner=none",
    "devices.only=cpu",
    *objective_words("ends_as_told"),
    "space={how: {choices: [raises, well]}, x: {choices: [1, 2, 3, 4]}}",
)


@pytest.fixture(scope="module")
def ended(module_program: Program) -> Program:
    """A study of four finished and four failed trials, all in MLflow."""
    done = module_program.call(*WORDS)
    assert "lost: 4 finished, 4 failed" in done.stdout, done.stderr
    return module_program


@pytest.fixture
def cut(ended: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    """A copy of it that has lost the last third of its event log."""
    shutil.copytree(ended.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "studies" / "lost" / "place.json").unlink()  # else it is asked where it is from
    monkeypatch.chdir(tmp_path)
    records = Records(tmp_path, "lost")
    log = records.path / "events.log"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    assert len(records.outcomes()) < N_TRIALS
    return records


@pytest.mark.parametrize(
    "what",
    [
        "events.delivered is there",
        pytest.param("it is lost too", marks=pytest.mark.slow),
        pytest.param("MLflow is new", marks=pytest.mark.slow),
    ],
)
def test_what_the_log_has_lost_is_put_back(
    what: str, ended: Program, cut: Records, call: Call, empty_database: Path
) -> None:
    whole = Records(ended.folder, "lost")
    n_lost = N_TRIALS - len(cut.outcomes())
    if what == "it is lost too":
        (cut.path / "events.delivered").unlink()
    if what == "MLflow is new":
        shutil.copyfile(empty_database, cut.path.parents[1] / "mlflow.db")

    done = call("resume", "study.name=lost")
    assert done.code == 0, done.stderr
    assert f"events.log had lost how {n_lost} trials ended" in done.stdout
    check_same(whole, cut)
    again = call("resume", "study.name=lost")
    assert "had lost" not in again.stdout
    check_same(whole, cut)


def check_same(whole: Records, cut: Records) -> None:
    """Log and MLflow are as if nothing had been lost, but for the words of a failure."""
    outcomes = cut.outcomes()
    assert set(outcomes) == set(range(N_TRIALS))
    for number, outcome in whole.outcomes().items():
        there = outcomes[number]
        assert type(there) is type(outcome)
        if isinstance(outcome, FinishedOutcome):
            assert isinstance(there, FinishedOutcome)
            assert there.value == outcome.value
        elif isinstance(there, FailedOutcome) and there != outcome:
            assert "lost" in there.cause
    assert cut.params() == whole.params()
    starts = [event.trial for event in cut.events() if isinstance(event, TrialStarted)]
    assert len(starts) == len(set(starts))
    runs, whole_runs = cut.trial_runs(), whole.trial_runs()
    for number, run in whole_runs.items():
        assert runs[number].info.status == run.info.status
        assert runs[number].data.params == run.data.params
        for metric in ("value", "val_loss"):
            assert len(cut.steps(runs[number], metric)) <= 1, "nothing twice"
        assert runs[number].data.metrics.get("value") == run.data.metrics.get("value")
    assert cut.parent().info.status == "FINISHED"


@pytest.mark.parametrize(
    ("name", "words", "n_flips"),
    [
        ("status.json", ("status",), 10),
        ("config.yaml", ("resume", "--cfg", "job"), 10),
        ("journal.log", ("resume",), 2),
        ("events.log", ("resume",), 2),
    ],
)
def test_a_flipped_bit_is_one_message_or_none(
    name: str,
    words: tuple[str, ...],
    n_flips: int,
    ended: Program,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is raised beyond our own errors, and would be a traceback, fails the test by itself."""
    shutil.copytree(ended.folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "studies" / "lost" / "place.json").unlink()  # else it is asked where it is from
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "studies" / "lost" / name
    for content in one_bit_flipped(path.read_bytes(), n_flips):
        path.write_bytes(content)
        done = call(*words, "study.name=lost")
        if done.code:
            assert done.stderr.startswith("automl: ")
        if name == "journal.log":
            assert "journal.log: line " in done.stderr
        if name == "events.log":
            assert set(Records(tmp_path, "lost").outcomes()) == set(range(N_TRIALS))
