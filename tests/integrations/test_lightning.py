"""Lightning's Trainer in a trial: reports, pruning, going on, and ranks in processes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import automl
from automl.in_trial.checkpoints import torch_checkpoint
from automl.trial import FailedOutcome, FinishedOutcome, InterruptedOutcome, PrunedOutcome, Verdict
from tests.integrations.conftest import CarryOut

with suppress(ModuleNotFoundError):  # then all are skipped, below
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

    from tests.integrations import nets
    from tests.integrations.nets import Line, data, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*have no `val_dataloader`"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning's own, of torch
]


@pytest.fixture(autouse=True)
def library() -> None:
    reason = "Lightning is not installed: make recipes does it"
    pytest.importorskip("lightning.pytorch", reason=reason)


def report(trial: Any, *names: str, **options: Any) -> Any:
    return automl.integrations.lightning.Report(trial, *(names or ("val_loss",)), **options)


def trains(trial: automl.TrialContext) -> None:
    trainer(report(trial)).fit(Line(), data(), data())


# --- reports --------------------------------------------------------------------------------------


def test_each_validation_is_a_report_of_what_was_named(carry_out: CarryOut) -> None:
    def names_two(trial: automl.TrialContext) -> None:
        two = report(trial, "val_loss", "val_error", "not_there")
        trainer(two).fit(Line(), data(), data())  # its sanity check is no report

    ended = carry_out(names_two)
    assert [step for step, _ in ended.reports] == [0, 1, 2, 3]
    assert all(metrics.keys() == {"val_loss", "val_error"} for _, metrics in ended.reports)
    assert isinstance(ended.outcome, FinishedOutcome)
    assert ended.outcome.value == min(metrics["val_loss"] for _, metrics in ended.reports)


def test_validations_are_counted_where_an_epoch_has_several(carry_out: CarryOut) -> None:
    def trains_often(trial: automl.TrialContext) -> None:
        trainer(report(trial), val_check_interval=0.5, max_epochs=2).fit(Line(), data(), data())

    assert [step for step, _ in carry_out(trains_often).reports] == [0, 1, 2, 3]


def test_without_a_validation_each_epoch_is_a_report(carry_out: CarryOut) -> None:
    def never_validates(trial: automl.TrialContext) -> None:
        trainer(report(trial, "train_loss")).fit(Line(), data())

    ended = carry_out(never_validates, metric="train_loss")
    assert [step for step, _ in ended.reports] == [0, 1, 2, 3]


def test_an_epoch_that_ends_before_its_validation_is_none(carry_out: CarryOut) -> None:
    def stops_early(trial: automl.TrialContext) -> None:
        trainer(report(trial), max_steps=6, max_epochs=-1).fit(Line(), data(), data())

    assert [step for step, _ in carry_out(stops_early).reports] == [0]


def test_the_studys_metric_needs_no_name(carry_out: CarryOut) -> None:
    def names_none(trial: automl.TrialContext) -> None:
        own = automl.integrations.lightning.Report(trial)
        trainer(own).fit(Line(), data(), data())

    ended = carry_out(names_none, metric="val_error")
    assert [set(metrics) for _, metrics in ended.reports] == [{"val_error"}] * 4


def test_looking_by_oneself_is_no_report(carry_out: CarryOut) -> None:
    def validates(trial: automl.TrialContext) -> None:
        own = trainer(report(trial))
        own.fit(model := Line(), data(), data())
        own.validate(model, data(), verbose=False)

    assert len(carry_out(validates).reports) == 4


def test_a_metric_that_nobody_logs_is_named_with_those_there_are(carry_out: CarryOut) -> None:
    def misnames(trial: automl.TrialContext) -> None:
        trainer(report(trial, "val_acc")).fit(Line(), data(), data())

    outcome = carry_out(misnames).outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.hopeless
    assert "no metric 'val_acc' to report" in outcome.cause
    assert "val_loss" in outcome.cause


def test_what_is_no_trial_is_refused() -> None:
    with pytest.raises(TypeError, match="a str is no trial of a sweep"):
        report("trial")


# --- pruning and going on -------------------------------------------------------------------------


def test_a_pruned_trial_ends_at_that_report(carry_out: CarryOut) -> None:
    ended = carry_out(trains, {1: Verdict.PRUNE})
    assert isinstance(ended.outcome, PrunedOutcome)
    assert (ended.outcome.step, len(ended.reports)) == (1, 2)


def test_an_objective_of_optunas_reports_its_studys_metric(carry_out: CarryOut) -> None:
    def objective(trial: Any) -> None:
        trainer(report(trial, "val_error")).fit(Line(), data(), data())

    ended = carry_out(objective, {1: Verdict.PRUNE}, metric="score", optunas=True)
    assert isinstance(ended.outcome, PrunedOutcome)
    assert [set(metrics) for _, metrics in ended.reports] == [{"score"}, {"score"}]


def weights(state: dict[str, Any]) -> dict[str, Any]:
    return {
        "weight": state["state_dict"]["weight"],
        "momentum": state["optimizer_states"][0]["state"][0]["momentum_buffer"],
        "lr": state["lr_schedulers"][0]["last_epoch"],
        "steps": state["global_step"],
        "waited": state["callbacks"][next(k for k in state["callbacks"] if "Early" in k)],
    }


def goes_on(seen: list[int]) -> Callable[[automl.TrialContext], None]:
    """Trains with another callback that has a state; `seen` are the batches of each execution."""

    def train(trial: automl.TrialContext) -> None:
        model = Line()
        stops = EarlyStopping("val_loss", min_delta=10.0, patience=5)
        trainer(report(trial), stops).fit(model, data(), data())
        seen.append(len(model.n_batches))

    return train


@pytest.mark.parametrize("step", [0, 2])
def test_an_interrupted_trial_ends_as_if_it_had_not_been(
    carry_out: CarryOut, tmp_path: Path, step: int
) -> None:
    last = tmp_path / "trial-00000" / "last.pt"
    seen: list[int] = []
    whole = carry_out(goes_on(seen))
    undisturbed = weights(torch_checkpoint.load(last)["state"])
    last.unlink()
    first = carry_out(goes_on(seen), {step: Verdict.STOP})
    assert isinstance(first.outcome, InterruptedOutcome)
    second = carry_out(goes_on(seen))
    assert isinstance(second.outcome, FinishedOutcome)
    assert second.reports == whole.reports, "those of before are told again"
    assert seen == [16, 16 - 4 * (step + 1)], "an epoch has four batches"
    torch.testing.assert_close(
        weights(torch_checkpoint.load(last)["state"]), undisturbed, rtol=0, atol=0
    )


def test_the_best_checkpoint_is_that_of_the_best_report(
    carry_out: CarryOut, tmp_path: Path
) -> None:
    ended = carry_out(trains)
    best = torch_checkpoint.load(tmp_path / "trial-00000" / "best.pt")
    losses = {step: metrics["val_loss"] for step, metrics in ended.reports}
    assert best["step"] == min(losses, key=losses.__getitem__)
    assert "weight" in best["state"]["state_dict"]
    assert "hyper_parameters" not in best["state"], "any objects"


def test_checkpoints_can_be_left_to_the_user(carry_out: CarryOut, tmp_path: Path) -> None:
    def keeps_its_own(trial: automl.TrialContext) -> None:
        own = ModelCheckpoint(trial.directory, save_last=True)
        told = report(trial, checkpoint=False)
        trainer(told, own, enable_checkpointing=True).fit(Line(), data(), data())

    carry_out(keeps_its_own)
    assert not (tmp_path / "trial-00000" / "last.pt").exists()
    assert (tmp_path / "trial-00000" / "last.ckpt").exists()


# --- ranks in processes of their own --------------------------------------------------------------


def test_ranks_go_on_and_the_trial_has_their_last_state(
    carry_out: CarryOut, tmp_path: Path
) -> None:
    """Its first epoch is trained by one process; of two ranks each has half of the four batches."""
    assert isinstance(carry_out(trains, {0: Verdict.STOP}).outcome, InterruptedOutcome)
    last = tmp_path / "trial-00000" / "last.pt"
    assert torch_checkpoint.load(last)["state"]["global_step"] == 4
    ended = carry_out(nets.spawns)
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == [0, 1, 2]
    assert torch_checkpoint.load(last)["state"]["global_step"] == 4 + 2 * 2


def test_all_ranks_stop_where_the_trial_is_pruned(carry_out: CarryOut) -> None:
    """Here in an objective of Optuna's."""
    nets.after.clear()
    ended = carry_out(nets.spawns, {1: Verdict.PRUNE}, optunas=True)
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert (ended.outcome.step, len(ended.reports)) == (1, 2)
    assert nets.after == [], "check_pruned ended it"
    for thread in threading.enumerate():
        if thread.name == "reports of rank 0":
            thread.join(timeout=300)
            assert not thread.is_alive(), "rank 0 has ended"


