"""What a library logs for an objective: from which threads, and beside the objective's reports."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from automl.in_trial.goal import StudyGoal
from automl.in_trial.reports.logged_values import TrialLogReceiver
from automl.in_trial.reports.report_values import MAX_TAGS
from automl.in_trial.reports.trial_reports import TrialReports
from automl.in_trial.trial_context import TrialInterrupted
from automl.trial import Direction, LoggedPoint, TrialEvent, TrialTagged, ValuesLogged, Verdict
from tests.models.conftest import Listener, make_spec

_PATIENCE_SECONDS = 0.2


class OneAtATime:
    """A listener that gives a second thread time to come in."""

    def __init__(self) -> None:
        self.met = False
        self._inside = threading.Semaphore(1)
        self._second = threading.Event()

    def __call__(self, event: TrialEvent) -> Verdict:
        if not self._inside.acquire(blocking=False):
            self.met = True
            self._second.set()
            return Verdict.GO_ON
        self._second.wait(_PATIENCE_SECONDS)
        self._inside.release()
        return Verdict.GO_ON


def make_record(folder: Path, listener: Listener | OneAtATime) -> TrialReports:
    goal = StudyGoal("val_loss", Direction.minimize)
    return TrialReports(make_spec(folder), goal, listener, checkpoint_every_seconds=60.0)


def point(value: float, step: int = 0, name: str = "val_loss") -> LoggedPoint:
    return LoggedPoint(name, value, step, 17)


def in_a_thread(call: threading.Thread) -> None:
    call.start()
    call.join()


def test_what_is_sent_is_sent_by_one_thread_at_a_time(tmp_path: Path) -> None:
    listener = OneAtATime()
    record = make_record(tmp_path, listener)
    side = TrialLogReceiver(record)
    thread = threading.Thread(target=side.log, args=([point(0.5, name="other")],))
    thread.start()
    record.report(0, {"val_loss": 0.5}, None, None)
    thread.join()
    assert not listener.met


def test_a_checkpoint_is_asked_for_in_the_trials_own_thread_alone(tmp_path: Path) -> None:
    record = make_record(tmp_path, Listener({1: Verdict.STOP}))
    asked: list[int] = []

    def state() -> dict[str, int]:
        asked.append(threading.get_ident())
        return {"epoch": 0}

    side = TrialLogReceiver(record)
    record.report(0, {"other": 0.5}, state, None)
    in_a_thread(threading.Thread(target=side.log, args=([point(0.5, 1)],)))
    with pytest.raises(TrialInterrupted):
        side.log([point(0.5, name="other")])
    assert set(asked) <= {threading.get_ident()}


def test_after_an_interruption_values_without_a_step_are_counted_on(tmp_path: Path) -> None:
    def state() -> dict[str, int]:
        return {"epoch": 1}

    first = make_record(tmp_path, Listener())
    for step in range(2):
        first.report(step, {"val_loss": 1.0 - step}, state, None)
    first.write()
    listener = Listener()
    again = make_record(tmp_path, listener)
    assert again.restore() == {"epoch": 1}
    TrialLogReceiver(again).log([point(0.25)])
    assert [step for step, _ in listener.reports] == [0, 1, 2]


@pytest.mark.parametrize("step", [-1, 2**53 + 1])
def test_a_step_that_no_report_can_have_is_counted(tmp_path: Path, step: int) -> None:
    listener = Listener()
    side = TrialLogReceiver(make_record(tmp_path, listener))
    for value in (0.5, 0.25):
        side.log([point(value, step)])
    assert listener.reports == [(0, {"val_loss": 0.5}), (1, {"val_loss": 0.25})]


def test_tags_of_the_librarys_own_are_none_and_so_many_are_kept(tmp_path: Path) -> None:
    listener = Listener()
    record = make_record(tmp_path, listener)
    side = TrialLogReceiver(record)
    side.log(tags={"mlflow.user": "ann", "automl.state": "x", "": "y", "long": "z" * 9000})
    side.log(tags={f"tag {n}": "x" for n in range(2 * MAX_TAGS)})
    for n in range(MAX_TAGS // 2 - 1):
        record.set_tag(f"own {n}", "x")
    side.log(tags={"tag 0": "y", "one more": "x"})
    told = [e for e in listener.events if isinstance(e, TrialTagged)]
    assert len(told[0].text) == 5000
    assert (record.n_tags, told[-1].text) == (MAX_TAGS - 1, "y")


def test_what_is_no_report_is_one_event(tmp_path: Path) -> None:
    listener = Listener()
    side = TrialLogReceiver(make_record(tmp_path, listener))
    side.log([point(0.5, name="a"), point(0.25, 7, "b")], {"batch": "8"})
    side.log()
    (event,) = listener.events
    assert isinstance(event, ValuesLogged)
    assert [p.name for p in event.points] == ["a", "b"]
    assert event.params == {"batch": "8"}
