"""Trials with folds as a sweep sees them: judged, interrupted, pruned, told at the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from automl.config import Precision, TrainingConfig
from automl.data.dataset import Dataset
from automl.data.folds import folds_at_random
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.mean_model import MeanModel, judged_outputs
from automl.models.mean_model_file import write_ensemble
from automl.models.model_file import EnsembleFileJob
from automl.models.networks.folds.fold_estimator import FoldsEstimator
from automl.models.networks.folds.fold_pack import FoldPack
from automl.models.predictor import Predictor, load
from automl.trial import FailedOutcome, FinishedOutcome, InterruptedOutcome, PrunedOutcome, Verdict
from tests.models.folds.conftest import PARAMS, CallByCall, assert_same, best, plan_of, run

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_value_is_what_its_models_say_of_the_rows_they_never_saw(
    tmp_path: Path, disc5: Dataset
) -> None:
    outcome = run(disc5, tmp_path, PARAMS).outcome
    assert isinstance(outcome, FinishedOutcome)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    scores = judged_outputs(model.trained_model, disc5)
    log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    loss = -log_p[np.arange(len(scores)), disc5.judged.y].mean()
    assert outcome.value == pytest.approx(loss, rel=1e-9)
    assert model.metrics["val_loss"] == outcome.value
    error = (scores.argmax(1) != disc5.judged.y).mean()
    assert model.metrics["val_error"] == pytest.approx(error)
    assert outcome.metrics["val_error"] == pytest.approx(error)
    members = model.trained_model.members  # type: ignore[attr-defined]
    each = [member.outputs(disc5.columns, disc5.train.rows) for member in members]
    assert len(each) == 5
    mean = np.mean([np.exp(o) / np.exp(o).sum(1, keepdims=True) for o in each], axis=0)
    found = model.outputs(disc5.train.rows)
    np.testing.assert_allclose(np.exp(found) / np.exp(found).sum(1, keepdims=True), mean, rtol=1e-9)


def test_of_several_divisions_each_row_is_judged_by_one_of_each(
    tmp_path: Path, disc5: Dataset
) -> None:
    y = disc5.train.y.astype(np.int64)
    twice = tuple(
        replace(fold, repeat=repeat)
        for repeat in range(2)
        for fold in folds_at_random(y, 3, seed=repeat)
    )
    dataset = replace(disc5, folds=twice, epoch_rows=160)
    assert isinstance(run(dataset, tmp_path, PARAMS).outcome, FinishedOutcome)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    members = model.trained_model.members  # type: ignore[attr-defined]
    row = int(twice[0].judged[0])
    (other,) = (n for n in range(3, 6) if row in twice[n].judged)
    one = dataset.train.rows[row : row + 1]
    p = [np.exp(members[n].outputs(dataset.columns, one)) for n in (0, other)]
    expected = np.mean([x / x.sum() for x in p], axis=0)
    found = np.exp(judged_outputs(model.trained_model, dataset)[row : row + 1])
    np.testing.assert_allclose(found / found.sum(), expected, rtol=1e-9)


def test_a_model_of_other_folds_is_refused(tmp_path: Path, disc5: Dataset) -> None:
    run(disc5, tmp_path, PARAMS)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    with pytest.raises(ValueError, match="5 models for 4 folds"):
        judged_outputs(model.trained_model, replace(disc5, folds=disc5.folds[:4]))


@pytest.mark.parametrize("kind", [FoldsEstimator, CallByCall])
def test_a_trial_goes_on_as_if_it_had_not_been_interrupted(
    tmp_path: Path, disc5: Dataset, kind: type[FoldsEstimator]
) -> None:
    params = PARAMS | {"patience_epochs": 3, "ema_decay": 0.5, "lr": 0.3}
    whole = run(disc5, tmp_path / "whole", params, kind=kind)
    taken = torch_checkpoint.load(tmp_path / "whole" / "trial-00000" / "last.pt")["state"]["course"]
    assert {step for step, *_ in taken} == {3, 4}, "some before, some after it was interrupted"
    folder = tmp_path / "parts"
    for step in (0, 3):
        stopped = run(disc5, folder, params, kind=kind, verdicts={step: Verdict.STOP})
        assert isinstance(stopped.outcome, InterruptedOutcome)
        assert not (folder / "trial-00000" / "best.pt").exists()
    last = run(disc5, folder, params, kind=kind)
    assert last.reports == whole.reports
    assert isinstance(last.outcome, FinishedOutcome)
    assert isinstance(whole.outcome, FinishedOutcome)
    assert last.outcome.value == whole.outcome.value
    for name in ("best.pt", "last.pt"):
        found, expected = (
            torch_checkpoint.load(tmp_path / where / "trial-00000" / name)
            for where in ("parts", "whole")
        )
        assert_same(found, expected, 0.0)
    again = run(disc5, folder, params, kind=kind)  # killed before its end was recorded
    assert isinstance(again.outcome, FinishedOutcome)
    assert again.outcome.value == whole.outcome.value
    assert_same(best(folder), best(tmp_path / "whole"), 0.0)


def test_what_a_pack_began_goes_on_call_by_call(tmp_path: Path, disc5: Dataset) -> None:
    whole = run(disc5, tmp_path / "whole", PARAMS)
    run(disc5, tmp_path / "parts", PARAMS, verdicts={1: Verdict.STOP})
    last = run(disc5, tmp_path / "parts", PARAMS, kind=CallByCall)
    assert_same(last.reports, whole.reports, 1e-6)
    assert_same(best(tmp_path / "parts"), best(tmp_path / "whole"), 1e-6)


@pytest.mark.parametrize("kind", [FoldsEstimator, CallByCall])
def test_a_pruned_trial_has_no_value_and_no_model(
    tmp_path: Path, disc5: Dataset, kind: type[FoldsEstimator]
) -> None:
    before = threading.active_count()
    outcome = run(disc5, tmp_path, PARAMS, kind=kind, verdicts={1: Verdict.PRUNE}).outcome
    assert isinstance(outcome, PrunedOutcome)
    assert outcome.step == 1
    assert np.isnan(outcome.value)
    assert not (tmp_path / "trial-00000" / "best.pt").exists()
    assert threading.active_count() == before


def test_all_folds_end_where_the_mean_gets_no_better(tmp_path: Path, disc5: Dataset) -> None:
    params = PARAMS | {"lr": 0.3, "patience_epochs": 2}
    training = TrainingConfig(epochs=60, precision=Precision.float64)
    long = replace(plan_of(disc5), training=training)
    pack = run(disc5, tmp_path / "pack", params, plan=long)
    calls = run(disc5, tmp_path / "calls", params, plan=long, kind=CallByCall)
    losses = [metrics["val_loss"] for _, metrics in pack.reports]
    assert losses.index(min(losses)) == len(losses) - 3 < 57
    assert_same(calls.reports, pack.reports, 1e-6)


@pytest.mark.parametrize("kind", [FoldsEstimator, CallByCall])
def test_a_fold_that_diverges_fails_its_trial(
    tmp_path: Path, disc5: Dataset, kind: type[FoldsEstimator]
) -> None:
    before = threading.active_count()
    outcome = run(disc5, tmp_path, PARAMS | {"lr": 1e200}, kind=kind).outcome
    assert isinstance(outcome, FailedOutcome)
    assert "training diverged in epoch 0" in outcome.cause
    assert threading.active_count() == before


def test_each_fold_draws_its_own_weights(tmp_path: Path, disc5: Dataset) -> None:
    run(disc5, tmp_path, PARAMS | {"lr": 1e-9})
    members = best(tmp_path)["state"]["members"]
    first = [member["weights"]["layers.0.weight"] for member in members]
    assert all(not torch.allclose(first[0], other, atol=1e-3) for other in first[1:])


def test_what_breaks_after_an_epoch_takes_it_back(tmp_path: Path, disc5: Dataset) -> None:
    """An epoch is undone if the device has no memory for the copies of kept models."""
    plan = plan_of(disc5)
    twin = FoldsEstimator(plan.estimator_setup(disc5))
    key = plan.pack_key(PARAMS, on_host=True)
    assert key is not None
    opened, whole = twin.open_pack(key, "cpu"), twin.open_pack(key, "cpu")
    for trainer in (opened.trainer, whole.trainer):
        trainer.add(0, opened.params(PARAMS), 7, None)
        trainer.run_epoch()

    def breaks(*_: object) -> dict[str, object]:
        raise MemoryError

    assert isinstance(opened.trainer, FoldPack)
    before, kind = torch_checkpoint.snapshot(opened.trainer.state(0, 0)), opened.trainer._member
    opened.trainer._member = breaks
    with pytest.raises(MemoryError):
        opened.trainer.run_epoch()
    opened.trainer.rewind()
    assert_same(torch_checkpoint.snapshot(opened.trainer.state(0, 0)), before, 0.0)
    opened.trainer.remove(0)
    opened.trainer._member = kind
    opened.trainer.add(0, opened.params(PARAMS), 7, before)
    assert opened.trainer.run_epoch() == whole.trainer.run_epoch()


def test_an_ensemble_is_chosen_out_of_fold(tmp_path: Path, disc5: Dataset) -> None:
    models = {}
    for number, lr in enumerate((0.02, 0.005)):
        run(disc5, tmp_path / f"{number}", PARAMS | {"lr": lr})
        models[number] = str(tmp_path / f"{number}" / "trial-00000" / "best.pt")
    made = write_ensemble(EnsembleFileJob(str(tmp_path / "ensemble.pt"), models, disc5, "a"))
    model = load(tmp_path / "ensemble.pt")
    assert isinstance(model, Predictor)
    assert len(model.model) == 5 * len(made.members)
    rows = disc5.train.rows
    each = [load(models[number]) for number in made.members]
    said = [np.exp(one.outputs(rows)) for one in each if isinstance(one, Predictor)]
    shares = [some / some.sum(1, keepdims=True) for some in said]
    mean = np.average(shares, axis=0, weights=list(made.members.values()))
    assert isinstance(model.trained_model, MeanModel)
    expected = mean**model.trained_model.sharpness
    expected /= expected.sum(1, keepdims=True)
    found = np.exp(model.outputs(rows))
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), expected, rtol=1e-6)
    values = [torch_checkpoint.load(Path(models[number]))["value"] for number in made.members]
    assert made.scores["loss"] <= max(values)
