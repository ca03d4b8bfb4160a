"""Trials with folds as a sweep sees them: together or call by call the same, told at the end."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import DataConfig, Precision, TrainingConfig
from automl.data.dataset import Dataset, Fold
from automl.data.folds import folds_at_random
from automl.data.load import load_dataset
from automl.data.scores import predictions
from automl.training import checkpoint
from automl.training.auto.family import AutoFamily
from automl.training.ensemble.words import EnsembleFile
from automl.training.ensemble.write import write
from automl.training.family import Family, families
from automl.training.folds.estimator import FoldsEstimator
from automl.training.folds.judged import judged_outputs
from automl.training.folds.pack import FoldPack
from automl.training.mlp.family import MLPFamily
from automl.training.objective import TrialContext
from automl.training.plan import TrainingPlan
from automl.training.predictor import Predictor, load
from automl.training.python.family import PythonFamily
from automl.training.session import TrainingSession
from automl.trial import Failed, Finished, Interrupted, Pruned, Verdict
from tests.training import networks
from tests.training.conftest import HOST, Listener, make_plan, make_spec
from tests.training.packs.test_pack import Sweep, Trials

N_EPOCHS = 5
PARAMS = {"depth": 2, "width": 12, "lr": 0.02, "batch_size": 32, "dropout": 0.1}
NORMED = {"width": 6, "lr": 0.02, "batch_size": 32}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="session")
def disc5() -> Dataset:
    """240 points, five folds."""
    return load_dataset(DataConfig(folds=5, n_train=160, n_validation=80))


@pytest.fixture(scope="session")
def uneven(plane: Dataset) -> Dataset:
    """Regression in three folds that train on 150, 120 and 30 rows, judged by 50, 31 and 7."""
    sizes = [(150, 50), (120, 31), (30, 7)]
    rows = [np.random.default_rng(n).permutation(200) for n in range(3)]
    folds = tuple(
        Fold(np.sort(some[:a]), np.sort(some[a : a + b]))
        for some, (a, b) in zip(rows, sizes, strict=True)
    )
    nothing = plane.validation.taking(np.zeros(0, np.int64))
    return replace(plane, validation=nothing, folds=folds, epoch_rows=100)


def plan_of(
    dataset: Dataset,
    family: Family | None = None,
    precision: Precision = Precision.float64,
    **more: Any,
) -> TrainingPlan:
    training = TrainingConfig(
        epochs=N_EPOCHS, precision=precision, checkpoint_every_seconds=0, **more
    )
    return replace(make_plan(training=training, family=family), n_models=dataset.n_models)


class CallByCall(FoldsEstimator):
    """As where folds cannot train together."""

    def _open_own(self, trial: TrialContext) -> None:
        return None


def session(
    plan: TrainingPlan, dataset: Dataset, kind: type[FoldsEstimator] = FoldsEstimator
) -> TrainingSession:
    return TrainingSession(plan, kind(plan, dataset, packs_large=False))


def run(
    dataset: Dataset,
    folder: Path,
    params: dict[str, Any],
    *,
    plan: TrainingPlan | None = None,
    kind: type[FoldsEstimator] = FoldsEstimator,
    verdicts: dict[int, Verdict] | None = None,
) -> Listener:
    listener = Listener(verdicts or {})
    spec = make_spec(folder, params)
    session(plan or plan_of(dataset), dataset, kind).run(spec, HOST, listener)
    return listener


def best(folder: Path) -> dict[str, Any]:
    return checkpoint.load(folder / "trial-00000" / "best.pt")


def assert_same(found: Any, expected: Any, within: float) -> None:
    """Of nested values."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            assert_same(found[name], value, within)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other, within)
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=within, atol=within)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=within, abs=within)
    else:
        assert found == expected


