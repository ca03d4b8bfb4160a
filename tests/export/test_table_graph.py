"""Linear models, trees and means of them as ONNX: what is exported says what the model says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind, ExportFormat, Task
from automl.data.columns import NumberColumn, TableColumns
from automl.data.dataset import Dataset
from automl.data.load import load_dataset
from automl.errors import ConfigError
from automl.export import formats, table_graph
from automl.export.package import ExportProof, export_model, open_export_reader
from automl.export.parity import N_BORDERS, border_rows
from automl.measure.tuning import measurement
from automl.measure.tuning.measurement import AccuracyCheck, measure_ways
from automl.measure.tuning.ways import ways_here
from automl.models.families.tree_arrays import tree_view
from automl.models.mean_model import MeanModel
from automl.models.mean_model_file import read_model_file
from automl.models.mean_state import join_states
from automl.models.model_file import MODEL_FORMAT, SHARPNESS_KEY
from automl.models.predictor import Predictor
from tests.export.conftest import linear, predictor_of, scores_of
from tests.models.tables import TARGET, by_class, mixed, mixed_frame, shops_frame
from tests.models.test_table_families import EACH, INSTALLED, trained

pytest.importorskip("onnxruntime", reason="needs pip install 'automl-sweep[export]'")
CLOSE = 1e-6
ONNX = ExportFormat.onnx


@pytest.fixture(scope="module", params=[1, 2, 3], ids=["a value", "two classes", "three classes"])
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return mixed(tmp_path_factory.mktemp("tables"), request.param)


def rows_of(n_rows: int = 60, seed: int = 1) -> list[dict[str, Any]]:
    """Some of whose cells are missing, and texts of no training row."""
    frame = mixed_frame(1, n_rows, seed).drop(columns=TARGET)
    rows = [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]
    rows[1] |= {"kind": "never seen", "b": None}
    rows[2] |= {"kind": None}
    return rows


def check_export(predictor: Predictor, to: Path) -> None:
    """The whole way of an export, and rows that it did not compare."""
    assert export_model(predictor, rows_of(), to, ONNX, {}).largest < CLOSE
    model, rows = open_export_reader(to), rows_of(300, seed=2)
    arrays = [model.arrays(row) for row in rows]
    together = {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
    said, ours = model.scores(**together), scores_of(predictor, rows)
    assert said.dtype == np.float64
    assert np.abs(said - ours).max() / predictor.unit[1] < CLOSE
    if predictor.classes:
        assert [model(row) for row in rows] == predictor.predict(pd.DataFrame(rows)).tolist()


@pytest.mark.parametrize("name", EACH)
def test_an_export_says_what_the_model_says(name: str, table: Dataset, tmp_path: Path) -> None:
    predictor, _ = trained(tmp_path, name, table, epochs=3)
    check_export(predictor, tmp_path / "out")
    schema = json.loads((tmp_path / "out" / "schema.json").read_text())
    assert (schema["format"], schema["file"], schema["bound_to"]) == ("onnx", "model.onnx", [])


def trained_on(data: Dataset, classes: list[int]) -> Dataset:
    """Return the data set with only the training rows of these classes."""
    places = np.flatnonzero(np.isin(data.train.y, classes))
    return replace(
        data, train=replace(data.train, rows=data.train.rows.take(places), y=data.train.y[places])
    )


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("classes", [[1], [0, 2]], ids=["one class", "two of three"])
def test_classes_without_a_training_row_have_their_share(
    name: str, classes: list[int], tmp_path: Path
) -> None:
    data = trained_on(mixed(tmp_path, 3), classes)
    predictor, _ = trained(tmp_path, name, data)
    assert len(predictor.classes) == 3
    check_export(predictor, tmp_path / "out")


def test_of_two_classes_one_alone(tmp_path: Path) -> None:
    for name in INSTALLED:
        data = trained_on(mixed(tmp_path, 2), [1])
        predictor, _ = trained(tmp_path / name, name, data)
        check_export(predictor, tmp_path / name / "out")


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("kept", [["a", "b"], ["kind"]], ids=["numbers alone", "texts alone"])
def test_a_table_without_columns_of_a_kind_has_no_such_input(
    name: str, kept: list[str], tmp_path: Path
) -> None:
    mixed_frame(2)[[*kept, TARGET]].to_csv(tmp_path / "table.csv", index=False)
    path = str(tmp_path / "table.csv")
    data = load_dataset(DataConfig(kind=DataKind.csv, path=path, target=TARGET))
    for number, some in enumerate((data, trained_on(data, [1]))):
        predictor, _ = trained(tmp_path / str(number), name, some)
        check_export(predictor, tmp_path / str(number) / "out")


@pytest.mark.parametrize("kept", [["a", "kind"], ["a", "b"], ["kind"]], ids="-".join)
def test_a_graph_spreads_kinds_as_the_view_does(kept: list[str], tmp_path: Path) -> None:
    mixed_frame(2)[[*kept, TARGET]].to_csv(tmp_path / "table.csv", index=False)
    path = str(tmp_path / "table.csv")
    data = load_dataset(DataConfig(kind=DataKind.csv, path=path, target=TARGET))
    predictor, _ = trained(tmp_path, "boosting", data, {"encoding": "one_hot"})
    check_export(predictor, tmp_path / "out")


def network(columns: TableColumns, predictor: Predictor) -> dict[str, Any]:
    """The state of one, for the same answers."""
    numbers = [replace(column, made_of="", part="") for column in columns.numbers]
    columns = TableColumns((*numbers, *columns.categories))
    found = predictor_of(columns, linear, classes=predictor.classes, unit=predictor.unit)
    weights = found.model.state_dict()
    sizes = {"n_inputs": weights["0.weight"].shape[1], "n_outputs": max(1, len(predictor.classes))}
    return {
        "format": MODEL_FORMAT,
        "family": "python",
        "model": {"target": "a:b", **sizes, "arguments": {}},
        "weights": weights,
    }


@pytest.mark.parametrize("with_network", [False, True])
def test_a_mean_of_several_families_is_one_graph(
    table: Dataset, with_network: bool, tmp_path: Path
) -> None:
    states = []
    for name in INSTALLED:
        predictor, _ = trained(tmp_path / name, name, table)
        states.append(read_model_file(predictor.path)["state"])
    if with_network:
        states.append({**states[0], **network(table.columns, predictor)})
    weights = (np.arange(len(states)) + 2).astype(float)
    weights = (weights / weights.sum()).tolist()
    content = {"state": {**join_states(states, weights), SHARPNESS_KEY: 1.5}, "params": {}}
    mean = Predictor(content, tmp_path / "ensemble.pt", 2**30, linear)
    assert mean.export_formats == (ONNX,)
    if mean.classes:
        assert isinstance(mean.trained_model, MeanModel)
        assert mean.of_heaviest(2).trained_model.sharpness == mean.trained_model.sharpness == 1.5  # type: ignore[attr-defined]
    check_export(mean, tmp_path / "out")
    assert [path.name for path in tmp_path.joinpath("out").iterdir()].count("model.onnx") == 1


def test_a_forest_takes_few_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And values of leaves are looked up a few trees at a time."""
    monkeypatch.setattr(table_graph, "_VALUES_AT_ONCE", 7)
    predictor, _ = trained(tmp_path, "trees", mixed(tmp_path, 3), epochs=10)
    check_export(predictor, tmp_path / "out")
    n_nodes = len(predictor.trained_model.trees.column)  # type: ignore[attr-defined]
    assert (tmp_path / "out" / "model.onnx").stat().st_size < 20 * n_nodes


