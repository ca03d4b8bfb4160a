"""How trials end, seen from outside: a user's function in, one outcome out."""

from __future__ import annotations

import signal
import sys
import types
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import ObjectiveConfig, ObjectiveKind
from automl.errors import StorageError
from automl.in_trial.checkpoints import torch_checkpoint
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import TrainingSession, open_session
from automl.trial import (
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    MetricsReported,
    OutOfMemoryOutcome,
    Placement,
    PrunedOutcome,
    TrialEvent,
    TrialOutcome,
    Verdict,
)
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.objectives.objectives import ONE_HALF
from tests.places import placed

GPU = placed("GPU-a", 0)


def run(
    tmp_path: Path,
    name: str,
    verdicts: dict[int, Verdict] | None = None,
    space: Sequence[str] = ("lr", "width"),
    placement: Placement = HOST,
) -> TrialOutcome:
    objective = ObjectiveConfig(ObjectiveKind.python, f"tests.objectives.objectives:{name}")
    listener = Listener(verdicts or {})
    spec = make_spec(tmp_path, {"lr": 0.1, "width": 8})
    open_session(SessionSetup(make_plan(objective=objective, space=space))).run(
        spec, placement, listener
    )
    return listener.outcome


def failed(outcome: TrialOutcome) -> FailedOutcome:
    assert isinstance(outcome, FailedOutcome)
    assert "\n" not in outcome.cause
    return outcome


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("returns_a_number", 0.25),
        ("reports_only", 0.2),
        ("returns_a_tensor", 0.5),
        ("returns_metrics", 0.5),
        ("reports_and_returns_metrics", 0.25),
        ("takes_params_by_name", 0.1 * 8 * 2),
    ],
)
def test_the_value_is_what_is_returned_else_the_best_report(
    tmp_path: Path, name: str, value: float
) -> None:
    outcome = run(tmp_path, name)
    assert isinstance(outcome, FinishedOutcome)
    assert outcome.value == value


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("does_nothing", "nothing returned and nothing reported: return a number, or call"),
        ("returns_nan", "the objective returned nan: return a finite number"),
        ("returns_a_string", "the objective returned '1.5' (str): return a finite number"),
        ("returns_a_text_among_metrics", "TypeError: report(metrics): 'note' is 'good' (str); a"),
        ("reports_nan", "val_loss was never a finite number in 1 reported steps."),
        ("raises", "ValueError: the rows are odd"),
        ("exits", "SystemExit: cannot go on"),
        ("looks_up_elsewhere", "KeyError: 'lrr' (the trial's params: lr, width)"),
        ("prunes_itself_at_once", "TrialPruned was raised, but nothing returned and nothing"),
    ],
)
def test_what_is_no_value_fails_the_trial_with_its_cause(
    tmp_path: Path, name: str, cause: str
) -> None:
    outcome = failed(run(tmp_path, name))
    assert outcome.cause.startswith(cause)
    assert not outcome.hopeless


def test_code_that_reports_to_ray_is_told_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ray.tune", "ray.train"):  # another test of this process may have imported them
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert "Ray" not in failed(run(tmp_path, "does_nothing")).cause
    monkeypatch.setitem(sys.modules, "ray.tune", types.ModuleType("ray.tune"))
    cause = failed(run(tmp_path, "does_nothing")).cause
    assert cause.endswith("write automl.report({'val_loss': …}) in its place.")


@pytest.mark.parametrize("returned", ONE_HALF, ids=repr)
def test_a_number_of_any_library_is_a_value(tmp_path: Path, returned: object) -> None:
    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "math:exp"))
    listener = Listener()
    with warnings.catch_warnings(action="error"):
        TrainingSession(plan, lambda trial: returned).run(make_spec(tmp_path), HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    assert listener.outcome.value == 0.5


@pytest.mark.parametrize(
    "returned",
    [*(np.zeros(2), torch.zeros(2, 2), np.array(["0.5"]), np.bool_(True), True, 0.5j, 10**400)],
    ids=repr,
)
def test_what_is_no_single_number_is_no_value(tmp_path: Path, returned: object) -> None:
    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "math:exp"))
    listener = Listener()
    TrainingSession(plan, lambda trial: returned).run(make_spec(tmp_path), HOST, listener)
    assert "return a finite number" in failed(listener.outcome).cause


@pytest.mark.parametrize(
    ("handler", "kind"),
    [(signal.SIG_IGN, FailedOutcome), (signal.default_int_handler, InterruptedOutcome)],
)
def test_a_keyboard_interrupt_that_nobody_typed_is_a_failure(
    tmp_path: Path, handler: Any, kind: type[TrialOutcome]
) -> None:
    before = signal.signal(signal.SIGINT, handler)
    try:
        outcome = run(tmp_path, "interrupts_itself")
    finally:
        signal.signal(signal.SIGINT, before)
    assert isinstance(outcome, kind)
    if isinstance(outcome, FailedOutcome):
        assert outcome.cause == "its objective raised KeyboardInterrupt: no more of this"


def test_the_traceback_is_kept_for_details(tmp_path: Path) -> None:
    details = failed(run(tmp_path, "raises")).details
    assert 'raise ValueError("the rows\\nare odd")' in details


def test_a_metric_that_is_never_reported_names_both_lists(tmp_path: Path) -> None:
    outcome = failed(run(tmp_path, "reports_another_metric"))
    assert "Wanted: val_loss; reported: acc, loss." in outcome.cause
    assert outcome.hopeless