def test_forked_ranks_are_refused(carry_out: CarryOut) -> None:
    outcome = carry_out(nets.forks).outcome
    assert isinstance(outcome, FailedOutcome)
    assert 'use Trainer(strategy="ddp_spawn")' in outcome.details


def test_optunas_own_callback_is_refused_with_ranks(carry_out: CarryOut) -> None:
    pytest.importorskip("optuna_integration", reason="optuna-integration: make recipes installs it")
    outcome = carry_out(nets.spawns_with_optunas, optunas=True).outcome
    assert isinstance(outcome, FailedOutcome)
    assert 'automl.integrations.lightning.Report(trial, "val_loss")' in outcome.details


def test_optunas_own_callback_prunes_on_one_device(carry_out: CarryOut) -> None:
    callbacks = pytest.importorskip(
        "optuna_integration", reason="optuna-integration: make recipes installs it"
    )

    def objective(trial: Any) -> float:
        pruning = callbacks.PyTorchLightningPruningCallback(trial, "val_loss")
        own = trainer(pruning)
        own.fit(Line(), data(), data())
        return float(own.callback_metrics["val_loss"])

    ended = carry_out(objective, {1: Verdict.PRUNE}, optunas=True)
    assert isinstance(ended.outcome, PrunedOutcome)
    assert len(ended.reports) == 2
