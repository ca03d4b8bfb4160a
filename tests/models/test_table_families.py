"""Families of tables, as trials: what they report, refuse, keep and ask for.

`test_library_models.py` compares their models with those of the libraries.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import LearningRateSchedule, Precision, Task, TrainingConfig
from automl.data.dataset import Dataset
from automl.errors import AutoMLError, ConfigError
from automl.in_trial.checkpoints import torch_checkpoint
from automl.in_trial.checkpoints.plain_checkpoint import is_plain_checkpoint
from automl.models.families.auto.family import AutoFamily
from automl.models.families.boosting.family import BoostingFamily, CatBoostFamily, LightGBMFamily
from automl.models.families.kernel.family import KernelFamily
from automl.models.families.linear.family import LinearFamily
from automl.models.families.table_family import TableFamily
from automl.models.families.trees.family import TreesFamily
from automl.models.mean_model import mean_outputs
from automl.models.mean_model_file import read_model_file, save_model_file, write_ensemble
from automl.models.mean_state import join_states, tree_shares
from automl.models.model_file import EnsembleFileJob
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.trial import DeviceKind, FinishedOutcome, Params, RequestSource, Verdict
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import TARGET, mixed, mixed_frame

FAMILIES: dict[str, TableFamily] = {
    "linear": LinearFamily(),
    "kernel": KernelFamily(landmarks=100),
    "trees": TreesFamily(trees_per_epoch=3),
    "boosting": BoostingFamily(iterations_per_epoch=5),
    "lightgbm": LightGBMFamily(iterations_per_epoch=5),
    "catboost": CatBoostFamily(iterations_per_epoch=5),
}
INSTALLED = [name for name, family in FAMILIES.items() if not family.missing_extras]
"""Families whose library is here. Of the extras CI has LightGBM alone: CatBoost takes 333 MB."""
EACH = [
    pytest.param(name, marks=[] if name in INSTALLED else pytest.mark.skip(f"{name} is an extra"))
    for name in FAMILIES
]


def trained(
    folder: Path,
    name: str,
    data: Dataset,
    params: Params | None = None,
    epochs: int = 1,
    verdicts: dict[int, Verdict] | None = None,
    **settings: Any,
) -> tuple[Predictor, Listener]:
    """The trial's best model, and what it told."""
    training = TrainingConfig(epochs=epochs, **settings)
    plan = make_plan(family=FAMILIES[name], training=training)
    spec, listener = make_spec(folder, params), Listener(verdicts or {})
    open_session(SessionSetup(plan, data)).run(spec, HOST, listener)
    return load_table_model(Path(spec.checkpoint_dir) / "best.pt"), listener


_FIT_AFTER_THEIR_MODULES = """
import importlib, os, sys
from pathlib import Path
from automl.config import TrainingConfig
from automl.models.families.auto.family import AutoFamily
from automl.models.family import load_families
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import mixed
data = mixed(Path(sys.argv[1]), 2)
for name in sys.argv[2:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    family, folder = load_families()[name](), Path(sys.argv[1], name)
    assert set(family.modules) <= set(AutoFamily().modules)
    for module in family.modules:
        importlib.import_module(module)
    before = set(sys.modules)
    plan = make_plan(family=family, training=TrainingConfig(epochs=1))
    open_session(SessionSetup(plan, data)).run(make_spec(folder, {}), HOST, Listener({}))
    late = {name for name in set(sys.modules) - before if name.startswith("sklearn.")}
    assert list(folder.rglob("best.pt"))
    found = " ".join(sorted(name for name in late if name.count(".") == 1))
    print(f"{name}: {found}", flush=True)
    os._exit(0)
"""


