"""The disk of a study: whose files are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from automl.record.event_log import EventLog, read_events
from automl.record.study_files import StudyFiles
from automl.running.features.retention import CheckpointRetention
from automl.search.trial_standings import RankedTrial
from automl.trial import (
    CheckpointKind,
    EnsembleBuilt,
    FinishedOutcome,
    InterruptedOutcome,
    TrialFilesRemoved,
    TrialStarted,
    TrialState,
)

VALUES = [5.0, 3.0, 4.0, 1.0, 2.0]


def make_files(study: Path, number: int) -> None:
    files = StudyFiles(study)
    files.program_files(number).mkdir(parents=True)
    (files.program_files(number) / "notes").touch()
    files.logged_files(number).mkdir()
    for kind in CheckpointKind:
        files.checkpoint(number, kind).touch()


def end_trial(log: EventLog, study: Path, number: int) -> None:
    log.append(TrialStarted(number, 1.0, params={}, device="cpu"))
    make_files(study, number)
    log.append(ended(number))


def ended(number: int) -> FinishedOutcome:
    return FinishedOutcome(number, 2.0, VALUES[number])


@contextmanager
def sweep(study: Path, n_best: int) -> Iterator[tuple[EventLog, CheckpointRetention]]:
    """Yield the event log of a sweep that begins, and its retention."""

    def ranking(n: int) -> list[RankedTrial]:
        numbers = [n for n in range(5) if StudyFiles(study).logged_files(n).exists()]
        best = sorted(numbers, key=VALUES.__getitem__)[:n]
        return [RankedTrial(n, VALUES[n], {}, TrialState.FINISHED) for n in best]

    with EventLog.open(study / "events.log") as log:
        yield log, CheckpointRetention(n_best, ranking, log, StudyFiles(study))


def holding(study: Path) -> set[int]:
    """Return the trials that have checkpoints; all files of the others but logged ones are gone."""
    files = StudyFiles(study)
    found = {n for n in range(9) if files.checkpoint(n, CheckpointKind.LAST).exists()}
    assert {n for n in range(9) if files.checkpoint(n, CheckpointKind.BEST).exists()} == found
    assert {n for n in range(9) if files.program_files(n).exists()} == found
    return found


def test_the_best_so_far_keep_their_files(tmp_path: Path) -> None:
    kept = []
    with sweep(tmp_path, 2) as (log, retention):
        for number in range(5):
            end_trial(log, tmp_path, number)
            retention.trial_ended(ended(number))
            kept.append(holding(tmp_path))
    assert kept == [{0}, {0, 1}, {1, 2}, {1, 3}, {3, 4}]
    events = [event for event, _ in read_events(tmp_path / "events.log")]
    removed = [event.trials for event in events if isinstance(event, TrialFilesRemoved)]
    assert removed == [(0,), (2,), (1,)], "as the deliverer removes them from MLflow"
    assert all(StudyFiles(tmp_path).logged_files(n).exists() for n in range(5))


def test_a_later_sweep_removes_what_an_earlier_one_kept_and_spares_what_goes_on(
    tmp_path: Path,
) -> None:
    with sweep(tmp_path, 5) as (log, _):
        for number in range(4):
            end_trial(log, tmp_path, number)
        log.append(TrialStarted(7, 3.0, params={}, device="cpu"))
        make_files(tmp_path, 7)
        log.append(InterruptedOutcome(7, 4.0, "Ctrl-C"))
    with sweep(tmp_path, 1) as (_, retention):
        retention.begin()
    assert holding(tmp_path) == {3, 7}
    n_bytes = (tmp_path / "events.log").stat().st_size
    with sweep(tmp_path, 1) as (_, retention):
        retention.begin()
    assert (tmp_path / "events.log").stat().st_size == n_bytes, "nothing is left to say"


def test_members_of_the_ensemble_keep_their_files(tmp_path: Path) -> None:
    with sweep(tmp_path, 5) as (log, _):
        for number in range(5):
            end_trial(log, tmp_path, number)
        log.append(EnsembleBuilt(5.0, 60, {0: 0.5, 3: 0.5}, {}))
    with sweep(tmp_path, 1) as (_, retention):
        retention.begin()
    assert holding(tmp_path) == {0, 3}
