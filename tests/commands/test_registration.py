"""What `register` decides: which alias, which export is still good, by which metric."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path

import pytest

from automl.commands.models.champion import (
    ChampionComparison,
    ModelAlias,
    UnseenRows,
    choose_alias,
    judged_metric,
    shown_score,
    version_description,
)
from automl.commands.models.served_package import find_package
from automl.config import Task
from automl.config.command_arguments import RegisterArguments
from automl.errors import ConfigError
from automl.tracking.registry.model_versions import (
    CHALLENGER,
    CHAMPION,
    DATA_TAG,
    RegisteredVersion,
    rows_key,
)
from automl.trial import ModelsEvaluated, RowsKind, ScoreDifference, ScoreInterval

ROWS = UnseenRows("f" * 64, RowsKind.KEPT, "data", "80 rows no sweep saw")
GIVEN = replace(ROWS, kind=RowsKind.GIVEN)
KNOWN = {rows_key(ROWS.digest): "80 rows"}


def never() -> ChampionComparison:
    raise AssertionError("there is nothing to compare")


def decided(
    unseen: UnseenRows | None, tags: dict[str, str] | None, verdict: str = ""
) -> ModelAlias:
    champion = None if tags is None else RegisteredVersion(3, tags)
    compare = (
        (lambda: ChampionComparison("error", ScoreDifference(0.1, -0.2, 0.3, verdict)))
        if verdict
        else never
    )
    return choose_alias(unseen, champion, compare)


@pytest.mark.parametrize(
    ("verdict", "alias"),
    [("better", CHAMPION), ("may be chance", CHAMPION), ("worse", CHALLENGER)],
)
def test_the_alias_moves_unless_the_new_one_is_worse(verdict: str, alias: str) -> None:
    stands = decided(ROWS, KNOWN, verdict)
    assert stands.alias == alias
    assert "error +0.1 (-0.2 to +0.3) from that of version 3 on 80 rows no sweep saw" in stands.why
    assert stands.why.endswith(verdict)


@pytest.mark.parametrize("unseen", [ROWS, None])
def test_the_first_version_is_the_champion(unseen: UnseenRows | None) -> None:
    stands = decided(unseen, None)
    assert stands.alias == CHAMPION
    assert "there is no champion yet to compare it with" in stands.why


@pytest.mark.parametrize("tags", [None, KNOWN])
def test_without_rows_the_missing_key_is_named(tags: dict[str, str] | None) -> None:
    assert "data.test=FILE" in decided(None, tags).why


def test_a_later_version_without_rows_is_a_challenger() -> None:
    assert decided(None, KNOWN).alias == CHALLENGER


@pytest.mark.parametrize(
    ("unseen", "tags"),
    [
        (ROWS, {}),
        (ROWS, {rows_key("e" * 64): "others"}),
        (ROWS, {DATA_TAG: "data"}),  # kept from the same table, yet nobody told of the champion
        (GIVEN, {DATA_TAG: "other"}),
        (replace(GIVEN, data=""), {}),
        (replace(GIVEN, data=""), {DATA_TAG: ""}),
    ],
)
def test_rows_that_the_champion_may_know_move_nothing(
    unseen: UnseenRows, tags: dict[str, str]
) -> None:
    stands = decided(unseen, tags)
    assert stands.alias == CHALLENGER
    assert "nobody knows whether version 3, the champion, has seen its rows" in stands.why
    assert "data.test=FILE" in stands.why


def test_rows_that_came_later_are_new_to_all_of_one_data_set() -> None:
    assert decided(GIVEN, {DATA_TAG: "data"}, "better").alias == CHAMPION


def test_what_cannot_be_compared_is_a_challenger() -> None:
    stands = choose_alias(ROWS, RegisteredVersion(3, KNOWN), lambda: "it is of another kind")
    assert stands.alias == CHALLENGER
    assert stands.why.endswith("cannot be compared with it: it is of another kind")


# --- the export -----------------------------------------------------------------------------------


@pytest.fixture
def export(tmp_path: Path) -> Path:
    """Of the model `best.pt`, beside it."""
    (tmp_path / "best.pt").write_bytes(b"weights")
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "model.onnx").write_bytes(b"graph")
    (folder / "reader.py").write_bytes(b"")
    schema = {
        "format": "onnx",
        "file": "model.onnx",
        "digest": hashlib.sha256(b"graph").hexdigest(),
        "model_file": {"sha256": hashlib.sha256(b"weights").hexdigest()},
        "versions": {"automl": metadata.version("automl-sweep")},
    }
    (folder / "schema.json").write_text(json.dumps(schema))
    return folder


def changed(export: Path, **values: object) -> None:
    path = export / "schema.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_an_export_of_the_model_is_taken(export: Path) -> None:
    package = find_package(export, export.parent / "best.pt")
    assert package is not None
    assert package.digest == hashlib.sha256(b"graph").hexdigest()


def test_an_export_that_is_not_as_it_was_made_is_made_anew(export: Path) -> None:
    best = export.parent / "best.pt"
    (export / "model.onnx").write_bytes(b"grapX")
    assert find_package(export, best) is None
    (export / "model.onnx").write_bytes(b"graph")
    assert find_package(export, best) is not None
    best.write_bytes(b"others")
    assert find_package(export, best) is None
    best.write_bytes(b"weights")
    changed(export, versions={"automl": "0.0.0"})
    assert find_package(export, best) is None
    changed(export, versions={"automl": metadata.version("automl-sweep")}, format="torch")
    assert find_package(export, best) is None
    changed(export, format="onnx")
    (export / "reader.py").unlink()
    assert find_package(export, best) is None
    (export / "schema.json").write_text("{")
    assert find_package(export, best) is None


# --- words ----------------------------------------------------------------------------------------


def test_models_are_judged_as_the_study_was() -> None:
    known = {"loss", "auc"}
    assert judged_metric("val_auc", known) == "auc"
    assert judged_metric("val_loss", known) == "loss"
    assert judged_metric("val_pinball", known) == "loss"
    assert shown_score(ScoreInterval(0.15701, 0.0854, 0.2440)) == "0.157 (0.0854 to 0.244)"


@pytest.mark.parametrize("name", ["", " ", "a/b", "a:b", "it's", "a\nb", "x" * 201])
def test_a_name_that_mlflow_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"^as="):
        RegisterArguments(as_=name)


def test_a_version_is_described_by_the_studys_own_metric() -> None:
    scores = {"loss": ScoreInterval(0.5, 0.4, 0.6), "auc": ScoreInterval(0.9, 0.85, 0.95)}
    event = ModelsEvaluated(1.0, RowsKind.KEPT, 80, "f", (3,), {"trial-00003": scores})
    said = partial(
        version_description,
        "trial-00003",
        study="s",
        metric="val_auc",
        task=Task.classification,
        target="y",
        own={"val_auc": 0.91},
        digest="ab",
    )
    known = said(unseen=replace(ROWS, event=event))
    assert known.startswith("auc 0.9 (0.85 to 0.95) on 80 rows no sweep saw.\n")
    assert "`trial-00003` of the study `s`: classification of `y`." in known
    assert "| loss | 0.5 | 0.4 to 0.6 |" in known
    assert known.endswith("`ab`")
    unknown = said(unseen=None)
    assert unknown.startswith("No rows are known that it has not seen. Its training reported val_a")