@pytest.mark.slow
def test_a_fit_loads_no_part_of_sklearn_that_its_process_was_not_forked_with(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", _FIT_AFTER_THEIR_MODULES, str(tmp_path), *INSTALLED]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "".join(f"{name}: \n" for name in INSTALLED)


@pytest.mark.filterwarnings("ignore::automl.errors.UnreadableCellWarning")
@pytest.mark.parametrize("name", EACH)
def test_rows_that_training_never_saw_the_like_of_are_predicted(
    name: str, table: Dataset, tmp_path: Path
) -> None:
    """Cells are missing where none was, and a text is new: scikit-learn would refuse them."""
    predictor, _ = trained(tmp_path, name, table)
    frame = mixed_frame(len(table.classes) or 1, n_rows=20, seed=2).drop(columns=TARGET)
    frame.loc[0, ["a", "b", "when", "kind"]] = None
    frame.loc[1, "kind"] = "never seen"
    frame.loc[2, ["a", "b"]] = [1e30, -1e300]
    assert np.isfinite(predictor.outputs(predictor.read(frame))).all()
    assert len(predictor.predict(frame)) == 20
    assert len(predictor.predict(frame[:0])) == 0


@pytest.mark.parametrize("name", EACH)
def test_what_is_reported_is_what_the_file_says(name: str, table: Dataset, tmp_path: Path) -> None:
    predictor, listener = trained(tmp_path, name, table, epochs=4)
    step, best = min(listener.reports, key=lambda report: report[1]["val_loss"])
    assert len(listener.reports) == (1 if name in ("linear", "kernel") else 4)
    assert isinstance(listener.outcome, FinishedOutcome)
    assert listener.outcome.value == best["val_loss"]
    part = table.validation
    out = predictor.outputs(part.rows)
    if table.task is Task.classification:
        logs = out - np.logaddexp.reduce(out, axis=1, keepdims=True)
        loss = -logs[np.arange(len(part)), part.y].mean()
        assert best["val_error"] == (out.argmax(axis=1) != part.y).mean()
    else:
        scaled = (part.y.astype(np.float64) - table.target_mean) / table.target_scale
        loss = np.square(out[:, 0] - scaled).mean()
        assert best["val_rmse"] == pytest.approx(math.sqrt(loss) * table.target_scale)
    assert best["val_loss"] == pytest.approx(loss, rel=1e-5), step


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("n_present", [1, 2])
def test_classes_without_a_training_row_are_said_to_be_rare(
    name: str, n_present: int, tmp_path: Path
) -> None:
    table = mixed(tmp_path, 3)
    places = np.flatnonzero(table.train.y < n_present)
    few = replace(table, train=table.train.take(places))
    predictor, listener = trained(tmp_path, name, few, epochs=2)
    assert isinstance(listener.outcome, FinishedOutcome)
    shares = predictor.predict_probabilities(mixed_frame(3, seed=1))
    assert (shares > 0).all()
    assert shares[:, n_present:].max() < 0.02
    assert (shares[:, :n_present].sum(axis=1) > 0.97).all()


@pytest.mark.parametrize("name", ["trees", "boosting", "lightgbm"])
def test_a_trial_ends_once_nothing_better_comes(name: str, tmp_path: Path) -> None:
    table = mixed(tmp_path, 2)
    stopped, whole = (
        trained(tmp_path / str(n), name, table, epochs=30, patience_epochs=n)[1] for n in (2, None)
    )
    losses = [metrics["val_loss"] for _, metrics in stopped.reports]
    assert len(losses) < len(whole.reports) == 30
    assert min(losses) == losses[-3], "two epochs were waited"
    assert losses == [metrics["val_loss"] for _, metrics in whole.reports][: len(losses)]


@pytest.mark.parametrize("name", EACH)
def test_a_pruned_trial_keeps_its_best_model(name: str, tmp_path: Path) -> None:
    predictor, listener = trained(tmp_path, name, mixed(tmp_path, 2), {}, 5, {0: Verdict.PRUNE})
    assert len(listener.reports) == 1
    assert type(listener.outcome).__name__ == "PrunedOutcome"
    assert predictor.metrics.items() >= listener.reports[0][1].items()


@pytest.mark.parametrize("name", EACH)
def test_threads_change_no_number(name: str, tmp_path: Path) -> None:
    table, found = mixed(tmp_path, 2), []
    for n_threads in (1, 2):
        plan = make_plan(family=FAMILIES[name], training=TrainingConfig(epochs=2))
        listener = Listener()
        session = open_session(SessionSetup(plan, table, n_threads))
        session.run(make_spec(tmp_path / str(n_threads)), HOST, listener)
        found.append(listener.reports)
    assert found[0] == found[1]


def test_a_model_has_no_network_and_tells_which_columns_matter(tmp_path: Path) -> None:
    for name in INSTALLED:
        predictor, _ = trained(tmp_path / name, name, mixed(tmp_path, 2), epochs=4)
        assert predictor.model is None
        assert predictor.to("cpu") is predictor
        assert list(predictor.explain(mixed_frame(2, seed=1)).index)[-1] == "b", name


# --- beside others ---


def test_trees_and_networks_are_members_of_one_model(tmp_path: Path) -> None:
    """With `model=auto`, each trial's file is the one its family writes."""
    table = mixed(tmp_path, 2)
    plan = make_plan(family=AutoFamily(families=["mlp", "trees", "boosting"]))
    session, models = open_session(SessionSetup(plan, table)), {}
    for number, name in enumerate(("mlp", "trees", "boosting")):
        spec = make_spec(tmp_path, {"family": name}, number)
        session.run(spec, HOST, Listener())
        models[number] = str(Path(spec.checkpoint_dir) / "best.pt")
    assert [is_plain_checkpoint(Path(path)) for path in models.values()] == [False, True, True]
    rows = table.validation.rows
    for path, chosen in (("all.pt", (0, 1, 2)), ("trees.pt", (1, 2))):
        contents = [read_model_file(Path(models[number])) for number in chosen]
        state = join_states([content["state"] for content in contents])
        of = [Path(models[number]) for number in chosen]
        save_model_file(tmp_path / path, {**contents[0], "state": state}, of)
        assert is_plain_checkpoint(tmp_path / path) == (0 not in chosen)
        each = np.stack([load_table_model(models[n]).outputs(rows) for n in chosen])
        joined = load_table_model(tmp_path / path).outputs(rows)
        np.testing.assert_array_equal(joined, mean_outputs(each, table.task))


@pytest.mark.parametrize("name", ["trees", "boosting"])
def test_a_strangers_tensor_is_no_larger_than_its_file(name: str, tmp_path: Path) -> None:
    """A number in a torch file can stand for as many as the file claims."""
    trained(tmp_path, name, mixed(tmp_path, 2))
    content = read_model_file(tmp_path / "trial-00000" / "best.pt")
    as_torch = torch_checkpoint.snapshot({**content, "state": {**content["state"], "trees": {}}})
    arrays = torch_checkpoint.snapshot(content["state"]["trees"])
    arrays["column"] = torch.tensor([-1], dtype=torch.int16).expand(10**12)
    as_torch["state"]["trees"] = arrays
    torch_checkpoint.save(tmp_path, {"best.pt": as_torch})
    assert (tmp_path / "best.pt").stat().st_size < 10**6
    with pytest.raises(AutoMLError, match="larger than the file"):
        load_table_model(tmp_path / "best.pt")


# --- the light side ---


@pytest.mark.parametrize("name", EACH)
def test_a_request_is_for_the_cpu_alone(name: str, table: Dataset) -> None:
    family, training = FAMILIES[name], TrainingConfig()
    request = family.request({}, table, training)
    assert request.source is RequestSource.ESTIMATED
    assert request.kinds == {DeviceKind.CPU}
    unknown = family.request({"no such": 1}, table, training)
    assert unknown.source is RequestSource.UNKNOWN
    assert unknown.kinds == {DeviceKind.CPU}


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("linear", {"l2": 0.0}),
        ("linear", {"l2": math.inf}),
        ("kernel", {"kind": "oak"}),
        ("kernel", {"spread": 0}),
        ("kernel", {"l2": -1.0}),
        ("trees", {"kind": "oak"}),
        ("trees", {"max_features": 0.0}),
        ("trees", {"max_features": 1.01}),
        ("trees", {"max_features": True}),
        ("trees", {"min_samples_leaf": 0}),
        ("trees", {"min_samples_leaf": 2.5}),
        ("trees", {"max_leaf_nodes": 1}),
        ("trees", {"max_leaf_nodes": 2.5}),
        ("boosting", {"learning_rate": 0}),
        ("boosting", {"max_leaf_nodes": 1025}),
        ("boosting", {"l2_regularization": -1}),
        ("boosting", {"max_features": None}),
        ("lightgbm", {"num_leaves": 1025}),
        ("lightgbm", {"subsample": 0}),
        ("lightgbm", {"extra_trees": 1}),
        ("catboost", {"depth": 11}),
    ],
    ids=str,
)
def test_a_value_that_it_cannot_take_is_refused_by_name(name: str, params: Params) -> None:
    ((param, value),) = params.items()
    with pytest.raises(ValueError, match=rf"^{param}={value!r}: must be "):
        FAMILIES[name].check_value(param, value)
    with pytest.raises(ValueError, match=rf"^{param}={value!r}: must be "):
        FAMILIES[name].params(params)