def test_a_param_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    outcome = failed(run(tmp_path, "looks_up_a_missing_param"))
    assert outcome.cause == "MissingParamError: 'lrr' is not among the trial's params: lr, width"
    assert outcome.hopeless


def test_a_param_that_other_trials_have_does_not_end_the_study(tmp_path: Path) -> None:
    outcome = failed(run(tmp_path, "looks_up_a_missing_param", space=("lr", "width", "lrr")))
    assert not outcome.hopeless


def test_params_passed_on_to_a_function_that_takes_others_are_named(tmp_path: Path) -> None:
    outcome = failed(run(tmp_path, "passes_params_on"))
    assert "unexpected keyword argument 'lr' (the trial's params: lr, width)" in outcome.cause


@pytest.mark.parametrize(
    "name", ["runs_out_of_memory", "asks_the_host_for_too_much", "asks_python_for_too_much"]
)
def test_out_of_memory_is_no_failure(tmp_path: Path, name: str) -> None:
    assert isinstance(run(tmp_path, name), OutOfMemoryOutcome)


def test_a_process_of_several_that_died_is_a_death(tmp_path: Path) -> None:
    ended = run(tmp_path, "loses_a_process")
    assert isinstance(ended, InterruptedOutcome)
    assert ended.cause == "process 2 of 2 ended"
    assert ended.by_worker_death
    assert ended.killed, "the trial's own process lives"


def test_a_gpu_that_fails_is_no_failure_of_its_trial(tmp_path: Path) -> None:
    outcome = run(tmp_path, "loses_its_gpu", placement=GPU)
    assert isinstance(outcome, InterruptedOutcome)
    assert outcome.by_worker_death
    assert outcome.cause.startswith("its GPU failed: RuntimeError: CUDA error: uncorrectable ECC")
    bug = failed(run(tmp_path, "has_a_bug_on_its_gpu", placement=GPU))
    assert "device-side assert" in bug.cause


def test_a_trial_on_the_host_that_asks_for_a_gpu_has_failed_and_says_where(tmp_path: Path) -> None:
    outcome = failed(run(tmp_path, "wants_a_gpu_on_the_host"))
    assert "No CUDA GPUs" in outcome.cause
    assert "in wants_a_gpu_on_the_host" in outcome.details


def test_an_objective_may_prune_itself(tmp_path: Path) -> None:
    outcome = run(tmp_path, "prunes_itself")
    assert isinstance(outcome, PrunedOutcome)
    assert (outcome.step, outcome.value) == (0, 0.5)


@pytest.mark.parametrize(
    ("verdict", "kind"), [(Verdict.PRUNE, PrunedOutcome), (Verdict.STOP, InterruptedOutcome)]
)
@pytest.mark.parametrize("name", ["reports_only", "swallows_everything"])
def test_a_verdict_decides_the_outcome(
    tmp_path: Path, name: str, verdict: Verdict, kind: type[TrialOutcome]
) -> None:
    outcome = run(tmp_path, name, {1: verdict})
    assert isinstance(outcome, kind)
    if isinstance(outcome, PrunedOutcome):
        assert outcome.step == 1


def test_what_breaks_outside_of_the_trial_is_raised_and_is_no_outcome(tmp_path: Path) -> None:
    events: list[TrialEvent] = []

    def full_disk(event: TrialEvent) -> Verdict:
        events.append(event)
        raise StorageError("no space left")

    target = "tests.objectives.objectives:swallows_everything"
    session = open_session(
        SessionSetup(make_plan(objective=ObjectiveConfig(ObjectiveKind.python, target)))
    )
    with pytest.raises(StorageError, match="no space left"):
        session.run(make_spec(tmp_path), HOST, full_disk)
    assert [type(event) for event in events] == [MetricsReported]


def test_a_folder_that_cannot_be_made_is_no_failure_of_the_trial(tmp_path: Path) -> None:
    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, "math:exp"))
    (tmp_path / "trial-00000").write_text("no folder")
    session = TrainingSession(plan, lambda trial: str(trial.directory))
    with pytest.raises(StorageError, match="trial-00000: the trial's folder could not be made"):
        session.run(make_spec(tmp_path), HOST, Listener())


def test_metrics_that_are_returned_are_of_the_last_step_and_prune_nobody(tmp_path: Path) -> None:
    target = "tests.objectives.objectives:reports_and_returns_metrics"
    plan = make_plan(objective=ObjectiveConfig(ObjectiveKind.python, target))
    listener = Listener()

    def on_event(event: TrialEvent) -> Verdict:
        listener(event)
        is_last = isinstance(event, MetricsReported) and "test_acc" in event.metrics
        return Verdict.PRUNE if is_last else Verdict.GO_ON

    open_session(SessionSetup(plan)).run(make_spec(tmp_path), HOST, on_event)
    assert listener.reports[-2:] == [(2, {"val_loss": 0.3}), (2, {"test_acc": 0.9})]
    assert isinstance(listener.outcome, FinishedOutcome)
    last = torch_checkpoint.load(tmp_path / "trial-00000" / "last.pt")
    assert last["reports"][2] == {"val_loss": 0.3, "test_acc": 0.9}


def test_without_the_studys_metric_among_what_is_returned_no_trial_can_succeed(
    tmp_path: Path,
) -> None:
    outcome = failed(run(tmp_path, "returns_another_metric"))
    assert outcome.hopeless
    assert "Wanted: val_loss; reported: acc." in outcome.cause
