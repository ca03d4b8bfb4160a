"""Reports: events, best so far, when files are written, verdicts, and going on after them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.errors import StorageError
from automl.training import checkpoint
from automl.training.goal import Goal
from automl.training.objective import TrialContext, TrialInterrupted, TrialPruned
from automl.training.reports import TrialReports
from automl.trial import (
    Checkpointed,
    Direction,
    Logged,
    OnEvent,
    Reported,
    Tagged,
    TrialEvent,
    Verdict,
)
from tests.training.conftest import Listener, make_spec


@dataclass
class Clock:
    """Seconds that pass when the test says so."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def make_trial(
    folder: Path,
    on_event: OnEvent,
    *,
    every_seconds: float = 0.0,
    clock: Callable[[], float] | None = None,
    direction: Direction = Direction.minimize,
    keeps_last: bool = False,
) -> tuple[TrialContext, TrialReports]:
    spec = make_spec(folder, {"lr": 0.1})
    goal = Goal("val_loss", direction, keeps_last=keeps_last)
    record = TrialReports(spec, goal, on_event, every_seconds, clock or Clock())
    return TrialContext(spec, devices=("cpu",), seed=1, record=record), record


def stored(folder: Path, name: str) -> dict[str, Any]:
    return checkpoint.load(folder / "trial-00000" / name)


def written(listener: Listener) -> list[tuple[int, str]]:
    return [(e.step, e.kind.value) for e in listener.events if isinstance(e, Checkpointed)]


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


@pytest.mark.parametrize("step", [-1, 1.0, True, "1", np.True_, np.float64(1)])
def test_a_step_is_a_whole_number(tmp_path: Path, step: Any) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    with pytest.raises(ValueError, match="a step is a whole number from 0"):
        trial.report(step, {"val_loss": 1.0})


@pytest.mark.parametrize("step", [2**53 + 1, 2**63, np.int64(2**60), torch.tensor(True)])
def test_a_step_is_one_that_every_store_can_hold(tmp_path: Path, step: Any) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    with pytest.raises(ValueError, match=r"from 0 to 9007199254740992 \(2\*\*53\)") as caught:
        trial.report(step, {"val_loss": 1.0})
    assert f"report(step={step!r})" in str(caught.value)
    assert listener.reports == []


