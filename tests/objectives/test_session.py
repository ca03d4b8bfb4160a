"""Sessions of the built-in objective: events, files, going on, and neighbours."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from automl.config import TrainingConfig
from automl.data.dataset import Dataset
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.heavy import SIDE
from automl.models.family import EstimatorSetup
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import TrainingSession, open_session
from automl.trial import (
    CheckpointWritten,
    FailedOutcome,
    FinishedOutcome,
    InterruptedOutcome,
    ObjectiveSession,
    Params,
    ParamValue,
    Placement,
    PrunedOutcome,
    Verdict,
)
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.places import placed

PARAMS: dict[str, ParamValue] = {
    "depth": 2,
    "width": 16,
    "lr": 0.01,
    "batch_size": 32,
    "dropout": 0.1,
}


def make_session(dataset: Dataset, epochs: int = 6) -> TrainingSession:
    training = TrainingConfig(epochs=epochs)
    plan = make_plan(training=training)
    return TrainingSession(
        plan, SIDE.open_estimator(EstimatorSetup(MLPFamily(), dataset, training))
    )


def run(
    session: ObjectiveSession,
    folder: Path,
    params: Params | None = None,
    *,
    number: int = 0,
    verdicts: dict[int, Verdict] | None = None,
    placement: Placement = HOST,
) -> Listener:
    listener = Listener(verdicts or {})
    spec = make_spec(folder, PARAMS if params is None else params, number)
    session.run(spec, placement, listener)
    return listener


def test_a_trial_reports_each_epoch_and_leaves_both_files(tmp_path: Path, disc: Dataset) -> None:
    listener = run(make_session(disc), tmp_path)
    assert [step for step, _ in listener.reports] == [0, 1, 2, 3, 4, 5]
    losses = [metrics["val_loss"] for _, metrics in listener.reports]
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == min(losses)
    files = {e.kind.value: e for e in listener.events if isinstance(e, CheckpointWritten)}
    assert set(files) == {"best", "last"}
    assert files["last"].step == 5
    assert files["best"].step == losses.index(min(losses))
    for event in files.values():
        assert torch.load(event.path, weights_only=True)["params"] == PARAMS


def test_each_trial_trains_with_one_thread(disc: Dataset, tmp_path: Path) -> None:
    session = open_session(SessionSetup(make_plan(training=TrainingConfig(epochs=2)), disc))
    assert torch.get_num_threads() == 1
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [1]
    assert isinstance(run(session, tmp_path).outcome, FinishedOutcome)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_interrupted_after_epoch_3_and_resumed_equals_the_whole(
    tmp_path: Path, disc: Dataset, optimizer: str
) -> None:
    params = PARAMS | {"optimizer": optimizer}
    whole = run(make_session(disc), tmp_path / "whole", params)

    halves = tmp_path / "halves"
    first = run(make_session(disc), halves, params, verdicts={3: Verdict.STOP})
    assert isinstance(first.outcome, InterruptedOutcome)
    assert first.reports == whole.reports[:4]
    second = run(make_session(disc), halves, params)  # as in a new process
    assert second.reports == whole.reports  # the first four repeated, then the rest
    assert isinstance(second.outcome, FinishedOutcome)
    assert isinstance(whole.outcome, FinishedOutcome)
    assert second.outcome.value == whole.outcome.value
    ours, theirs = (
        torch_checkpoint.load(folder / "trial-00000" / "best.pt")
        for folder in (halves, tmp_path / "whole")
    )
    assert ours["step"] == theirs["step"]
    for name, weight in theirs["state"]["weights"].items():
        assert torch.equal(ours["state"]["weights"][name], weight)


def test_neighbours_in_three_threads_change_nothing(tmp_path: Path, disc: Dataset) -> None:
    session = make_session(disc)
    alone = run(session, tmp_path / "alone")
    together: dict[int, Listener] = {}

    def work(number: int) -> None:
        params = PARAMS if number == 0 else PARAMS | {"width": 24, "lr": 0.02}
        together[number] = run(session, tmp_path / "together", params, number=number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together[0].reports == alone.reports
    assert all(isinstance(listener.outcome, FinishedOutcome) for listener in together.values())
    assert together[1].reports != together[2].reports  # same params, another number


def test_a_pruned_trial_keeps_its_best_and_its_last(tmp_path: Path, disc: Dataset) -> None:
    listener = run(make_session(disc), tmp_path, verdicts={2: Verdict.PRUNE})
    assert isinstance(listener.outcome, PrunedOutcome)
    assert listener.outcome.step == 2
    assert listener.outcome.value == min(metrics["val_loss"] for _, metrics in listener.reports)
    assert torch_checkpoint.load(tmp_path / "trial-00000" / "last.pt")["step"] == 2


def test_training_that_diverges_fails_early_with_that_cause(tmp_path: Path, plane: Dataset) -> None:
    params = PARAMS | {"lr": 1e8, "optimizer": "sgd"}
    listener = run(make_session(plane), tmp_path, params)
    assert isinstance(listener.outcome, FailedOutcome)
    assert "training diverged in epoch 0" in listener.outcome.cause
    assert listener.reports == []


def test_a_param_that_cannot_be_fails_with_its_rule(tmp_path: Path, disc: Dataset) -> None:
    listener = run(make_session(disc), tmp_path, {"optimizer": "adamm"})
    assert isinstance(listener.outcome, FailedOutcome)
    assert "optimizer='adamm': must be one of sgd, adam, adamw." in listener.outcome.cause


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a torch that sees no GPU")
def test_a_gpu_that_torch_cannot_use_means_the_cpu_said_once(
    tmp_path: Path, disc: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    session = make_session(disc, epochs=1)
    for number in range(2):
        gpu = placed("GPU-1234", 2**30, name="Stub 9000")
        listener = run(session, tmp_path, number=number, placement=gpu)
        assert isinstance(listener.outcome, FinishedOutcome)
    assert [m.split(":")[1] for m in caplog.messages] == [" its trials train on the CPU."]
    assert "cannot use Stub 9000 (GPU-1234)" in caplog.text
    assert sum(session.held_bytes()) == 0
    session.give_back_memory()
