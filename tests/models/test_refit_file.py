"""`refit.pt`: one seed as it is, several as one model by their mean, and what is no such file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.config import DataConfig, Task
from automl.data.columns import make_divided_columns
from automl.data.dataset import Dataset, DatasetPart
from automl.data.load import load_dataset
from automl.errors import AutoMLError
from automl.export.network_graph import graph_inputs, make_scoring_module
from automl.in_trial.checkpoints import torch_checkpoint
from automl.models.families.mlp.family import MLPFamily
from automl.models.families.mlp.network import MLPNetwork, MLPShape
from automl.models.mean_model_file import read_model_file, save_model_file, write_refit
from automl.models.model_file import (
    SHARPNESS_KEY,
    RefitFacts,
    RefitFileJob,
    make_model_state,
)
from automl.models.predictor import load, load_table_model

OF = RefitFacts(7, "train+validation", 3, "ab")
POINTS = np.random.default_rng(0).uniform(-1, 1, (20, 2))


def regression() -> Dataset:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    part = DatasetPart(disc.train.rows, np.zeros(10, np.float64))
    return replace(
        disc, task=Task.regression, classes=(), train=part, validation=part, target_scale=3.0
    )


def seed(folder: Path, number: int, dataset: Dataset) -> Path:
    """A `best.pt` of an untrained network."""
    network = MLPNetwork(MLPShape(2, (5,), dataset.n_outputs))
    module = network.build(torch.float32, torch.device("cpu"), number)
    model = {"model": network.plain(), "weights": module.state_dict()}
    state = make_model_state(MLPFamily(), dataset, model)
    content = {"trial": number, "params": {"width": 5}, "step": 3, "state": state}
    torch_checkpoint.save(folder, {f"{number}.pt": content})
    return folder / f"{number}.pt"


def written(folder: Path, seeds: list[Path]) -> Path:
    path = folder / "refit.pt"
    write_refit(RefitFileJob(str(path), [str(one) for one in seeds], "a", OF))
    return path


@pytest.mark.parametrize("n_seeds", [1, 3])
def test_probabilities_are_the_mean(n_seeds: int, tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    seeds = [seed(tmp_path, number, disc) for number in range(n_seeds)]
    model = load_table_model(written(tmp_path, seeds))
    each = [load(one).predict_probabilities(POINTS) for one in seeds]
    found = model.predict_probabilities(POINTS)
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-9)
    assert (model.predict(POINTS) == found.argmax(1)).all()
    assert model.params == {"width": 5}
    assert model.refitted == OF
    assert torch_checkpoint.load(tmp_path / "refit.pt")["study"] == "a"
    assert load_table_model(seeds[0]).refitted is None


def test_the_mean_is_used_as_any_model(tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    seeds = [seed(tmp_path, number, disc) for number in range(2)]
    (tmp_path / "events.log").touch()
    model = load_table_model(written(tmp_path, seeds))
    assert [type(one) for one in model.model] == [type(load_table_model(s).model) for s in seeds]
    assert model.to("cpu") is model
    assert model.study == tmp_path.name
    assert model.metrics == {}, "nobody measured the mean"
    labels = model.predict(POINTS)
    assert model.score(POINTS, labels)["error"] == 0.0
    assert len(model.explain(POINTS, labels)) == 2
    arrays = {
        name: torch.from_numpy(x)
        for name, x in graph_inputs(model.columns, model.read(POINTS)).items()
    }
    said = make_scoring_module(model)(**arrays).detach().numpy()
    np.testing.assert_allclose(said, model.predict_probabilities(POINTS), rtol=1e-6)


def test_values_are_the_mean(tmp_path: Path) -> None:
    seeds = [seed(tmp_path, number, regression()) for number in range(2)]
    each = [load(one).predict(POINTS) for one in seeds]
    found = load(written(tmp_path, seeds)).predict(POINTS)
    np.testing.assert_allclose(found, np.mean(each, axis=0), rtol=1e-9)
    assert not np.allclose(each[0], each[1])


def test_what_they_share_is_kept_once(tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    path = written(tmp_path, [seed(tmp_path, number, disc) for number in range(2)])
    state = torch_checkpoint.load(path)["state"]
    assert [set(member) for member in state["members"]] == [{"weights"}] * 2
    assert "weights" not in state


def test_a_seed_without_a_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(AutoMLError, match=r"9\.pt: there is no such file"):
        written(tmp_path, [tmp_path / "9.pt"])
    assert not (tmp_path / "refit.pt").exists()


def _no_members(state: dict[str, Any]) -> None:
    state["members"] = []


def _no_models(state: dict[str, Any]) -> None:
    state["members"] = [1, 2]


def _one_that_is_larger_than_its_share(state: dict[str, Any]) -> None:
    state["members"] = [state["members"][0]] * 100


def _of_other_columns(state: dict[str, Any]) -> None:
    state["preprocessing"] = make_divided_columns(1.0, ("a", "b", "c")).plain()


@pytest.mark.parametrize(
    "spoil",
    [_no_members, _no_models, _one_that_is_larger_than_its_share, _of_other_columns],
    ids=lambda spoil: str(spoil.__name__).strip("_"),
)
def test_a_strangers_file_is_no_model(spoil: Any, tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    path = written(tmp_path, [seed(tmp_path, number, disc) for number in range(2)])
    content = torch_checkpoint.load(path)
    spoil(content["state"])
    torch_checkpoint.save(tmp_path, {"spoilt.pt": content})
    with pytest.raises(AutoMLError, match="this is not a model that can be used"):
        load(tmp_path / "spoilt.pt")


# --- of an ensemble -------------------------------------------------------------------------------


def ensemble(folder: Path, n_seeds: int) -> Path:
    """Trials 4 and 2, of weights 0.75 and 0.25, of so many networks each."""
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    seeds = [str(seed(folder, number, disc)) for number in range(2 * n_seeds)]
    of = replace(OF, trial=4, members=(4, 2))
    path = folder / "refit.pt"
    write_refit(RefitFileJob(str(path), seeds, "a", of, weights={4: 0.75, 2: 0.25}))
    return path


@pytest.mark.parametrize("n_seeds", [1, 2])
def test_members_keep_their_weights_each_the_mean_of_its_seeds(
    n_seeds: int, tmp_path: Path
) -> None:
    model = load_table_model(ensemble(tmp_path, n_seeds))
    each = [
        load_table_model(tmp_path / f"{number}.pt").predict_probabilities(POINTS)
        for number in range(2 * n_seeds)
    ]
    four, two = np.mean(each[:n_seeds], axis=0), np.mean(each[n_seeds:], axis=0)
    expected = 0.75 * four + 0.25 * two
    np.testing.assert_allclose(model.predict_probabilities(POINTS), expected, rtol=1e-6)
    assert model.params == {"trial-00004": 0.75, "trial-00002": 0.25}
    assert model.metrics == {}
    assert model.refitted is not None
    assert model.refitted.members == (4, 2)
    heaviest = model.of_heaviest(1).predict_probabilities(POINTS)
    np.testing.assert_allclose(heaviest, four, rtol=1e-6)
    whole = model.of_heaviest(9).predict_probabilities(POINTS)
    np.testing.assert_allclose(whole, expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        *(("state", "member_sizes", v) for v in ([1], [1, 2], [2, 0], "ab", [True, 1], [1.0, 1])),
        *(("refitted", "members", v) for v in (3, [-1], ["a"], [True])),
    ],
)
def test_members_that_are_none_are_refused(
    part: str, name: str, value: object, tmp_path: Path
) -> None:
    path = ensemble(tmp_path, 1)
    content = torch_checkpoint.load(path)
    content[part][name] = value
    torch_checkpoint.save(tmp_path, {"refit.pt": content})
    with pytest.raises(AutoMLError, match="not a model that can be used"):
        load(path)


def test_one_model_has_no_members_to_choose_from(tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    model = load_table_model(seed(tmp_path, 0, disc))
    with pytest.raises(AutoMLError, match="is one model, and has no members"):
        model.of_heaviest(1)


def test_a_refit_is_as_sure_as_the_ensemble_that_it_repeats(tmp_path: Path) -> None:
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    seeds, refit = [seed(tmp_path, number, disc) for number in range(2)], tmp_path / "refit.pt"
    content, ensemble = read_model_file(written(tmp_path, seeds)), tmp_path / "ensemble.pt"
    content["state"] = {**content["state"], SHARPNESS_KEY: 2.0}
    save_model_file(ensemble, content, seeds)
    weights = {0: 0.5, 1: 0.5}
    write_refit(RefitFileJob(str(refit), list(map(str, seeds)), "a", OF, str(ensemble), weights))
    squares = np.square(sum(load(one).predict_probabilities(POINTS) for one in seeds))
    wanted = squares / squares.sum(axis=1, keepdims=True)
    model = load_table_model(refit)
    assert model.predict_probabilities(POINTS) == pytest.approx(wanted, rel=1e-6)
    arrays = graph_inputs(model.columns, model.read(POINTS))
    with torch.no_grad():
        said = make_scoring_module(model)(**{n: torch.from_numpy(a) for n, a in arrays.items()})
    assert said.numpy() == pytest.approx(wanted, rel=1e-6)