def test_leaves_of_a_tree_that_say_the_same_are_one_leaf_of_the_file(tmp_path: Path) -> None:
    predictor, _ = trained(tmp_path, "trees", mixed(tmp_path, 3), {"min_samples_leaf": 1})
    check_export(predictor, tmp_path / "out")
    trees = predictor.trained_model.trees  # type: ignore[attr-defined]
    number = np.arange(len(trees.n_nodes))
    found = table_graph.tree_attributes(trees, trees.leaf, number, len(number))
    assert len(found["leaf_targetids"]) < 0.2 * len(trees.leaf)
    links = [
        np.array(found[f"nodes_{side}nodeids"])[np.array(found[f"nodes_{side}leafs"]) == 1]
        for side in ("true", "false")
    ]
    uses = np.bincount(np.concatenate(links))
    assert (np.diff(uses) <= 0).all(), "leaves of many nodes have small numbers, of few bytes"


# --- rows on thresholds ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trees", "boosting"])
def test_rows_lie_on_thresholds_and_beside_them(name: str, table: Dataset, tmp_path: Path) -> None:
    predictor, _ = trained(tmp_path, name, table)
    model, columns = predictor.trained_model, predictor.columns
    at, thresholds = model.borders()  # type: ignore[attr-defined]
    laid = list(border_rows(columns, rows_of(), (at, thresholds)))
    view = tree_view(columns, predictor.read(pd.DataFrame([row for _, row in laid])))
    assert 20 < len(laid) / 3 <= N_BORDERS
    names = [column.name for column in columns.numbers]
    place = [names.index(said.split("=")[0].removeprefix("a row with ")) for said, _ in laid]
    on, nearly, above = (
        np.array([row[p] for row, p in zip(view, place, strict=True)]).reshape(-1, 3).T
    )
    assert (above > on).all()
    # Of times since 1970 float64 keeps less.
    plain = np.array(place)[::3] != names.index("when")
    assert (nearly == on)[plain].all()
    known = {(int(c), float(t)) for c, t in zip(at, thresholds, strict=True)}
    assert {
        (p, float(t)) for p, t in zip(np.array(place)[::3][plain], on[plain], strict=True)
    } <= known
    proof = ExportProof.of(predictor, rows_of())
    assert {said for said, _ in laid} <= set(proof.names)