FAMILIES: dict[str, tuple[Family, dict[str, Any]]] = {
    "mlp": (MLPFamily(), PARAMS),
    "wide": (MLPFamily(), PARAMS | {"width": 130, "depth": 1}),
    "bins": (MLPFamily(), PARAMS | {"encoding": "piecewise_linear"}),
    "averages": (MLPFamily(), PARAMS | {"ema_decay": 0.9, "schedule": "onecycle"}),
    "python": (PythonFamily(target="tests.training.networks:normed"), NORMED),
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
    assert isinstance(together.outcome, Finished)
    assert isinstance(alone.outcome, Finished)
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


def test_the_value_is_what_its_models_say_of_the_rows_they_never_saw(
    tmp_path: Path, disc5: Dataset
) -> None:
    outcome = run(disc5, tmp_path, PARAMS).outcome
    assert isinstance(outcome, Finished)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    scores = judged_outputs(model.trained, disc5)
    log_p = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    loss = -log_p[np.arange(len(scores)), disc5.judged.y].mean()
    assert outcome.value == pytest.approx(loss, rel=1e-9)
    assert model.metrics["val_loss"] == outcome.value
    assert model.metrics["val_error"] == pytest.approx((scores.argmax(1) != disc5.judged.y).mean())
    each = [member.outputs(disc5.columns, disc5.train.rows) for member in model.trained.members]  # type: ignore[attr-defined]
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
    assert isinstance(run(dataset, tmp_path, PARAMS).outcome, Finished)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    members = model.trained.members  # type: ignore[attr-defined]
    row = int(twice[0].judged[0])
    (other,) = (n for n in range(3, 6) if row in twice[n].judged)
    one = dataset.train.rows[row : row + 1]
    p = [np.exp(members[n].outputs(dataset.columns, one)) for n in (0, other)]
    expected = np.mean([x / x.sum() for x in p], axis=0)
    found = np.exp(judged_outputs(model.trained, dataset)[row : row + 1])
    np.testing.assert_allclose(found / found.sum(), expected, rtol=1e-9)


def test_a_model_of_other_folds_is_refused(tmp_path: Path, disc5: Dataset) -> None:
    run(disc5, tmp_path, PARAMS)
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    with pytest.raises(ValueError, match="5 models for 4 folds"):
        judged_outputs(model.trained, replace(disc5, folds=disc5.folds[:4]))


@pytest.mark.parametrize("kind", [FoldsEstimator, CallByCall])
def test_a_trial_goes_on_as_if_it_had_not_been_interrupted(
    tmp_path: Path, disc5: Dataset, kind: type[FoldsEstimator]
) -> None:
    params = PARAMS | {"patience_epochs": 3, "ema_decay": 0.5, "lr": 0.3}
    whole = run(disc5, tmp_path / "whole", params, kind=kind)
    taken = checkpoint.load(tmp_path / "whole" / "trial-00000" / "last.pt")["state"]["course"]
    assert {step for step, *_ in taken} == {3, 4}, "some before, some after it was interrupted"
    folder = tmp_path / "parts"
    for step in (0, 3):
        stopped = run(disc5, folder, params, kind=kind, verdicts={step: Verdict.STOP})
        assert isinstance(stopped.outcome, Interrupted)
        assert not (folder / "trial-00000" / "best.pt").exists()
    last = run(disc5, folder, params, kind=kind)
    assert last.reports == whole.reports
    assert isinstance(last.outcome, Finished)
    assert isinstance(whole.outcome, Finished)
    assert last.outcome.value == whole.outcome.value
    for name in ("best.pt", "last.pt"):
        found, expected = (
            checkpoint.load(tmp_path / where / "trial-00000" / name) for where in ("parts", "whole")
        )
        assert_same(found, expected, 0.0)
    again = run(disc5, folder, params, kind=kind)  # killed before its end was recorded
    assert isinstance(again.outcome, Finished)
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
    assert isinstance(outcome, Pruned)
    assert outcome.step == 1
    assert np.isnan(outcome.value)
    assert not (tmp_path / "trial-00000" / "best.pt").exists()
    assert threading.active_count() == before


def test_trials_of_a_pack_are_those_that_train_alone(tmp_path: Path, disc5: Dataset) -> None:
    some = [PARAMS | {"depth": 1 + n, "width": 9 + n} for n in range(3)]
    specs = [make_spec(tmp_path / "pack", params, n) for n, params in enumerate(some)]
    plan, sweep = plan_of(disc5), Sweep({(1, 1): Verdict.PRUNE})
    session(plan, disc5).run_pack(Trials(specs, 3), HOST, sweep)
    assert sorted(sweep.reports_together[0]) == [0, 1, 2]
    outcome = sweep.of(1).outcome
    assert isinstance(outcome, Pruned)
    assert np.isnan(outcome.value)
    for number in (0, 2):
        listener = Listener()
        alone = make_spec(tmp_path / "alone", some[number], number)
        session(plan, disc5).run(alone, HOST, listener)
        assert sweep.of(number).reports == listener.reports, "by a bit"
        assert sweep.of(number).outcome == replace(
            listener.outcome, time=sweep.of(number).outcome.time
        )


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
    assert isinstance(outcome, Failed)
    assert "training diverged in epoch 0" in outcome.cause
    assert threading.active_count() == before


def test_what_cannot_be_stacked_trains_call_by_call(tmp_path: Path, disc5: Dataset) -> None:
    family = PythonFamily(target="tests.training.networks:Branching")
    params = {"lr": 0.02, "batch_size": 32}
    found = run(disc5, tmp_path, params, plan=plan_of(disc5, family))
    assert isinstance(found.outcome, Finished)
    assert len(found.reports) == N_EPOCHS


@pytest.fixture
def mean_family(monkeypatch: pytest.MonkeyPatch) -> Family:
    from tests.training import toy_family

    family = toy_family.MeanFamily()
    known = {"mean": toy_family.MeanFamily}
    monkeypatch.setattr("automl.training.family.families", lambda: known)
    monkeypatch.setattr("automl.training.predictor.families", lambda: known)
    return family


def test_any_family_has_folds(tmp_path: Path, disc5: Dataset, mean_family: Family) -> None:
    found = run(disc5, tmp_path, {"shrink": 0.0}, plan=plan_of(disc5, mean_family))
    assert isinstance(found.outcome, Finished)
    assert [step for step, _ in found.reports] == [*range(N_EPOCHS)]
    model = load(tmp_path / "trial-00000" / "best.pt")
    assert isinstance(model, Predictor)
    each = [np.bincount(disc5.fold(n).train.y) / len(disc5.fold(n).train) for n in range(5)]
    found_p = model.predict_probabilities(disc5.train.rows.numbers[:1])
    np.testing.assert_allclose(found_p[0], np.mean(each, axis=0))


def test_each_fold_draws_its_own_weights(tmp_path: Path, disc5: Dataset) -> None:
    run(disc5, tmp_path, PARAMS | {"lr": 1e-9})
    members = best(tmp_path)["state"]["members"]
    first = [member["weights"]["layers.0.weight"] for member in members]
    assert all(not torch.allclose(first[0], other, atol=1e-3) for other in first[1:])


def test_what_breaks_after_an_epoch_takes_it_back(tmp_path: Path, disc5: Dataset) -> None:
    """As where a device has no room for the copies of the models that are kept."""
    plan = plan_of(disc5)
    twin = FoldsEstimator(plan, disc5, packs_large=False)
    key = plan.pack_key(PARAMS, on_host=True)
    assert key is not None
    opened, whole = twin.open_pack(key, "cpu"), twin.open_pack(key, "cpu")
    for trainer in (opened.trainer, whole.trainer):
        trainer.add(0, opened.params(PARAMS), 7, None)
        trainer.run_epoch()

    def breaks(*_: object) -> dict[str, object]:
        raise MemoryError

    assert isinstance(opened.trainer, FoldPack)
    before, kind = checkpoint.snapshot(opened.trainer.state(0, 0)), opened.trainer._member
    opened.trainer._member = breaks
    with pytest.raises(MemoryError):
        opened.trainer.run_epoch()
    opened.trainer.rewind()
    assert_same(checkpoint.snapshot(opened.trainer.state(0, 0)), before, 0.0)
    opened.trainer.remove(0)
    opened.trainer._member = kind
    opened.trainer.add(0, opened.params(PARAMS), 7, before)
    assert opened.trainer.run_epoch() == whole.trainer.run_epoch()


def test_a_trial_of_one_of_several_families_has_folds(tmp_path: Path, disc5: Dataset) -> None:
    own = {f"mlp_{name}": value for name, value in PARAMS.items()}
    plan = plan_of(disc5, AutoFamily())
    found = run(disc5, tmp_path / "auto", {"family": "mlp", **own}, plan=plan)
    assert found.reports == run(disc5, tmp_path / "mlp", PARAMS).reports
    state = best(tmp_path / "auto")["state"]
    assert state["family"] == "mlp"
    assert_same(state, best(tmp_path / "mlp")["state"], 0.0)
    calls = run(disc5, tmp_path / "calls", {"family": "mlp", **own}, plan=plan, kind=CallByCall)
    assert isinstance(calls.outcome, Finished)
    assert best(tmp_path / "calls")["state"]["family"] == "mlp"


def test_an_ensemble_is_chosen_out_of_fold(tmp_path: Path, disc5: Dataset) -> None:
    models = {}
    for number, lr in enumerate((0.02, 0.005)):
        run(disc5, tmp_path / f"{number}", PARAMS | {"lr": lr})
        models[number] = str(tmp_path / f"{number}" / "trial-00000" / "best.pt")
    made = write(EnsembleFile(str(tmp_path / "ensemble.pt"), models, disc5, "a"))
    model = load(tmp_path / "ensemble.pt")
    assert isinstance(model, Predictor)
    assert len(model.model) == 5 * len(made.members)
    rows = disc5.train.rows
    each = [load(models[number]) for number in made.members]
    said = [np.exp(one.outputs(rows)) for one in each if isinstance(one, Predictor)]
    shares = [some / some.sum(1, keepdims=True) for some in said]
    expected = np.average(shares, axis=0, weights=list(made.members.values()))
    found = np.exp(model.outputs(rows))
    np.testing.assert_allclose(found / found.sum(1, keepdims=True), expected, rtol=1e-6)
    values = [checkpoint.load(Path(models[number]))["value"] for number in made.members]
    assert made.scores["loss"] <= max(values)


@pytest.mark.parametrize("name", ["linear", "trees", "boosting"])
def test_families_without_torch_have_folds(
    tmp_path: Path, disc5: Dataset, name: str, uneven: Dataset
) -> None:
    for dataset in (disc5, uneven):
        folder = tmp_path / dataset.name
        plan = plan_of(dataset, families()[name]())
        whole = run(dataset, folder / "whole", {}, plan=plan)
        assert isinstance(whole.outcome, Finished), whole.outcome
        run(dataset, folder / "parts", {}, plan=plan, verdicts={0: Verdict.STOP})
        parts = run(dataset, folder / "parts", {}, plan=plan)
        assert isinstance(parts.outcome, Finished)
        assert parts.outcome.value == pytest.approx(whole.outcome.value, rel=1e-9)
        model = load(folder / "whole" / "trial-00000" / "best.pt")
        assert isinstance(model, Predictor)
        assert len(model.trained.members) == len(dataset.folds)  # type: ignore[attr-defined]
        scores = judged_outputs(model.trained, dataset)
        scored = predictions(dataset.task, scores, dataset.judged.y, *model.unit).scored()
        if dataset is disc5:
            assert scored["loss"] == pytest.approx(whole.outcome.value, rel=1e-6)