def test_whole_numbers_of_other_libraries_are_steps(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for step in (np.int64(0), torch.tensor(1), np.uint8(2), 2**53):
        trial.report(step, {"val_loss": 1.0}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    assert [type(step) for step, _ in listener.reports] == [int] * 4
    assert [step for step, _ in listener.reports] == [0, 1, 2, 2**53]
    again, _ = make_trial(tmp_path, listener)
    state = again.restore()
    assert state is not None
    trial.report(state["epoch"], {"val_loss": 1.0})  # the same step as a plain number
    assert len(listener.reports) == 4 + 4  # told once, and repeated after the restore
    assert record.last_step == 2**53


def test_what_is_told_of_one_step_in_parts_is_one_report(tmp_path: Path) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    trial.report(0, {"val_loss": 0.5, "train_loss": 0.9})
    assert listener.reports == [(0, {"train_loss": 0.9}), (0, {"val_loss": 0.5})]
    assert (record.n_reports, record.best_value) == (1, 0.5)
    whole = {"train_loss": 0.9, "val_loss": 0.5}
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}  # the first part brought it
    assert stored(tmp_path, "best.pt")["metrics"] == whole
    assert stored(tmp_path, "last.pt")["reports"] == {0: whole}


def test_a_later_part_may_bring_the_state(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    trial.report(0, {"val_loss": 0.5})
    trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    trial.report(0, {"lr": 0.1})
    assert stored(tmp_path, "best.pt")["state"] == {"epoch": 0}
    assert written(listener)[:2] == [(0, "best"), (0, "last")]
    assert (0, "best") not in written(listener)[2:]


def test_a_late_part_of_an_earlier_step_leaves_the_newest_state(tmp_path: Path) -> None:
    trial, record = make_trial(tmp_path, Listener(), every_seconds=100)
    for step in range(2):
        trial.report(step, {"train_loss": 1.0}, lambda step=step: {"epoch": step})  # type: ignore[misc]
    trial.report(0, {"val_loss": 0.5})
    record.write()
    last = stored(tmp_path, "last.pt")
    assert (last["step"], last["state"]) == (1, {"epoch": 1})
    assert record.best_value == 0.5


def test_of_a_metric_that_is_told_twice_the_first_counts_which_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener = Listener()
    trial, record = make_trial(tmp_path, listener)
    for value in (0.5, 0.5, 0.1, 0.2):
        trial.report(3, {"val_loss": value})
    assert listener.reports == [(3, {"val_loss": 0.5})]
    assert record.best_value == 0.5
    assert [r.message for r in caplog.records] == [
        "trial 0: report(step=3) says val_loss again, and otherwise (0.5, then 0.1): the first "
        "counts. Count steps up."
    ]


def test_a_part_that_prunes_ends_the_trial_with_the_whole_report_written(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener({0: Verdict.PRUNE}))
    with pytest.raises(TrialPruned):
        trial.report(0, {"train_loss": 0.9}, lambda: {"epoch": 0})
    assert stored(tmp_path, "last.pt")["reports"] == {0: {"train_loss": 0.9}}


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
    (logged,) = (event for event in listener.events if isinstance(event, Logged))
    assert [(point.name, point.step, point.value) for point in logged.points] == [
        ("val_auc", 1, 0.125)
    ]
    written_at = listener.events.index(logged)
    assert isinstance(listener.events[written_at + 1], Checkpointed)
    again, _ = make_trial(tmp_path, Listener())
    assert again.restore() == {"epoch": 2}


def test_tags_are_told_once_and_again_when_they_change(tmp_path: Path) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    for value in ("a", "a", 3, "a"):
        trial.set_tag("what", value)
    told = [(e.name, e.text) for e in listener.events if isinstance(e, Tagged)]
    assert told == [("what", "a"), ("what", "3"), ("what", "a")]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("automl.state", "x", r"names that begin with automl\. or mlflow\. are taken"),
        ("", "x", "a tag's name is a string of 1 to 250"),
        (3, "x", "a tag's name is a string"),
        ("long", "x" * 5001, "its value has 5001 characters; give it at most 5000"),
    ],
)
def test_a_tag_that_cannot_be_is_refused(
    tmp_path: Path, name: Any, value: str, message: str
) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    with pytest.raises(ValueError, match=message):
        trial.set_tag(name, value)


def test_a_trial_has_a_bounded_number_of_tags(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    for number in range(100):
        trial.set_tag(f"tag {number}", number)
    trial.set_tag("tag 7", "again")
    with pytest.raises(ValueError, match="a trial has at most 100 tags"):
        trial.set_tag("one more", 1)


def test_a_verdict_on_a_tag_is_met_at_the_next_report(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, lambda event: Verdict.STOP)
    trial.set_tag("a", "b")
    with pytest.raises(TrialInterrupted):
        trial.report(0, {"val_loss": 1.0})


@pytest.mark.parametrize("value", ["0.5", None, [1.0, 2.0], True, torch.zeros(2)])
def test_a_metric_is_a_number(tmp_path: Path, value: Any) -> None:
    listener = Listener()
    trial, _ = make_trial(tmp_path, listener)
    with pytest.raises(TypeError, match=r"'val_loss' is .*; a metric is a number"):
        trial.report(0, {"val_loss": value})
    assert listener.events == []


def test_trouble_outside_of_the_trial_stays_known(tmp_path: Path) -> None:
    def full_disk(event: TrialEvent) -> Verdict:
        assert isinstance(event, Reported)
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


def test_a_metrics_name_is_bounded(tmp_path: Path) -> None:
    trial, _ = make_trial(tmp_path, Listener())
    trial.report(0, {"x" * 250: 1.0})
    with pytest.raises(ValueError, match=r"'xxx.* has 251 characters; give it at most 250"):
        trial.report(1, {"x" * 251: 1.0})