def test_leaves_get_more_rows_only_where_a_file_would_grow_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    params: Params = {"min_samples_leaf": 1}
    data = mixed(tmp_path, 1)
    free: Any = trained(tmp_path / "free", "trees", data, params)[0].trained_model
    assert len(free.trees.value) > 0.9 * 3 * len(data.train), "a leaf for nearly each row"
    assert not caplog.messages
    monkeypatch.setattr("automl.models.families.trees.family.MAX_TRIAL_LEAVES", 300)
    bound: Any = trained(tmp_path / "bound", "trees", data, params, epochs=2)[0].trained_model
    assert 100 < len(bound.trees.value) <= 300
    (message, *others) = caplog.messages
    assert "below 50 MB: min_samples_leaf is " in message
    assert len(others) < 2, "the second epoch goes on with what the first has found"


def test_an_ensemble_keeps_fewer_trees_only_where_its_loss_allows_it(tmp_path: Path) -> None:
    data, models = mixed(tmp_path, 1), {}
    for number, kind in enumerate(("extra_trees", "random_forest")):
        trained(tmp_path / kind, "trees", data, {"kind": kind}, epochs=30)
        models[number] = str(tmp_path / kind / "trial-00000" / "best.pt")
    job = EnsembleFileJob(str(tmp_path / "ensemble.pt"), models, data, "a")
    whole, n_leaves = write_ensemble(job), leaves_of(tmp_path / "ensemble.pt")
    assert len(whole.members) == 2
    assert whole.note == ""
    fewer = write_ensemble(replace(job, max_leaves=n_leaves * 9 // 10))
    assert 0.7 * n_leaves < leaves_of(tmp_path / "ensemble.pt") <= 0.9 * n_leaves
    assert f"{n_leaves:,} leaves, above {n_leaves * 9 // 10:,}" in fewer.note
    outputs = load_table_model(job.path).outputs(data.validation.rows)
    errors = outputs[:, 0] - (data.validation.y - data.target_mean) / data.target_scale
    assert fewer.scores["loss"] == pytest.approx(np.square(errors).mean())
    kept = write_ensemble(replace(job, max_leaves=1))
    assert "all are kept, since fewer trees are worse" in kept.note
    assert leaves_of(tmp_path / "ensemble.pt") == n_leaves
    assert kept.scores == whole.scores


def test_heavier_forests_keep_more_of_their_trees() -> None:
    weights, n_leaves = {0: 0.6, 1: 0.3, 2: 0.1}, {0: 1000, 1: 1000, 2: 0}
    shares = tree_shares(n_leaves, weights, 1200)
    assert shares[0] == pytest.approx(2 * shares[1])
    assert 1180 < sum(shares[trial] * n for trial, n in n_leaves.items()) <= 1200
    assert tree_shares(n_leaves, weights, 1800)[0] == 1.0


def leaves_of(path: Path) -> int:
    model: Any = load_table_model(path).trained_model
    return sum(len(member.trees.leaf) for member in model.members)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (TrainingConfig(precision=Precision.float64), "training.precision=float64: "),
        (TrainingConfig(schedule=LearningRateSchedule.cosine), "training.schedule=cosine: "),
        (TrainingConfig(ema_decay=0.9), "training.ema_decay=0.9: "),
        (TrainingConfig(loss="mine:loss"), "training.loss=mine:loss: "),
    ],
    ids=str,
)
def test_a_setting_that_is_about_networks_is_refused(
    training: TrainingConfig, message: str
) -> None:
    for family in FAMILIES.values():
        family.check_training(TrainingConfig(epochs=3, patience_epochs=2))
        with pytest.raises(ConfigError, match=f"^{message}.* model=mlp"):
            family.check_training(training)


def test_a_number_of_trees_is_one_at_least() -> None:
    with pytest.raises(ConfigError, match=r"^model.trees_per_epoch=0: "):
        TreesFamily(trees_per_epoch=0)
    with pytest.raises(ConfigError, match=r"^model.iterations_per_epoch=0: "):
        BoostingFamily(iterations_per_epoch=0)


@pytest.mark.parametrize("name", EACH)
def test_a_rare_class_counts_as_much_as_a_frequent_one(name: str, tmp_path: Path) -> None:
    data = mixed(tmp_path, 2)
    few = np.flatnonzero(data.train.y == 1)[::10]
    rows = np.sort(np.concatenate([np.flatnonzero(data.train.y == 0), few]))
    uneven = replace(data, train=data.train.take(rows))
    frame = mixed_frame(2, seed=1)
    own: Params = {"min_samples_leaf": 10} if name == "trees" else {}
    shares = [
        trained(tmp_path / weight, name, uneven, {"class_weight": weight, **own})[0]
        .predict_probabilities(frame)[:, 1]
        .mean()
        for weight in ("none", "balanced")
    ]
    assert shares[1] > 1.2 * shares[0]
