"""What one sweep of a shared study tells its loop of the others."""

from __future__ import annotations

from pathlib import Path

from automl.config import StudyConfig
from automl.record.sharing import study_tables
from automl.record.study_directory import StudyDirectory
from automl.running.loop.messages import LoopMessage, PeerSweepsObserved
from automl.running.opening.database_store import SharingSweeps
from automl.search.samplers.grid import GridSampler
from automl.search.shared_study import SharedStudy
from tests.postgres import database, postgres
from tests.search.joining import N_COMBINATIONS, Join, join

__all__ = ["database", "join", "postgres"]


def told_at_first(study: SharedStudy, folder: Path) -> tuple[PeerSweepsObserved, SharingSweeps]:
    """What the loop knows until the keeper looks again, and what it may ask."""
    posted: list[LoopMessage] = []
    config = StudyConfig(name="a", dir=str(folder))
    with StudyDirectory.open(config, must_exist=False) as directory:
        together = SharingSweeps(study._shared, study, directory)
    together.start(frozenset, posted.append, lambda trials: None, lambda until_seconds: None)
    assert isinstance(posted[0], PeerSweepsObserved)
    return posted[0], together


def test_a_sweep_that_has_nothing_to_ask_knows_of_what_others_began_just_now(
    join: Join, tmp_path: Path
) -> None:
    """Else it ends before they do, as one that was stopped for a while did."""
    ours, other = join(GridSampler(), 100), join(GridSampler(), 100)
    told, others = told_at_first(ours, tmp_path)
    assert not told.run
    assert ours.ask() is not None
    assert not others.may_run(), "it holds that itself"
    for _ in range(N_COMBINATIONS - 1):
        assert other.ask() is not None
    assert ours.ask() is None
    assert others.may_run()


def test_a_trial_whose_end_this_version_cannot_read_keeps_no_sweep_alive(
    join: Join, tmp_path: Path
) -> None:
    """The keeper knows from the table of trials that it has ended."""
    ours, other = join(GridSampler(), 100), join(GridSampler(), 100)
    _, others = told_at_first(ours, tmp_path)
    trial = other.ask()
    assert trial is not None
    assert ours._shared.pull()
    ours.add_news()
    assert others.may_run()
    with ours._shared._main_database.transaction() as cursor:
        study_tables.end_trials(cursor, 1, [trial.number])
    ours._shared.look()
    assert ours._standings.is_running(trial.number), "nothing was heard of its end"
    assert not others.may_run()


def test_a_trial_of_another_sweep_runs_there_until_that_gives_it_back(
    join: Join, tmp_path: Path
) -> None:
    """It is none that was interrupted, and one that has just ended here is not of another."""
    ours, other = join(GridSampler(), 100), join(GridSampler(), 100)
    with StudyDirectory.open(StudyConfig(name="a", dir=str(tmp_path)), must_exist=False) as opened:
        together = SharingSweeps(ours._shared, ours, opened)
    own = ours.ask()
    assert own is not None
    assert other.ask() is not None
    assert ours._shared.pull()
    ours.add_news()
    assert together.n_running() == 1
    ours._shared.log.let_go([own.number])
    assert together.n_running({own.number}) == 1
    with ours._shared._main_database.transaction() as cursor:
        study_tables.give_back_trials(cursor, 1, other._shared.sweep)
    ours._shared.look()
    assert together.n_running({own.number}) == 0
