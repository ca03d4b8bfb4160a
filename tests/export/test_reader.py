"""The reader reads a cell as `data.cells` does, and opens no file that is not for it."""

from __future__ import annotations

import hashlib
import json
import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automl.data import cells
from automl.data.columns import CategoryColumn, TableColumns
from automl.data.preprocessing import Preprocessing
from automl.export import reader
from automl.export.reader import Model

texts = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        [*sorted(cells.MISSING_TEXTS), " ? ", "true", "FALSE", "1e5", "-0.0", "0x1", "1_0"]
    ),
    st.floats().map(str),
    st.integers().map(str),
)
values = st.one_of(texts, st.floats(), st.integers(-(2**62), 2**62), st.booleans(), st.none())


@pytest.fixture(scope="module")
def model() -> Model:
    """One that reads cells, and has no file."""
    model = Model.__new__(Model)
    model._missing = frozenset(cells.MISSING_TEXTS)
    model._verbatim = {"plz"}
    model._truths = {"flag"}
    return model


@given(values)
@example("+nan")
@example(float(2**53))
@example(True)
def test_a_text_is_spelt_as_in_training(model: Model, value: Any) -> None:
    codes, spelt = cells.column_spellings(pd.Series([value], dtype=object))
    assert model._text(value) == spelt[codes[0]]


@given(st.one_of(texts, st.just(math.nan), st.none()))
@example(" 007")
@example("true")
def test_a_code_is_spelt_as_in_training(model: Model, value: Any) -> None:
    codes, spelt = cells.column_spellings(pd.Series([value], dtype=object), verbatim=True)
    assert model._category(value, "plz") == spelt[codes[0]]
    assert model._category(value, "city") == model._text(value)


def test_a_code_that_is_given_as_a_number_is_refused(model: Model) -> None:
    with pytest.raises(ValueError, match="plz=7: a text as in the table is needed"):
        model._category(7, "plz")
    assert model._category(7, "city") == "7"


truths = CategoryColumn("flag", ("", "False", "True"), has_other=False)
flags = Preprocessing(TableColumns((truths,)))


@given(st.one_of(values, st.sampled_from([1, 0, 1.0, "0.0", " 1", "true", 10**400])))
def test_a_truth_value_is_read_as_in_training(model: Model, value: Any) -> None:
    rows, _ = flags.read_cells(pd.DataFrame({"flag": pd.Series([value], dtype=object)}))
    text = model._category(reader.plain_cell(value), "flag")
    known = {"": 0, "False": 1, "True": 2}
    assert known.get(text, 3) == rows.codes[0, 0]


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_that_no_float_holds_is_too_large(model: Model, digits: int) -> None:
    value = -(10**digits)
    assert abs(model._number(reader.plain_cell(value), "age")) == math.inf
    assert model._text(reader.plain_cell(value)) == str(Decimal(value))


@given(values)
@example("NAN")
def test_a_number_is_read_as_in_training_or_refused(model: Model, value: Any) -> None:
    column = pd.Series([value], dtype=object)
    (number,) = cells.column_to_numbers(column)
    says_something = cells.distinct_cells(column)[0][0] >= 0
    if says_something and cells.cell_to_number(value) is None:
        with pytest.raises(ValueError, match="age="):
            model._number(value, "age")
        return
    read = model._number(value, "age")
    held = read if abs(read) <= 3.4028234663852886e38 else math.nan  # the graph's part
    assert held == number or (math.isnan(held) and math.isnan(number))


@pytest.mark.parametrize(
    "time",
    [
        datetime(2026, 11, 22, 15, 30),  # as a naive column is read: UTC
        datetime(2026, 11, 22, 15, 30, tzinfo=UTC),
        pd.Timestamp("2026-11-22 15:30", tz="Europe/Vienna"),
        timedelta(days=2, seconds=3),
    ],
)
def test_a_time_is_seconds(model: Model, time: Any) -> None:
    assert model._number(time, "seen") == cells.column_to_numbers(pd.Series([time]))[0]


def schema(folder: Path, **changed: Any) -> Path:
    """A folder as `export` writes it, but for its model."""
    folder.joinpath("model.bin").write_bytes(b"model")
    here = reader.machine_properties(("system", "machine", "cpu_features", "torch"))
    said = {
        "format": "onnx",
        "file": "model.bin",
        "digest": hashlib.sha256(b"model").hexdigest(),
        "machine": here,
        "bound_to": list(here),
        **changed,
    }
    folder.joinpath("schema.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("system", "Plan 9", "its system Plan 9 is not here"),
        ("machine", "s390x", "its machine s390x is not here"),
        ("torch", "1.13", r"its torch 1\.13 is not here"),
        ("cpu_features", ["avx9000", "fma9"], "its cpu_features avx9000, fma9 is not here"),
    ],
)
def test_a_file_that_was_compiled_for_another_machine_is_refused(
    tmp_path: Path, key: str, value: Any, said: str
) -> None:
    folder = schema(tmp_path)
    written = json.loads((folder / "schema.json").read_text())
    written["machine"][key] = value
    with pytest.raises(ValueError, match=said):
        Model(schema(tmp_path, machine=written["machine"]))


def test_a_machine_that_has_more_is_not_refused(tmp_path: Path) -> None:
    """The features it was compiled with are enough."""
    here = reader.machine_properties(("system", "cpu_features"))
    assert len(here["cpu_features"]) > 1
    fewer = {**here, "cpu_features": here["cpu_features"][1:]}
    reader.refuse_other_machine({"machine": fewer, "bound_to": ["system", "cpu_features"]})


def test_a_file_that_runs_anywhere_is_not_bound(tmp_path: Path) -> None:
    reader.refuse_other_machine({"machine": {"system": "Plan 9"}, "bound_to": []})


def test_a_file_that_is_not_the_one_described_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"model\.bin is not the file that schema\.json describes"):
        Model(schema(tmp_path, digest="0" * 64))
