"""Reports: events, best so far, when files are written, verdicts, and going on after them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from automl.errors import StorageError
from automl.in_trial.trial_context import TrialInterrupted, TrialPruned
from automl.trial import (
    CheckpointWritten,
    Direction,
    MetricsReported,
    TrialEvent,
    ValuesLogged,
    Verdict,
)
from tests.in_trial.reporting import Clock, make_trial, stored, written
from tests.models.conftest import Listener


def test_reports_become_events_with_plain_floats(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    trial.report(0, {"val_loss": torch.tensor(0.5), "acc": np.float32(0.25), "n": 3})  # type: ignore[dict-item]
    assert listener.reports == [(0, {"val_loss": 0.5, "acc": 0.25, "n": 3.0})]
    assert all(type(v) is float for v in listener.reports[0][1].values())
    assert not (tmp_path / "trial-00000").exists()  # no checkpoint given, none written


def test_best_holds_the_best_report_and_last_the_newest(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for step, loss in enumerate([0.5, 0.2, 0.3]):
        trial.report(step, {"val_loss": loss}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 1}
    assert stored(tmp_path, "best.pt")["value"] == 0.2
    assert stored(tmp_path, "best.pt")["params"] == {"lr": 0.1}
    assert stored(tmp_path, "last.pt")["state"] == {"epoch": 2}
    assert list(stored(tmp_path, "last.pt")["reports"]) == [0, 1, 2]
    assert written(listener) == [(0, "best"), (0, "last"), (1, "best"), (1, "last"), (2, "last")]
    assert record.best_value == 0.2


def test_where_nothing_is_held_out_the_last_report_is_the_best(tmp_path: Path) -> None:
    trial, record = make_trial(tmp_path, Listener(), keeps_last=True)
    for step, loss in enumerate([0.5, 0.2, 0.3]):
        trial.report(step, {"val_loss": loss}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 2}
    assert record.best_value == 0.3
    again, record = make_trial(tmp_path, Listener(), keeps_last=True)
    again.restore()
    again.report(3, {"val_loss": 0.4}, lambda: {"epoch": 3})
    assert stored(tmp_path, "best.pt")["step"] == 3


def test_maximize_keeps_the_largest(tmp_path: Path) -> None:
    trial, record = make_trial(tmp_path, Listener(), direction=Direction.maximize)
    for step, value in enumerate([0.5, 0.9, 0.3]):
        trial.report(step, {"val_loss": value})
    assert record.best_value == 0.9


@pytest.mark.parametrize("direction", Direction)
def test_of_two_equal_reports_the_earlier_is_best(tmp_path: Path, direction: Direction) -> None:
    trial, _ = make_trial(tmp_path, Listener(), direction=direction)
    for step in range(2):
        trial.report(step, {"val_loss": 0.5}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}


def test_files_are_written_as_seldom_as_asked_and_at_the_end(tmp_path: Path) -> None:
    listener, clock = Listener(), Clock()
    trial, record = make_trial(tmp_path, listener, every_seconds=10, clock=clock)
    states: list[int] = []
    for step in range(6):
        clock.seconds += 4
        trial.report(
            step,
            {"val_loss": 1.0 if step else 0.5},  # the first is the best
            lambda step=step: states.append(step) or {"epoch": step},  # type: ignore[misc, func-returns-value]
        )
    assert written(listener) == [(0, "best"), (2, "last"), (5, "last")]
    assert states == [0, 2, 5]  # asked for its state only when needed
    record.write()
    assert written(listener)[-1] == (5, "last")  # the end has nothing newer to write
    clock.seconds += 1
    trial.report(6, {"val_loss": 0.1}, lambda: {"epoch": 6})
    record.write()
    assert written(listener)[-2:] == [(6, "best"), (6, "last")]


def test_best_may_hold_less_than_what_is_needed_to_go_on(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    trial.report(0, {"val_loss": 1.0}, lambda: {"everything": 1}, lambda: {"weights": 2})
    assert stored(tmp_path, "last.pt")["state"] == {"everything": 1}
    assert stored(tmp_path, "best.pt")["state"] == {"weights": 2}


@pytest.mark.parametrize(
    ("verdict", "raised"),
    [(Verdict.PRUNE, TrialPruned), (Verdict.STOP, TrialInterrupted)],
)
def test_a_verdict_writes_the_checkpoint_and_stays(
    tmp_path: Path, verdict: Verdict, raised: type[BaseException]
) -> None:
    listener = Listener({1: verdict})
    trial, record = make_trial(tmp_path, listener, every_seconds=100)
    trial.report(0, {"val_loss": 1.0}, lambda: {"epoch": 0})
    with pytest.raises(raised):
        trial.report(1, {"val_loss": 2.0}, lambda: {"epoch": 1})
    assert stored(tmp_path, "last.pt")["state"] == {"epoch": 1}
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}
    with pytest.raises(raised):  # an objective that swallowed it
        trial.report(2, {"val_loss": 3.0})
    assert [step for step, _ in listener.reports] == [0, 1]
    assert record.best_value == 1.0


def test_a_report_that_brings_nothing_new_tells_whether_to_go_on(tmp_path: Path) -> None:
    listener = Listener()

    def stop_after_the_first(event: TrialEvent) -> Verdict:
        return listener(event) if not listener.events else Verdict.STOP

    trial, _ = make_trial(tmp_path, stop_after_the_first)
    trial.report(0, {"val_loss": 0.5})
    with pytest.raises(TrialInterrupted):
        trial.report(0, {"val_loss": 0.5})
    assert listener.reports == [(0, {"val_loss": 0.5})]


def test_an_except_exception_in_the_objective_lets_a_verdict_pass() -> None:
    assert not any(issubclass(kind, Exception) for kind in (TrialPruned, TrialInterrupted))


def test_restore_gives_the_state_and_repeats_the_reports(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({1: Verdict.STOP}))
    trial.report(0, {"val_loss": 0.5}, lambda: {"epoch": 0})
    with pytest.raises(TrialInterrupted):
        trial.report(1, {"val_loss": 0.7}, lambda: {"epoch": 1})

    again = Listener()
    trial, record = make_trial(tmp_path, again)
    assert trial.restore() == {"epoch": 1}
    assert again.reports == [(0, {"val_loss": 0.5}), (1, {"val_loss": 0.7})]
    trial.report(2, {"val_loss": 0.6}, lambda: {"epoch": 2})
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}  # still the best
    assert list(stored(tmp_path, "last.pt")["reports"]) == [0, 1, 2]
    assert record.best_value == 0.5


def test_without_a_checkpoint_there_is_nothing_to_restore(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    assert trial.restore() is None
    assert listener.events == []


def test_an_unreadable_checkpoint_starts_the_trial_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    (trial.directory / "last.pt").write_bytes(b"not a checkpoint")
    assert trial.restore() is None
    assert "trial 0 starts anew" in caplog.text


def test_a_trial_goes_on_from_the_checkpoint_before_a_damaged_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    for step in range(3):
        trial.report(step, {"val_loss": 0.5}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    last = trial.directory / "last.pt"
    for _ in range(2):
        last.write_bytes(last.read_bytes()[:-100])
        listener = Listener()
        trial, record = make_trial(tmp_path, listener)
        assert trial.restore() == {"epoch": 1}
        assert [step for step, _ in listener.reports] == [0, 1]
        trial.report(2, {"val_loss": 0.5}, lambda: {"epoch": 2})
    assert caplog.text.count("trial 0 goes on from the checkpoint before") == 2
    assert caplog.text.count(str(last)) == 2
    record.finish()
    assert sorted(path.name for path in trial.directory.iterdir()) == ["best.pt", "last.pt"]


def test_a_pruned_trial_keeps_no_checkpoint_of_before(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({1: Verdict.PRUNE}))
    trial.report(0, {"val_loss": 0.5}, lambda: {"epoch": 0})
    with pytest.raises(TrialPruned):
        trial.report(1, {"val_loss": 0.7}, lambda: {"epoch": 1})
    assert sorted(path.name for path in trial.directory.iterdir()) == ["best.pt", "last.pt"]


@pytest.mark.parametrize("content", [{}, {"reports": 3}, {"reports": {"a": {}}, "best": None}])
def test_a_checkpoint_that_is_no_last_pt_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: dict[str, object]
) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    torch.save(content, trial.directory / "last.pt")
    assert trial.restore() is None
    assert "trial 0 starts anew" in caplog.text


def test_a_trial_killed_after_its_pruning_is_pruned_again(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({0: Verdict.PRUNE}))
    with pytest.raises(TrialPruned):
        trial.report(0, {"val_loss": 0.5}, lambda: {"epoch": 0})
    trial, record = make_trial(tmp_path, Listener())  # the log knows the report, and says go on
    with pytest.raises(TrialPruned):
        trial.restore()
    assert record.verdict is Verdict.PRUNE


def test_a_trial_that_was_told_to_stop_goes_on(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({0: Verdict.STOP}))
    with pytest.raises(TrialInterrupted):
        trial.report(0, {"val_loss": 0.5}, lambda: {"epoch": 0})
    trial, record = make_trial(tmp_path, Listener())
    assert trial.restore() == {"epoch": 0}
    assert record.verdict is Verdict.GO_ON


def test_a_stop_reaches_a_trial_that_restores(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    trial.report(0, {"val_loss": 0.5}, lambda: {"epoch": 0})
    trial, _ = make_trial(tmp_path, Listener({0: Verdict.STOP}))
    with pytest.raises(TrialInterrupted):
        trial.restore()


def test_what_is_not_finite_is_reported_but_never_best(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for step, loss in enumerate([float("nan"), float("-inf"), 0.5]):
        trial.report(step, {"val_loss": loss}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert len(listener.reports) == 3
    assert record.best_value == 0.5
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 2}


def test_only_the_best_report_that_is_kept_has_all_metrics(tmp_path: Path) -> None:
    listener, clock, asked = Listener(), Clock(), list[int]()
    trial, record = make_trial(tmp_path, listener, every_seconds=10, clock=clock)

    def scores(step: int) -> dict[str, float]:
        asked.append(step)
        return {"val_auc": step / 8, "val_loss": 7.0}

    for step, loss in enumerate([0.5, 0.2, 0.3]):
        trial.report(
            step,
            {"val_loss": loss},
            lambda step=step: {"epoch": step},  # type: ignore[misc]
            scores=lambda step=step: scores(step),  # type: ignore[misc]
        )
    record.write()
    record.write()
    assert asked == [1]
    assert stored(tmp_path, "best.pt")["metrics"] == {"val_loss": 0.2, "val_auc": 0.125}
    (logged,) = (event for event in listener.events if isinstance(event, ValuesLogged))
    assert [(point.name, point.step, point.value) for point in logged.points] == [
        ("val_auc", 1, 0.125)
    ]
    written_at = listener.events.index(logged)
    assert isinstance(listener.events[written_at + 1], CheckpointWritten)
    again, _ = make_trial(tmp_path, Listener())
    assert again.restore() == {"epoch": 2}


def test_trouble_outside_of_the_trial_stays_known(tmp_path: Path) -> None:
    def full_disk(event: TrialEvent) -> Verdict:
        assert isinstance(event, MetricsReported)
        raise StorageError("no space left")

    trial, record = make_trial(tmp_path, full_disk)
    for _ in range(2):  # also when the objective swallowed the first
        with pytest.raises(StorageError, match="no space left"):
            trial.report(0, {"val_loss": 1.0})
    assert isinstance(record.broken, StorageError)


def test_a_checkpoint_that_cannot_be_written_is_no_fault_of_the_trial(tmp_path: Path) -> None:
    (tmp_path / "trial-00000").write_text("in the way")
    trial, record = make_trial(tmp_path, Listener())
    with pytest.raises(StorageError, match="could not be written"):
        trial.report(0, {"val_loss": 1.0}, lambda: {"epoch": 0})
    assert isinstance(record.broken, StorageError)


def test_a_checkpoint_repeats_a_bounded_number_of_reports(tmp_path: Path) -> None:
    n = 12_000
    trial, _ = make_trial(tmp_path, Listener({n: Verdict.STOP}), every_seconds=100)
    for step in range(n):
        trial.report(step, {"val_loss": 1.0 if step else 0.5, "acc": 0.0}, lambda: {})
    with pytest.raises(TrialInterrupted):
        trial.report(n, {"loss": 1.0}, lambda: {})
    repeated = list(stored(tmp_path, "last.pt")["reports"])
    assert repeated == list(range(n + 1 - 10_000, n + 1))

    trial, record = make_trial(tmp_path, Listener())
    assert trial.restore() == {}
    assert (record.best_value, record.last_step, record.n_reports) == (0.5, n, n + 1)
    assert record.metric_names == {"val_loss", "acc", "loss"}