def test_no_row_is_laid_where_a_cell_is_no_number() -> None:
    columns = TableColumns(
        (
            NumberColumn("when", 0.0, 1.0, 0.0, has_indicator=False),
            NumberColumn("made", 0.0, 1.0, 0.0, has_indicator=False, made_of="x", part="year"),
            NumberColumn("a", 10.0, 2.0, 0.0, has_indicator=False),
        )
    )
    rows: list[dict[str, Any]] = [
        {"when": pd.Timestamp(0), "x": "1999", "a": None},
        {"when": None, "x": 1.0, "a": 5},
    ]
    borders = np.array([0, 1, 2, 2, 3]), np.array([1.0, 1.0, 1.0, np.inf, 1.0])
    laid = [row for _, row in border_rows(columns, rows, borders)]
    assert [row["a"] for row in laid] == pytest.approx([12.0] * 3)
    assert laid[0]["a"] == 12.0 < laid[1]["a"] < laid[2]["a"]
    assert [*border_rows(columns, rows[:1], borders)] == []


# --- what cannot be -------------------------------------------------------------------------------


def test_trees_that_fill_more_than_a_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predictor, _ = trained(tmp_path, "trees", mixed(tmp_path, 2))
    export_model(predictor, rows_of(), tmp_path / "out", ONNX, {})
    size = (tmp_path / "out" / "model.onnx").stat().st_size
    monkeypatch.setattr(
        formats, "MAX_ONNX_BYTES", size - 10_000
    )  # beside the trees there is little
    with pytest.raises(ConfigError, match=r"2 GiB at most, and the trees take [\d,]+ bytes"):
        export_model(predictor, rows_of(), tmp_path / "more", ONNX, {})
    assert not (tmp_path / "more").exists()


