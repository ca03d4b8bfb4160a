"""Other losses of numbers than squared errors, from what descends them to what is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import metrics

from automl.config import DataConfig, DataKind, ExportFormat, Task, TrainingConfig
from automl.config.metrics import ValueLoss
from automl.data.dataset import Dataset, NetworkOutputs
from automl.data.folds import folds_at_random
from automl.data.load import load_dataset
from automl.data.scoring.metrics import ValuePredictions
from automl.errors import ConfigError
from automl.export.package import export_model
from automl.in_trial.seeds import trial_seed
from automl.models.ensemble_selection import select_ensemble
from automl.models.families.auto.family import AutoFamily
from automl.models.families.boosting import heavy as boosting
from automl.models.families.boosting.family import BoostingFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.python.family import PythonFamily
from automl.models.families.table_estimator import TrialFit
from automl.models.families.tabm.family import TabMFamily
from automl.models.families.tree_arrays import tree_view
from automl.models.family import load_families
from automl.models.model_file import parse_loss
from automl.models.networks.losses import Pinball, PoissonDeviance, make_loss
from automl.models.networks.packs.mlp_pass import make_pack_loss
from automl.models.predictor import Predictor, load_table_model
from automl.models.selection_costs import value_costs
from automl.objectives.plan_checks import check_counts, check_log_targets, check_metric
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import Direction, FinishedOutcome
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, mixed, mixed_frame

LOSSES = [ValueLoss("absolute_error"), ValueLoss("quantile", 0.9), ValueLoss("poisson")]
NAMES = [loss.name for loss in LOSSES]


@pytest.fixture
def table(tmp_path: Path) -> Dataset:
    """Amounts about 1,000, all above 0."""
    return mixed(tmp_path, 1)


def training_of(loss: ValueLoss, epochs: int = 3) -> TrainingConfig:
    share = f":{loss.quantile}" if loss.name == "quantile" else ""
    return TrainingConfig(loss=f"{loss.name}{share}", epochs=epochs)


def trained(folder: Path, family: Any, data: Dataset, loss: ValueLoss) -> Predictor:
    plan = make_plan(family=family, training=training_of(loss, epochs=8))
    spec, listener = make_spec(folder, {}), Listener()
    open_session(SessionSetup(plan, replace(data, loss=loss))).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    return load_table_model(Path(spec.checkpoint_dir) / "best.pt")


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_metrics_are_those_of_scikit_learn(loss: ValueLoss) -> None:
    draw = np.random.default_rng(0)
    y = draw.poisson(3, 200).astype(np.float64)
    values = y + draw.uniform(0.1, 2, 200)
    found = ValuePredictions(values, y, 4.0, loss).scored()
    expected = {
        "absolute_error": metrics.mean_absolute_error(y, values) / 4,
        "quantile": metrics.mean_pinball_loss(y, values, alpha=0.9) / 4,
        "poisson": metrics.mean_poisson_deviance(y, values),
    }
    assert found["loss"] == pytest.approx(expected[loss.name], rel=1e-6)
    if loss.name == "quantile":
        assert found["pinball"] == pytest.approx(4 * found["loss"])
    if loss.name == "poisson":
        assert found["poisson_deviance"] == found["loss"]
    assert ("pinball" in found) == (loss.name == "quantile")


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_boosting_says_what_the_librarys_says(
    loss: ValueLoss, table: Dataset, tmp_path: Path
) -> None:
    family = BoostingFamily()
    predictor = trained(tmp_path, family, table, loss)
    data = replace(table, loss=loss)
    asked = TrialFit(family, data, family.params({}), trial_seed(7, 0), 8, 1)
    model = boosting.unfitted_boosting(asked).fit(data.view(tree_view)[0], asked.targets)
    frame = mixed_frame(1, seed=1)
    n_kept = len(predictor.trained_model.trees.n_nodes)  # type: ignore[attr-defined]
    rows = tree_view(table.columns, predictor.read(frame))
    theirs = [*model.staged_predict(rows)][n_kept - 1]  # up to its best report
    if loss.name != "poisson":
        theirs = theirs * table.target_scale + table.target_mean
    ours = predictor.predict(frame)
    assert np.abs(ours - theirs).max() < 1e-6 * table.target_scale
    scored = predictor.score(frame)
    assert (
        scored["loss"]
        == ValuePredictions(
            ours, frame[TARGET].to_numpy(np.float64), table.target_scale, loss
        ).scored()["loss"]
    )


@pytest.mark.parametrize("family", [MLPFamily(), BoostingFamily()], ids=["mlp", "boosting"])
def test_so_many_targets_lie_below_a_quantile(family: Any, table: Dataset, tmp_path: Path) -> None:
    shares = []
    for quantile in (0.1, 0.9):
        folder = tmp_path / f"{quantile}"
        predictor = trained(folder, family, table, ValueLoss("quantile", quantile))
        frame = mixed_frame(1, seed=1)
        shares.append(float((frame[TARGET] < predictor.predict(frame)).mean()))
    assert shares[0] < 0.4 < 0.6 < shares[1]


@pytest.mark.parametrize("loss", LOSSES[:2], ids=NAMES[:2])
def test_a_pack_descends_what_one_alone_does(loss: ValueLoss) -> None:
    draw = torch.Generator().manual_seed(0)
    out = torch.randn(3, 1, 16, generator=draw, dtype=torch.float64)
    y = torch.randn(3, 16, generator=draw, dtype=torch.float64)
    y[:, 0] = out[:, 0, 0]
    packed, gradient = make_pack_loss(Task.regression, None, loss), torch.empty_like(out)
    totals = torch.zeros(3, 1, 16, dtype=torch.float64)
    packed.train(out, y, gradient, totals)
    alone = make_loss(None, NetworkOutputs.NUMBERS, 1, loss)
    counts = torch.arange(16).expand(3, -1) < 10
    looked = packed.sums(out, y, counts)
    for lane in range(3):
        own = out[lane].T.clone().requires_grad_()
        mean = alone.mean(own, y[lane])
        mean.backward()  # type: ignore[no-untyped-call]
        assert own.grad is not None
        torch.testing.assert_close(gradient[lane].T, own.grad)
        torch.testing.assert_close(totals[lane].sum() / 16, mean.detach())
        some = own.detach()[:10], y[lane][:10]
        total = alone.total(*some)
        torch.testing.assert_close(looked[0][lane], total)
        torch.testing.assert_close(looked[1][lane], alone.misses(*some, total))


def counts(folder: Path) -> Dataset:
    """Numbers of events, three in the mean, whose logarithm of the rate is linear in a column."""
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"a": draw.normal(size=600), "b": draw.normal(size=600)})
    frame[TARGET] = draw.poisson(np.exp(0.7 + 0.9 * frame.a))
    frame.to_csv(folder / "counts.csv", index=False)
    config = DataConfig(kind=DataKind.csv, path=str(folder / "counts.csv"), target=TARGET)
    return load_dataset(replace(config, task=Task.regression))


@pytest.mark.parametrize("n_folds", [0, 2], ids=["one", "folds"])
@pytest.mark.parametrize("family", [MLPFamily(), TabMFamily(members=3)], ids=["mlp", "tabm"])
def test_a_network_learns_rates(family: Any, n_folds: int, tmp_path: Path) -> None:
    data = counts(tmp_path)
    if n_folds:
        folds = tuple(folds_at_random(np.zeros(len(data.train), np.int64), n_folds, seed=0))
        data = replace(data, validation=data.validation.take(np.zeros(0, np.int64)), folds=folds)
    plan = make_plan(family=family, training=training_of(LOSSES[2], epochs=15))
    plan = replace(plan, n_models=data.n_models)
    spec, listener = make_spec(tmp_path, {"lr": 0.01, "batch_size": 32}), Listener()
    open_session(SessionSetup(plan, replace(data, loss=LOSSES[2]))).run(spec, HOST, listener)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    predictor = load_table_model(Path(spec.checkpoint_dir) / "best.pt")
    frame = pd.read_csv(tmp_path / "counts.csv")
    rates = predictor.predict(frame)
    assert (rates > 0).all()
    constant = np.full(len(frame), frame[TARGET].mean())
    found, least = (metrics.mean_poisson_deviance(frame[TARGET], of) for of in (rates, constant))
    assert found < 0.6 * least
    assert predictor.score(frame)["loss"] == pytest.approx(found, rel=1e-4)
    true = np.exp(0.7 + 0.9 * frame.a)
    assert np.corrcoef(np.log(rates), np.log(true))[0, 1] > 0.97
    if family == MLPFamily():
        rows: Any = frame.drop(columns=TARGET).to_dict("records")[:50]
        done = export_model(predictor, rows, tmp_path / "out", ExportFormat.onnx, {})
        assert done.largest < 1e-5


def test_a_network_descends_the_deviance_that_is_told() -> None:
    draw = np.random.default_rng(0)
    y, values = draw.poisson(3, 200), draw.uniform(0.1, 6, 200)
    mean, scale = 2.5, 1.7
    out, targets = (torch.tensor((of - mean) / scale) for of in (values, y))
    found = PoissonDeviance(mean, scale).mean(out[:, None], targets)
    assert float(found) == pytest.approx(metrics.mean_poisson_deviance(y, values))


def test_what_alone_descends_is_what_is_told() -> None:
    out, y = torch.tensor([[1.0], [4.0]]), torch.tensor([2.0, 2.0])
    loss = Pinball(0.9)
    assert float(loss.mean(out, y)) == pytest.approx((0.9 * 1 + 0.1 * 2) / 2)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_an_export_says_it_too(loss: ValueLoss, table: Dataset, tmp_path: Path) -> None:
    predictor = trained(tmp_path, BoostingFamily(), table, loss)
    rows = mixed_frame(1).to_dict("records")[:50]
    done = export_model(predictor, rows, tmp_path / "out", ExportFormat.onnx, {})  # type: ignore[arg-type]
    assert done.largest < 1e-5


def test_an_ensemble_is_chosen_by_the_loss() -> None:
    y = np.arange(2000.0)
    said = np.stack([y, y + 50])
    assert select_ensemble(value_costs(said, y, ValueLoss("quantile", 0.9))).weights == (1, 0)
    noisy = np.stack([y + np.where(y % 10 == 0, 700, 0), y + 80])
    assert select_ensemble(value_costs(noisy, y, ValueLoss("absolute_error"))).weights[1] < 0.5
    assert select_ensemble(value_costs(noisy, y)).weights[0] < 0.5


def test_a_family_that_lacks_a_loss_names_those_that_have_it() -> None:
    quantile, poisson = training_of(LOSSES[1]), training_of(LOSSES[2])
    for name in ("linear", "trees"):
        with pytest.raises(ConfigError, match=rf"model={name} does not have it.*boosting, .*mlp"):
            load_families()[name]().check_training(quantile)
    message = r"model=python does not have it. Those that do: boosting"
    with pytest.raises(ConfigError, match=message):
        PythonFamily(target="a:b").check_training(poisson)
    MLPFamily().check_training(poisson)
    with pytest.raises(
        ConfigError, match=r"linear, trees, kernel cannot.*\.families=\[boosting,mlp.*\]"
    ):
        AutoFamily().check_training(quantile)
    AutoFamily(families=["boosting", "mlp"]).check_training(quantile)


def test_a_metric_of_another_loss_is_refused() -> None:
    least = Direction.minimize
    check_metric("val_pinball", least, Task.regression, ValueLoss("quantile", 0.9))
    for metric, loss in (("pinball", "quantile"), ("poisson_deviance", "poisson")):
        with pytest.raises(ConfigError, match=f"add training.loss={loss}"):
            check_metric(f"val_{metric}", least, Task.regression)


def test_rates_are_of_counts(table: Dataset) -> None:
    rates = replace(table, loss=LOSSES[2])
    check_counts(rates)
    y = rates.train.y.copy()
    y[[3, 5]] = -1
    with pytest.raises(ConfigError, match="2 rows are below 0"):
        check_counts(replace(rates, train=replace(rates.train, y=y)))


def test_an_error_of_logarithms_is_refused_for_targets_below_0(table: Dataset) -> None:
    y = table.train.y.copy()
    y[3] = -1
    below = replace(table, train=replace(table.train, y=y))
    check_log_targets("val_rmse", below)
    with pytest.raises(ConfigError, match="1 row of those that train and judge is below 0"):
        check_log_targets("val_rmsle", below)


def test_settings_that_do_not_fit_are_refused() -> None:
    for loss in ("quantile:1.5", "quantile:0"):
        with pytest.raises(ConfigError, match=rf"training\.loss={loss}: must be auto, .*:SHARE"):
            TrainingConfig(loss=loss)
    for plain in ([1, 0.5], ["quantile", 2.0], "quantile"):
        with pytest.raises(ValueError, match="no "):
            parse_loss({"value_loss": plain})
