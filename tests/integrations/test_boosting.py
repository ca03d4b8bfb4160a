"""Boosted trees in a trial, and Optuna's own callbacks for them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

import automl
from automl.trial import Direction, FailedOutcome, FinishedOutcome, PrunedOutcome, Verdict
from tests.integrations.conftest import CarryOut

N_ROUNDS = 5


def rows(n_rows: int, seed: int) -> tuple[Any, Any]:
    x = np.random.default_rng(seed).normal(size=(n_rows, 3))
    return x, (x.sum(1) > 0).astype(int)


# --- LightGBM -------------------------------------------------------------------------------------


@pytest.fixture
def lightgbm() -> ModuleType:
    module = pytest.importorskip(
        "lightgbm", reason="LightGBM is not installed: make recipes does it"
    )
    assert isinstance(module, ModuleType)
    return module


def lightgbm_params(metric: str) -> dict[str, Any]:
    return {"objective": "binary", "metric": metric, "verbosity": -1, "num_threads": 1}


def train_lightgbm(module: Any, *callbacks: Any, metric: str = "binary_logloss", n: int = 1) -> Any:
    data = module.Dataset(*rows(200, 0))
    sets = [data.create_valid(*rows(100, 1 + i)) for i in range(n)]
    params = lightgbm_params(metric)
    return module.train(
        params,
        data,
        N_ROUNDS,
        valid_sets=[data, *sets],
        valid_names=["training", *(f"valid_{i}" for i in range(n))],
        callbacks=[*callbacks],
    )


def test_lightgbm_reports_each_iteration(carry_out: CarryOut, lightgbm: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        names = ("binary_logloss", "training-binary_logloss")
        train_lightgbm(lightgbm, automl.integrations.lightgbm.Report(trial, *names))

    ended = carry_out(train, metric="binary_logloss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == list(range(N_ROUNDS))
    assert all(len(metrics) == 2 for _, metrics in ended.reports)


def test_the_iteration_that_stops_early_is_reported_too(carry_out: CarryOut, lightgbm: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        report = automl.integrations.lightgbm.Report(trial, "binary_logloss")
        stops = lightgbm.early_stopping(1, min_delta=9.0, verbose=False)
        train_lightgbm(lightgbm, stops, report)

    assert [step for step, _ in carry_out(train, metric="binary_logloss").reports] == [0, 1]


def test_lightgbm_is_pruned(carry_out: CarryOut, lightgbm: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        train_lightgbm(lightgbm, automl.integrations.lightgbm.Report(trial, "binary_logloss"))

    ended = carry_out(train, {2: Verdict.PRUNE}, metric="binary_logloss")
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert ended.outcome.step == 2


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_lightgbms_cross_validation_and_scikit_learns_way(
    carry_out: CarryOut, lightgbm: Any
) -> None:
    def cross_validates(trial: automl.TrialContext) -> None:
        report = automl.integrations.lightgbm.Report(trial, "auc")
        params, data = lightgbm_params("auc"), lightgbm.Dataset(*rows(200, 0))
        lightgbm.cv(params, data, N_ROUNDS, callbacks=[report])

    def fits(trial: automl.TrialContext) -> None:
        report = automl.integrations.lightgbm.Report(trial, "valid_0-auc")
        model = lightgbm.LGBMClassifier(n_estimators=N_ROUNDS, verbosity=-1, n_jobs=1)
        sets = [rows(100, 1), rows(100, 2)]
        model.fit(*rows(200, 0), eval_set=sets, eval_metric="auc", callbacks=[report])

    for train, metric in ((cross_validates, "auc"), (fits, "valid_0-auc")):
        ended = carry_out(train, metric=metric, direction=Direction.maximize)
        assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
        assert [set(metrics) for _, metrics in ended.reports] == [{metric}] * N_ROUNDS


def test_a_direction_that_is_not_the_metrics_is_refused(carry_out: CarryOut, lightgbm: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        train_lightgbm(lightgbm, automl.integrations.lightgbm.Report(trial, "auc"), metric="auc")

    outcome = carry_out(train, metric="auc").outcome
    assert isinstance(outcome, FailedOutcome)
    assert outcome.hopeless
    assert "auc is better when larger: set study.direction=maximize." in outcome.cause


def test_of_two_sets_with_one_metric_the_name_says_which(
    carry_out: CarryOut, lightgbm: Any
) -> None:
    def train(trial: automl.TrialContext) -> None:
        report = automl.integrations.lightgbm.Report(trial, "binary_logloss")
        train_lightgbm(lightgbm, report, n=2)

    outcome = carry_out(train, metric="binary_logloss").outcome
    assert isinstance(outcome, FailedOutcome)
    assert "valid_0-binary_logloss, valid_1-binary_logloss" in outcome.cause


# --- XGBoost --------------------------------------------------------------------------------------


@pytest.fixture
def xgboost() -> ModuleType:
    module = pytest.importorskip("xgboost", reason="XGBoost is not installed: make recipes does it")
    assert isinstance(module, ModuleType)
    return module


XGBOOST = {"objective": "binary:logistic", "eval_metric": "logloss", "nthread": 1}


def train_xgboost(module: Any, *callbacks: Any) -> None:
    data, valid = (module.DMatrix(*rows(200, seed)) for seed in (0, 1))
    sets = [(data, "train"), (valid, "valid")]
    module.train(XGBOOST, data, N_ROUNDS, evals=sets, callbacks=[*callbacks], verbose_eval=False)


def test_xgboost_reports_each_iteration(carry_out: CarryOut, xgboost: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        names = ("logloss", "train-logloss")
        train_xgboost(xgboost, automl.integrations.xgboost.Report(trial, *names))

    ended = carry_out(train, metric="logloss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert [step for step, _ in ended.reports] == list(range(N_ROUNDS))
    assert all(m["logloss"] != m["train-logloss"] for _, m in ended.reports)


def test_xgboost_is_pruned(carry_out: CarryOut, xgboost: Any) -> None:
    def train(trial: automl.TrialContext) -> None:
        train_xgboost(xgboost, automl.integrations.xgboost.Report(trial, "valid-logloss"))

    ended = carry_out(train, {2: Verdict.PRUNE}, metric="valid-logloss")
    assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
    assert ended.outcome.step == 2


def test_xgboosts_cross_validation_and_scikit_learns_way(carry_out: CarryOut, xgboost: Any) -> None:
    def cross_validates(trial: automl.TrialContext) -> None:
        report = automl.integrations.xgboost.Report(trial, "test-logloss")
        xgboost.cv(XGBOOST, xgboost.DMatrix(*rows(200, 0)), N_ROUNDS, callbacks=[report])

    def fits(trial: automl.TrialContext) -> None:
        report = automl.integrations.xgboost.Report(trial, "test-logloss", "logloss")
        model = xgboost.XGBClassifier(n_estimators=N_ROUNDS, n_jobs=1, callbacks=[report])
        model.fit(*rows(200, 0), eval_set=[rows(100, 1)], verbose=False)

    ended = carry_out(cross_validates, metric="test-logloss")
    assert isinstance(ended.outcome, FinishedOutcome), ended.outcome
    assert len(ended.reports) == N_ROUNDS
    outcome = carry_out(fits, metric="test-logloss").outcome
    assert isinstance(outcome, FailedOutcome)
    assert "those that there are: validation_0-logloss, logloss." in outcome.cause


# --- Optuna's own callbacks -----------------------------------------------------------------------


def test_optunas_own_callbacks_prune(carry_out: CarryOut, lightgbm: Any, xgboost: Any) -> None:
    callbacks = pytest.importorskip(
        "optuna_integration", reason="optuna-integration is not installed: make recipes does it"
    )

    def boosts_lightly(trial: Any) -> None:
        train_lightgbm(lightgbm, callbacks.LightGBMPruningCallback(trial, "binary_logloss"))

    def boosts(trial: Any) -> None:
        train_xgboost(xgboost, callbacks.XGBoostPruningCallback(trial, "valid-logloss"))

    for objective in (boosts_lightly, boosts):
        ended = carry_out(objective, {1: Verdict.PRUNE}, optunas=True)
        assert isinstance(ended.outcome, PrunedOutcome), ended.outcome
        assert len(ended.reports) == 2
