"""Foundation models by weights of a path: tiny random ones, which tell nothing but are read alike.

CI has neither library, each of which would double what a test environment installs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.config import Config, TrainingConfig
from automl.data.dataset import Dataset
from automl.errors import AutoMLError, ConfigError
from automl.models.families.auto.family import AutoFamily
from automl.models.families.foundation.family import FoundationFamily, TabICLFamily, TabPFNFamily
from automl.models.families.tree_arrays import tree_view
from automl.models.predictor import Predictor, load_table_model
from automl.objectives.training_plan import SessionSetup
from automl.objectives.training_session import open_session
from automl.running.prepare.preparation import prepare_study
from automl.trial import FinishedOutcome
from tests.models.conftest import HOST, Listener, make_plan, make_spec
from tests.models.tables import mixed, mixed_frame

SMALL: dict[str, Any] = {
    **{"embed_dim": 8, "num_quantiles": 9, "zero_init": False},
    **{f"{part}_num_blocks": 1 for part in ("col", "row", "icl")},
    **{f"{part}_nhead": 1 for part in ("col", "row", "icl")},
    **{"col_num_inds": 2, "row_num_cls": 1},
}


def tabicl_weights(path: Path, n_classes: int) -> None:
    model = pytest.importorskip("tabicl._model.tabicl", reason="tabicl is an extra")
    config = {**SMALL, "max_classes": n_classes}
    content = {"config": config, "state_dict": model.TabICL(**config).state_dict()}
    torch.save(content, path)


def tabpfn_weights(path: Path, n_classes: int) -> None:
    v2_5 = pytest.importorskip("tabpfn.architectures.tabpfn_v2_5", reason="tabpfn is an extra")
    from tabpfn.architectures.shared.bar_distribution import FullSupportBarDistribution

    sizes = {"emsize": 8, "nlayers": 1, "nhead": 1, "num_thinking_rows": 2, "num_buckets": 8}
    config = {"max_num_classes": n_classes, **sizes}
    state = v2_5.get_architecture(v2_5.parse_config(config)[0]).state_dict()
    if not n_classes:
        borders = FullSupportBarDistribution(torch.linspace(-3, 3, 9)).state_dict()
        state |= {f"criterion.{name}": value for name, value in borders.items()}
    torch.save({"config": config, "state_dict": state, "architecture_name": "tabpfn_v2_5"}, path)


WRITERS = {"tabicl": tabicl_weights, "tabpfn": tabpfn_weights}


@dataclass(frozen=True)
class Case:
    """A family, and what writes tiny random weights for it."""

    family: type[FoundationFamily]
    write: Callable[[Path, int], None]

    def at(self, folder: Path, *, n_classes: int = 10) -> FoundationFamily:
        """The family with weights in a folder."""
        torch.manual_seed(0)
        self.write(folder / "weights.ckpt", n_classes)
        return self.family(weights=str(folder / "weights.ckpt"))


CASES = [
    pytest.param(Case(TabICLFamily, tabicl_weights), id="tabicl"),
    pytest.param(Case(TabPFNFamily, tabpfn_weights), id="tabpfn"),
]


def train(folder: Path, family: Any, data: Dataset, **own: Any) -> tuple[Path, Listener]:
    """The model of a trial, and what it told."""
    plan = make_plan(family=family, training=TrainingConfig(epochs=1))
    spec, listener = make_spec(folder, {"n_estimators": 2, **own}), Listener()
    open_session(SessionSetup(plan, data)).run(spec, HOST, listener)
    return Path(spec.checkpoint_dir) / "best.pt", listener


def loaded(path: Path) -> Predictor:
    return load_table_model(path)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n_classes", [1, 2, 3], ids=["a value", "two classes", "three classes"])
def test_a_trial_predicts_as_the_library_does(case: Case, n_classes: int, tmp_path: Path) -> None:
    data = mixed(tmp_path, n_classes)
    family = case.at(tmp_path, n_classes=10 if n_classes > 1 else 0)
    path, listener = train(tmp_path, family, data)
    assert isinstance(listener.outcome, FinishedOutcome), listener.outcome
    ((_, metrics),) = listener.reports
    assert np.isfinite(metrics["val_loss"])
    predictor, frame = loaded(path), mixed_frame(n_classes, n_rows=30, seed=1)
    model: Any = predictor.trained_model
    from automl.models.families.foundation.heavy import _ESTIMATORS

    theirs = _ESTIMATORS[str(family.option)](model, Path(str(family.weights)), n_classes > 1)
    theirs.fit(model.x, model.y.astype(int) if n_classes > 1 else model.y)
    view = tree_view(data.columns, predictor.read(frame))
    if n_classes > 1:
        np.testing.assert_allclose(
            predictor.predict_probabilities(frame), theirs.predict_proba(view), atol=1e-5
        )
    else:
        values = theirs.predict(view) * data.target_scale + data.target_mean
        np.testing.assert_allclose(predictor.predict(frame), values, rtol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_weights_that_are_gone_or_others_are_named(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, family = mixed(tmp_path, 2), case.at(tmp_path)
    path, _ = train(tmp_path, family, data)
    frame = mixed_frame(2, n_rows=5)
    before, file = loaded(path).predict_probabilities(frame), tmp_path / "weights.ckpt"
    (tmp_path / "moved").mkdir()
    file.rename(tmp_path / "moved" / file.name)
    with pytest.raises(AutoMLError, match=r"weights\.ckpt is not there: put the file of SHA-256"):
        loaded(path)
    monkeypatch.setenv("AUTOML_WEIGHTS", str(tmp_path / "moved"))
    np.testing.assert_array_equal(loaded(path).predict_probabilities(frame), before)
    monkeypatch.delenv("AUTOML_WEIGHTS")
    torch.manual_seed(1)
    case.write(file, 10)
    with pytest.raises(AutoMLError, match=r"weights\.ckpt has other weights, of another version"):
        loaded(path)


@pytest.mark.parametrize("case", CASES)
def test_weights_for_the_other_kind_of_target_fail_the_trial_in_words(
    case: Case, tmp_path: Path
) -> None:
    data, family = mixed(tmp_path, 2), case.at(tmp_path, n_classes=0)
    listener = train(tmp_path, family, data)[1]
    assert "cannot predict classes with these weights" in str(listener.outcome)


@pytest.mark.parametrize("case", CASES)
def test_a_model_is_not_exported_and_says_why(case: Case, tmp_path: Path) -> None:
    path, _ = train(tmp_path, case.at(tmp_path), mixed(tmp_path, 2))
    predictor = loaded(path)
    assert predictor.export_formats == ()
    assert "reads its training rows with each prediction" in predictor.no_export_reason


# --- without the libraries ---


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is installed, the libraries count as if they were."""
    for family in (TabICLFamily, TabPFNFamily):
        monkeypatch.setattr(family, "extra", "torch")