def test_what_torch_would_run_is_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ONE_ROW_SECONDS", "BATCH_SECONDS"):
        monkeypatch.setattr(measurement, name, 0.0)
    monkeypatch.setattr(measurement, "BATCH_SIZES", (1, 16))
    data = mixed(tmp_path, 2)
    predictor, _ = trained(tmp_path, "boosting", data)
    assert data.task is Task.classification
    validation = AccuracyCheck.of(predictor, data.validation, 0.0)
    seen = measure_ways(predictor, validation, ways_here(predictor), tmp_path, lambda *_: None)
    assert {one.name for one in seen.ways if one.timing} == {"onnx"}
    assert all(one.is_accurate and one.is_file for one in seen.ways if one.timing)
    why = {one.name: one.why_not for one in seen.ways}
    assert why["torch, eager"] == why["onnx, int8"]
    assert "by ONNX Runtime alone" in why["aoti"]


@pytest.mark.filterwarnings("ignore::automl.errors.UnreadableCellWarning")
@pytest.mark.parametrize("name", EACH)
def test_combined_columns_are_computed_by_the_reader(name: str, tmp_path: Path) -> None:
    frame, path = mixed_frame(2), tmp_path / "t.csv"
    side = np.random.default_rng(0).choice(["left", "right", ""], len(frame))
    frame.assign(side=side).to_csv(path, index=False)
    pairs = ["a / b", "b * when", "a * b * when", "a - b", "kind & side"]
    data = load_dataset(DataConfig(DataKind.csv, str(path), TARGET, combine=pairs))
    assert data.columns.pair_names == pairs
    predictor, _ = trained(tmp_path, name, data, epochs=2)
    sides = ["left", "right", None, "up"]
    rows = [{**row, "side": sides[i % 4]} for i, row in enumerate(rows_of(80, seed=3))]
    rows += [{**rows[0], "b": 0.0}, {**rows[0], "b": 1e-300}, {**rows[0], "a": float("inf")}]
    assert export_model(predictor, rows, tmp_path / "out", ONNX, {}).largest < CLOSE
    model = open_export_reader(tmp_path / "out")
    said = [list(model.probabilities(row).values()) for row in rows]
    np.testing.assert_allclose(said, scores_of(predictor, rows), atol=CLOSE)
    assert {column["name"] for column in model.schema["columns"]} == {*frame.columns, "side"} - {
        TARGET
    }


@pytest.mark.parametrize("kind", ["mean", ONNX, ExportFormat.torch])
def test_each_model_has_its_target_encoding_in_the_export(
    kind: ExportFormat | str, tmp_path: Path
) -> None:
    frame, path = by_class(shops_frame(500, 70), 3), tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    combine = [f"{TARGET} by shop", "a / b"]
    config = DataConfig(DataKind.csv, str(path), TARGET, rules=5, folds=5, combine=combine)
    data, states = load_dataset(config), []
    for number, name in enumerate(INSTALLED if kind == "mean" else ["linear"] * 2):
        first, _ = trained(tmp_path / str(number), name, data.fold(number))
        states.append(read_model_file(first.path)["state"])
    if kind == "mean":
        states.append({**states[0], **network(data.columns, first)})
    else:
        states = [{**state, **network(data.columns, first)} for state in states]
    encodings = [state["target_encoding"] for state in states]
    assert encodings[0] != encodings[1]
    content = {"state": join_states(states, None), "params": {}}
    predictor = Predictor(content, tmp_path / "ensemble.pt", 2**30, linear)
    rows = [{str(key): cell for key, cell in row.items()} for row in frame[:12].to_dict("records")]
    rows = [{**row, "shop": [row["shop"], "new", None][i % 3]} for i, row in enumerate(rows)]
    to, form = tmp_path / "out", ONNX if kind == "mean" else ExportFormat(kind)
    assert export_model(predictor, rows, to, form, {}).largest < CLOSE
    said = [[*open_export_reader(to).probabilities(row).values()] for row in rows]
    np.testing.assert_allclose(said, scores_of(predictor, rows), atol=CLOSE)
