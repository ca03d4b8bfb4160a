"""What is said of tables on which a trial takes minutes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.cli.arguments import parse_command_line
from automl.cli.command_steps import compose_command
from automl.config import Config, DataConfig, DataKind, TrainingConfig
from automl.data.columns import TableColumns
from automl.data.dataset import Dataset, DatasetPart, TableRows
from automl.data.folds import folds_at_random
from automl.data.load import load_dataset
from automl.models.families.auto.family import AutoFamily
from automl.models.families.boosting.family import BoostingFamily
from automl.models.families.linear.family import LinearFamily
from automl.models.families.mlp.family import MLPFamily
from automl.running.prepare.long_training import long_trial_warnings, seconds_by_family
from automl.running.prepare.preparation import prepare_study

BATCHES: dict[str, Any] = {"batch_size": (32, 256)}
TABLE = DataConfig(DataKind.csv, path="t.csv", target="y")


def table(n_rows: int, n_columns: int, n_folds: int = 1) -> Dataset:
    """Return a table with this many training rows, whose cells do not matter."""
    disc = load_dataset(DataConfig(n_train=10, n_validation=10))
    cells = np.broadcast_to(0.0, (n_rows, n_columns))
    y = np.arange(n_rows, dtype=np.int64) % 2
    part = DatasetPart(TableRows(cells, np.zeros((n_rows, 0), np.int32)), y)
    columns = TableColumns(disc.columns.numbers[:1] * n_columns)
    found = replace(disc, train=part, columns=columns)
    if n_folds == 1:
        return found
    folds = tuple(folds_at_random(y, n_folds, seed=0))
    return replace(found, folds=folds, validation=part.take(y[:0]))


@pytest.mark.parametrize(
    ("model", "dataset", "said"),
    [
        (MLPFamily(), table(600_000, 11), ["600,000 rows of 11", "mlp", "sweep_rows=50000"]),
        (BoostingFamily(), table(300, 10_000, 15), ["15 models", "boosting", "data.folds=1"]),
        (AutoFamily(), table(300, 10_000, 15), ["boosting", "model.families=["]),
    ],
)
def test_it_is_said_with_what_is_quicker(model: Any, dataset: Dataset, said: list[str]) -> None:
    ends = {f"mlp_{n}": of for n, of in BATCHES.items()} | BATCHES
    (line,) = long_trial_warnings(Config(model=model, data=TABLE), dataset, ends)
    assert "takes minutes of a core" in line
    for words in said:
        assert words in line


def test_of_families_that_are_left_out_nothing_is_said() -> None:
    """The space leaves some families out."""
    dataset = table(300, 10_000, 15)
    ends: dict[str, Any] = {"family": ("linear", "trees")}
    (line,) = long_trial_warnings(Config(model=AutoFamily(), data=TABLE), dataset, ends)
    assert "boosting" not in line
    assert "trees" in line


@pytest.mark.parametrize(
    ("model", "dataset"),
    [
        (MLPFamily(), table(5_000, 11, 5)),
        (MLPFamily(), table(20_000, 14)),
        (AutoFamily(), table(20_000, 14)),
        (AutoFamily(), table(900, 60, 15)),
        (LinearFamily(), table(300, 10_000, 15)),
    ],
)
def test_of_others_nothing_is_said(model: Any, dataset: Dataset) -> None:
    ends = {f"mlp_{n}": of for n, of in BATCHES.items()} | BATCHES
    assert long_trial_warnings(Config(model=model, data=TABLE), dataset, ends) == ()


def test_a_part_of_the_rows_is_not_told_to_take_another() -> None:
    data = replace(TABLE, sweep_rows=200_000)
    (line,) = long_trial_warnings(
        Config(model=MLPFamily(), data=data), table(300_000, 300), BATCHES
    )
    assert "sweep_rows" not in line
    assert "model=linear" in line


def test_of_many_columns_a_network_takes_as_long_as_its_patience() -> None:
    """A trial on 500 rows of 10,000 columns was predicted to take 6 s, and none had ended after 114
    s."""
    ends: dict[str, Any] = {"depth": (1, 4), "width": (64, 512), "batch_size": (32, 256)}
    config = Config(model=MLPFamily(), data=TABLE, training=TrainingConfig(epochs=None))
    wide, small = table(500, 10_000, 15), table(900, 60, 15)
    assert seconds_by_family(config, wide, ends)["mlp"] == pytest.approx(200, rel=0.5)
    (line,) = long_trial_warnings(config, wide, ends)
    assert "model=linear" in line
    assert long_trial_warnings(config, small, ends) == ()


def test_families_that_take_long_are_not_called_quicker() -> None:
    ends: dict[str, Any] = {f"mlp_{n}": of for n, of in BATCHES.items()}
    ends |= {"mlp_depth": (1, 4), "mlp_width": (64, 512)}
    training = TrainingConfig(epochs=None)
    config = Config(model=AutoFamily(), data=TABLE, training=training)
    (line,) = long_trial_warnings(config, table(500, 10_000, 15), ends)
    assert "model.families=[linear];" in line


def test_a_sweep_with_little_time_for_a_large_table_tries_what_is_quick(tmp_path: Path) -> None:
    """What is left out is said, and comes back with more time, or by its name."""
    path = tmp_path / "large.csv"
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30_000, 20)).round(2), columns=[*"abcdefghijklmnopqrst"])
    frame.assign(y=frame.a * frame.b > 0).to_csv(path, index=False)

    def families(*words: str) -> tuple[set[str], str]:
        prepared = prepare_study(
            compose_command(parse_command_line([f"table={path}", "target=y", *words])).config
        )
        notes = "\n".join(prepared.notes)
        return {str(params["family"]) for params in prepared.portfolio}, notes

    quick, notes = families("timeout=10")
    assert {"linear", "boosting"} <= quick
    assert not {"trees", "mlp"} & quick
    assert "not tried in study.timeout_seconds=10: trees (some" in notes
    (remedy,) = re.findall(r"so does one with (\S+\])", notes)
    for words in ((), ("timeout=1h",), ("timeout=10", remedy)):
        found, notes = families(*words)
        assert {"linear", "trees", "mlp"} <= found
        assert "not tried" not in notes