def config_of(*words: str) -> Config:
    return compose_command(parse_command_line(list(words))).config


@pytest.mark.usefixtures("installed")
def test_weights_are_asked_for_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.weights is not set: model=tabicl loads weights"):
        prepare_study(config_of("model=tabicl"))
    with pytest.raises(ConfigError, match=r"nowhere\.ckpt: there is no file.*downloads none"):
        prepare_study(config_of("model=tabpfn", "model.weights=nowhere.ckpt"))
    words = ("model=auto", "space=auto", "model.families=[linear,tabicl]")
    with pytest.raises(ConfigError, match=r"model\.weights is not set.*model\.weights\.tabicl="):
        prepare_study(config_of(*words))
    weights = tmp_path / "weights.ckpt"
    weights.write_bytes(b"x")
    prepared = prepare_study(config_of(*words, f"model.weights.tabicl={weights}"))
    assert {"family": "tabicl"} in [{"family": p["family"]} for p in prepared.portfolio]
    with pytest.raises(ConfigError, match=r"model\.weights\.linear.*tabicl, tabpfn"):
        config_of("model=auto", f"model.weights.linear={weights}")


def test_other_weights_make_another_study(tmp_path: Path) -> None:
    weights = tmp_path / "weights.ckpt"
    weights.write_bytes(b"one")
    family = AutoFamily(families=["tabicl"], weights={"tabicl": str(weights)})
    before = family.identity()
    moved = weights.rename(tmp_path / "moved.ckpt")
    there = replace(family, weights={"tabicl": str(moved)})
    assert there.identity() == before, "a file may move"
    moved.write_bytes(b"another")
    assert there.identity() != before


def test_larger_weights_and_tables_need_more_memory(tmp_path: Path) -> None:
    weights = tmp_path / "weights.ckpt"
    weights.write_bytes(b"x" * 10**6)
    data = mixed(tmp_path, 2)
    sizes = [
        family.request({}, data, TrainingConfig()).memory_bytes or 0
        for family in (TabICLFamily(weights=str(weights)), TabPFNFamily(weights=str(weights)))
    ]
    assert 256 * 2**20 + 2 * 10**6 < sizes[0] < sizes[1]
