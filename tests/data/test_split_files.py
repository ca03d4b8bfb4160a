"""`evaluate to=DIR`: the parts as files, which write over nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from automl.config import DataConfig, DataKind
from automl.data.load import load_dataset, write_parts
from automl.errors import ConfigError
from tests.data.conftest import WriteTable


@pytest.fixture
def config(table: WriteTable) -> DataConfig:
    rows = [f"{i},t{i % 3},{'u' if i % 2 else 'v'}" for i in range(100)]
    return table("n,c,y", *rows, ",t1,u", "5,t2,")


def test_all_rows_with_a_target_are_in_one_of_the_files(config: DataConfig, tmp_path: Path) -> None:
    part = replace(config, sweep_rows=0.5)
    write_parts(part, tmp_path / "parts")
    data = load_dataset(part)
    parts = {path.stem: pd.read_csv(path) for path in (tmp_path / "parts").iterdir()}
    assert {name: len(frame) for name, frame in parts.items()} == {
        "train": len(data.train),
        "validation": len(data.validation),
        "test": 20,
        "left": 31,
    }
    read = pd.read_csv(str(config.path)).dropna(subset="y")
    together = pd.concat(parts.values())
    columns = list(read.columns)
    pd.testing.assert_frame_equal(
        together.sort_values(columns).reset_index(drop=True),
        read.sort_values(columns).reset_index(drop=True),
    )
    assert [data.classes[y] for y in data.validation.y] == parts["validation"]["y"].tolist()


def test_whole_numbers_stay_whole_beside_gaps(config: DataConfig, tmp_path: Path) -> None:
    """A part that an earlier version wrote, with `64.0`, is left as it is."""
    folds = replace(config, test=0.0, folds=5)
    write_parts(folds, tmp_path / "parts")
    data = load_dataset(folds)
    (path,) = (tmp_path / "parts").iterdir()
    lines = path.read_text().splitlines()
    assert len(lines) == len(data.train) + 1
    assert {line.partition(",")[0] for line in lines[1:]} == {"", *map(str, range(100))}
    path.write_text(
        "\n".join([lines[0], *(re.sub(r"^\d+", r"\g<0>.0", li) for li in lines[1:]), ""])
    )
    before = path.read_bytes()
    write_parts(folds, path.parent)
    assert path.read_bytes() == before


def test_the_same_files_may_be_written_again(config: DataConfig, tmp_path: Path) -> None:
    write_parts(config, tmp_path / "parts")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "parts").iterdir()}
    write_parts(config, tmp_path / "parts")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "parts").iterdir()} == before


def test_nothing_is_written_over(config: DataConfig, tmp_path: Path) -> None:
    mine = tmp_path / "parts" / "validation.csv"
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ConfigError, match=r"^to=.*: validation.csv is there and holds"):
        write_parts(config, mine.parent)
    assert mine.read_text() == "mine"
    assert [path.name for path in mine.parent.iterdir()] == ["validation.csv"]


def test_a_folder_that_cannot_be_is_refused(config: DataConfig) -> None:
    with pytest.raises(ConfigError, match=r"^to=.*: cannot be written"):
        write_parts(config, Path(f"{config.path}/parts"))


def test_generated_points_are_no_table() -> None:
    with pytest.raises(ConfigError, match=r"^to=d: data=disc is no table"):
        write_parts(DataConfig(), Path("d"))
    with pytest.raises(ConfigError, match=r"data.sweep_rows=5: data=disc makes as many"):
        load_dataset(DataConfig(sweep_rows=5))


def test_the_digits_have_files_too(tmp_path: Path) -> None:
    write_parts(DataConfig(kind=DataKind.digits), tmp_path)
    assert len(pd.read_csv(tmp_path / "test.csv")["digit"]) == 359
