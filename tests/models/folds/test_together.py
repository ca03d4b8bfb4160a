"""Folds that train together are the folds trained alone, of each family."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automl.data.dataset import Dataset
from automl.data.scoring.metrics import make_predictions
from automl.models.families.auto.family import AutoFamily
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.python.family import PythonFamily
from automl.models.family import Family, load_families
from automl.models.mean_model import MeanModel, judged_outputs
from automl.models.predictor import EncodedModel, Predictor, load
from automl.trial import FinishedOutcome, PrunedOutcome, Verdict
from tests.models import networks
from tests.models.conftest import HOST, Listener, make_spec
from tests.models.folds.conftest import (
    N_EPOCHS,
    NORMED,
    PARAMS,
    CallByCall,
    assert_same,
    best,
    plan_of,
    run,
    session,
)
from tests.models.packs.test_pack import Sweep, Trials

pytestmark = pytest.mark.usefixtures("one_thread")


FAMILIES: dict[str, tuple[Family, dict[str, Any]]] = {
    "mlp": (MLPFamily(), PARAMS),
    "wide": (MLPFamily(), PARAMS | {"width": 130, "depth": 1}),
    "bins": (MLPFamily(), PARAMS | {"encoding": "piecewise_linear"}),
    "averages": (MLPFamily(), PARAMS | {"ema_decay": 0.9, "schedule": "onecycle"}),
    "python": (PythonFamily(target="tests.models.networks:normed"), NORMED),
}


@pytest.mark.parametrize("data", ["disc5", "uneven"])
@pytest.mark.parametrize("name", FAMILIES)
def test_folds_of_a_pack_are_the_folds_trained_alone(
    tmp_path: Path,
    name: str,
    data: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    dataset: Dataset = request.getfixturevalue(data)
    family, params = FAMILIES[name]
    plan = plan_of(dataset, family)
    together = run(dataset, tmp_path / "pack", params, plan=plan)
    alone = run(dataset, tmp_path / "calls", params, plan=plan, kind=CallByCall)
    assert "one after another" not in caplog.text, "or nothing is compared"
    assert len(together.reports) == N_EPOCHS
    assert_same(together.reports, alone.reports, 1e-6)
    assert isinstance(together.outcome, FinishedOutcome)
    assert isinstance(alone.outcome, FinishedOutcome)
    assert together.outcome.value == pytest.approx(alone.outcome.value, rel=1e-6)
    assert_same(best(tmp_path / "pack"), best(tmp_path / "calls"), 1e-6)
    points = dataset.train.rows.numbers
    build = networks.normed if name == "python" else None
    said = [
        load(tmp_path / kind / "trial-00000" / "best.pt", build=build).outputs(dataset.train.rows)
        for kind in ("pack", "calls")
    ]
    assert len(said[0]) == len(points)
    np.testing.assert_allclose(said[0], said[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "bins", "linear", "trees", "boosting"])
def test_each_fold_sees_means_of_its_own_rows(tmp_path: Path, name: str, shops: Dataset) -> None:
    family, params = FAMILIES.get(name) or (load_families()[name](), {})
    plan = plan_of(shops, family)
    found = run(shops, tmp_path, params, plan=plan)
    assert isinstance(found.outcome, FinishedOutcome), found.outcome
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    scores = judged_outputs(model.trained_model, shops)
    scored = make_predictions(shops.task, scores, shops.judged.y, *model.unit).scored()
    assert scored["loss"] == pytest.approx(found.outcome.value, rel=1e-6)
    assert isinstance(model.trained_model, MeanModel)
    for number, member in enumerate(model.trained_model.members):
        assert isinstance(member, EncodedModel)
        assert member.encoding == shops.fold(number).encoding
    if name in FAMILIES:
        alone = run(shops, tmp_path / "calls", params, plan=plan, kind=CallByCall)
        assert_same(found.reports, alone.reports, 1e-6)


def test_trials_of_a_pack_are_those_that_train_alone(tmp_path: Path, disc5: Dataset) -> None:
    some = [PARAMS | {"depth": 1 + n, "width": 9 + n} for n in range(3)]
    specs = [make_spec(tmp_path / "pack", params, n) for n, params in enumerate(some)]
    plan, sweep = plan_of(disc5), Sweep({(1, 1): Verdict.PRUNE})
    session(plan, disc5).run_pack(Trials(specs, 3), HOST, sweep)
    assert sorted(sweep.reports_together[0]) == [0, 1, 2]
    outcome = sweep.of(1).outcome
    assert isinstance(outcome, PrunedOutcome)
    assert np.isnan(outcome.value)
    for number in (0, 2):
        listener = Listener()
        alone = make_spec(tmp_path / "alone", some[number], number)
        session(plan, disc5).run(alone, HOST, listener)
        assert sweep.of(number).reports == listener.reports, "by a bit"
        assert sweep.of(number).outcome == replace(
            listener.outcome, time=sweep.of(number).outcome.time
        )


def test_what_cannot_be_stacked_trains_call_by_call(tmp_path: Path, disc5: Dataset) -> None:
    family = PythonFamily(target="tests.models.networks:Branching")
    params = {"lr": 0.02, "batch_size": 32}
    found = run(disc5, tmp_path, params, plan=plan_of(disc5, family))
    assert isinstance(found.outcome, FinishedOutcome)
    assert len(found.reports) == N_EPOCHS


@pytest.fixture
def mean_family(monkeypatch: pytest.MonkeyPatch) -> Family:
    from tests.models import toy_family

    family = toy_family.MeanFamily()
    known = {"mean": toy_family.MeanFamily}
    monkeypatch.setattr("automl.models.family.load_families", lambda: known)
    monkeypatch.setattr("automl.models.predictor.load_families", lambda: known)
    return family


def test_any_family_has_folds(tmp_path: Path, disc5: Dataset, mean_family: Family) -> None:
    found = run(disc5, tmp_path, {"shrink": 0.0}, plan=plan_of(disc5, mean_family))
    assert isinstance(found.outcome, FinishedOutcome)
    assert [step for step, _ in found.reports] == [*range(N_EPOCHS)]
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    each = [np.bincount(disc5.fold(n).train.y) / len(disc5.fold(n).train) for n in range(5)]
    found_p = model.predict_probabilities(disc5.train.rows.numbers[:1])
    np.testing.assert_allclose(found_p[0], np.mean(each, axis=0))


def test_a_trial_of_one_of_several_families_has_folds(tmp_path: Path, disc5: Dataset) -> None:
    own = {f"mlp_{name}": value for name, value in PARAMS.items()}
    plan = plan_of(disc5, AutoFamily())
    found = run(disc5, tmp_path / "auto", {"family": "mlp", **own}, plan=plan)
    assert found.reports == run(disc5, tmp_path / "mlp", PARAMS).reports
    state = best(tmp_path / "auto")["state"]
    assert state["family"] == "mlp"
    assert_same(state, best(tmp_path / "mlp")["state"], 0.0)
    calls = run(disc5, tmp_path / "calls", {"family": "mlp", **own}, plan=plan, kind=CallByCall)
    assert isinstance(calls.outcome, FinishedOutcome)
    assert best(tmp_path / "calls")["state"]["family"] == "mlp"


@pytest.mark.parametrize("name", ["linear", "kernel", "trees", "boosting"])
def test_families_without_torch_have_folds(
    tmp_path: Path, disc5: Dataset, name: str, uneven: Dataset
) -> None:
    for dataset in (disc5, uneven):
        folder = tmp_path / dataset.name
        plan = plan_of(dataset, load_families()[name]())
        whole = run(dataset, folder / "whole", {}, plan=plan)
        assert isinstance(whole.outcome, FinishedOutcome), whole.outcome
        run(dataset, folder / "parts", {}, plan=plan, verdicts={0: Verdict.STOP})
        parts = run(dataset, folder / "parts", {}, plan=plan)
        assert isinstance(parts.outcome, FinishedOutcome)
        assert parts.outcome.value == pytest.approx(whole.outcome.value, rel=1e-9)
        model = load(folder / "whole" / "trial-00000" / "best.pt")
        assert isinstance(model, Predictor)
        assert len(model.trained_model.members) == len(dataset.folds)  # type: ignore[attr-defined]
        scores = judged_outputs(model.trained_model, dataset)
        scored = make_predictions(dataset.task, scores, dataset.judged.y, *model.unit).scored()
        if dataset is disc5:
            assert scored["loss"] == pytest.approx(whole.outcome.value, rel=1e-6)
