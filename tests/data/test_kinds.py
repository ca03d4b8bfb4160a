"""What columns are taken for, what becomes of them, and what stays as it was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from automl.config import DataConfig, DataKind
from automl.data.column_kinds import read_columns
from automl.data.columns import FORMATS, NumberColumn, TableColumns
from automl.data.load import describe_columns, load_dataset
from automl.data.preprocessing import Preprocessing
from automl.data.scoring.evaluation import open_evaluation
from automl.data.scoring.model_findings import permutation_importances
from automl.errors import ConfigError
from tests.data.conftest import WriteTable
from tests.features import features

N = 400
RNG = np.random.default_rng(0)
DAYS = pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 1500, N), unit="D")
WORDS = [f"word{i}" for i in range(40)]
GOOD = RNG.random(N) < 0.5
FRAME = pd.DataFrame(
    {
        "customer_id": np.arange(N) * 7 % 1009,
        "joined": DAYS.strftime("%d.%m.%Y"),
        "note": [
            f"{' '.join(RNG.choice(WORDS, 6))} {'splendid' if good else 'broken'} n{i}"
            for i, good in enumerate(GOOD)
        ],
        "paid": [f"{value:,.2f} €" for value in RNG.normal(1000, 300, N)],
        "mixed": [str(i / 8) if i % 40 else "unknown" for i in range(N)],
        "city": [f"c{int(RNG.pareto(0.3)) % 300}" for _ in range(N)],
        "when": DAYS + pd.Timedelta(hours=5),
        "level": RNG.integers(0, 3, N),
        "name": [f"person{i}" for i in range(N)],
    }
)


def kinds(frame: pd.DataFrame, **choices: str) -> dict[str, str]:
    return {n: t.kind.value for n, t in read_columns(frame, choices, detect=True).items()}


def learned(frame: pd.DataFrame = FRAME, **choices: str) -> Preprocessing:
    return Preprocessing.fit(frame, read_columns(frame, choices, detect=True))


def numbers(preprocessing: Preprocessing, frame: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
    rows = preprocessing.read(frame)
    names = [column.name for column in preprocessing.columns.numbers]
    return dict(zip(names, rows.numbers.T, strict=True))


def test_columns_are_taken_as_they_look() -> None:
    assert kinds(FRAME) == {
        "customer_id": "drop",
        "joined": "date",
        "note": "text",
        "paid": "number",
        "mixed": "number",
        "city": "category",
        "when": "date",
        "level": "number",
        "name": "category",  # and left out: it does not repeat
    }
    assert learned().columns.sources == tuple(FRAME.columns)[1:8]


def test_without_detection_columns_are_what_they_were() -> None:
    before = Preprocessing.fit(FRAME).columns
    assert before == Preprocessing.fit(FRAME, read_columns(FRAME, {}, detect=False)).columns
    assert before.plain()["format"] == FORMATS[0]
    assert before.readings == ()


def test_a_table_with_nothing_new_is_learned_as_ever() -> None:
    plain = FRAME[["level"]].assign(pet=["cat", "dog"] * (N // 2), x=RNG.normal(size=N))
    assert learned(plain).columns.plain() == Preprocessing.fit(plain).columns.plain()
    assert learned(plain).new_kinds == {}


def test_dates_become_their_parts() -> None:
    found = numbers(learned(), FRAME)
    assert found["joined.year"].tolist() == DAYS.year.tolist()
    assert found["joined.month"].tolist() == DAYS.month.tolist()
    assert found["joined.weekday"].tolist() == DAYS.day_of_week.tolist()
    np.testing.assert_array_equal(found["joined.since"] + 5 * 3600, found["when.since"])
    assert "joined.hour" not in found  # it is always midnight


def test_dates_may_come_as_times_and_miss() -> None:
    one = pd.DataFrame({"joined": [DAYS[0]]})
    rest = FRAME[:1].drop(columns="joined").reset_index(drop=True)
    again = learned().read(pd.concat([rest, one], axis=1)).numbers
    np.testing.assert_array_equal(again, learned().read(FRAME[:1]).numbers)
    none = numbers(learned(), FRAME[:1].assign(joined=None))
    assert all(np.isnan(none[f"joined.{part}"]) for part in ("year", "month", "since"))
    with pytest.raises(ConfigError, match="joined held dates in training and now holds none"):
        learned().read(FRAME.assign(joined=[f"soon {i}" for i in range(N)]))


def test_numbers_in_texts_are_read_and_others_miss() -> None:
    found = numbers(learned(), FRAME)
    np.testing.assert_allclose(
        found["paid.number"], [float(t[:-2].replace(",", "")) for t in FRAME["paid"]]
    )
    assert np.isnan(found["mixed.number"]).sum() == N // 40
    paid = next(c for c in learned().columns.numbers if c.name == "mixed.number")
    assert paid.has_indicator


def test_a_few_numbers_and_a_word_are_categories() -> None:
    frame = pd.DataFrame({"rooms": ["1", "2", "3", "many"] * 50})
    assert kinds(frame) == {"rooms": "category"}


def test_texts_tell_what_they_are_about() -> None:
    found = numbers(learned(), FRAME)
    topics = np.column_stack([found[name] for name in found if name.startswith("note.")])
    classes = np.linalg.lstsq(np.column_stack([topics, np.ones(N)]), GOOD * 2.0 - 1, rcond=None)
    said = np.column_stack([topics, np.ones(N)]) @ classes[0] > 0
    assert (said == GOOD).mean() > 0.9


def test_of_many_categories_their_frequency_is_a_number() -> None:
    counts = FRAME["city"].value_counts()
    found = numbers(learned(), FRAME)["city.frequency"]
    np.testing.assert_allclose(found, np.log1p(FRAME["city"].map(counts)))
    unseen = numbers(learned(), FRAME[:1].assign(city="nowhere"))["city.frequency"]
    assert unseen[0] == np.log1p(1)


def test_what_was_learned_is_the_same_after_a_round_trip() -> None:
    plain = learned().columns.plain()
    assert plain["format"] == "automl-columns-2"
    again = Preprocessing.from_plain(json.loads(json.dumps(plain)))
    assert features(again, FRAME).tobytes() == features(learned(), FRAME).tobytes()
    for i in (0, 7):  # a row alone is what it is among others
        row = features(again, FRAME[i : i + 1])
        np.testing.assert_array_equal(row[0], features(again, FRAME)[i])


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("date", {"format": "%(x)s"}),
        ("date", {"kind": "other"}),
        ("date", {"name": 3}),
        ("number", {"mark": ";"}),
        ("frequency", {"counts": {"a": -1}}),
        ("frequency", {"counts": {str(i): 1 for i in range(1001)}}),
        ("text", {"idf": "AAAA"}),
        ("text", {"idf": 7}),
        ("text", {"components": "!"}),
    ],
)
def test_a_strangers_reading_is_refused(kind: str, change: dict[str, object]) -> None:
    plain = json.loads(json.dumps(learned().columns.plain()))
    reading = next(r for r in plain["readings"] if r["kind"] == kind)
    reading.update(change)
    with pytest.raises((ValueError, TypeError, KeyError)):
        TableColumns.from_plain(plain)


def test_a_number_that_nothing_makes_is_refused() -> None:
    plain = learned().columns.plain()
    plain["columns"][0]["part"] = "century"
    with pytest.raises(ValueError, match="nothing makes the column"):
        TableColumns.from_plain(plain)


# --- what the user says ---------------------------------------------------------------------------


def test_what_is_chosen_goes_before_what_is_found() -> None:
    chosen = {"customer_id": "number", "joined": "category", "paid": "drop", "name": "text"}
    assert kinds(FRAME, level="category")["level"] == "category"
    assert {n: kinds(FRAME, **chosen)[n] for n in list(chosen)[:3]} == dict(
        list(chosen.items())[:3]
    )
    assert "paid" not in learned(FRAME, paid="drop").columns.sources


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ({"joind": "date"}, "no such column to learn from. Did you mean 'joined'"),
        ({"city": "date"}, "data.columns.city=date: the column holds no dates, but for example 'c"),
        ({"city": "number"}, "holds no numbers"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(choices: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("(", r"\(")):
        read_columns(FRAME, choices, detect=True)


def test_settings_of_columns_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"data\.columns\.a=words: must be one of number, cat"):
        DataConfig(kind=DataKind.csv, path="t", target="y", columns={"a": "words"})
    with pytest.raises(ConfigError, match="is for a table of yours"):
        DataConfig(columns={"a": "drop"})


# --- whole tables ---------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    path = tmp_path / "table.csv"
    FRAME.assign(leak=np.where(GOOD, "a", "b"), y=np.where(GOOD, "u", "v")).to_csv(
        path, index=False
    )
    return DataConfig(kind=DataKind.csv, path=str(path), target="y", rules=1)


def test_what_was_taken_for_what_is_said(config: DataConfig) -> None:
    notes = "\n".join(load_dataset(config).notes)
    for said in (
        "left out, being row numbers or identifiers: customer_id (data.columns.customer_id=number",
        "left out, being constant, empty, or texts that do not repeat: name.",
        "taken as dates: joined, when (",
        "taken as texts: note (",
        "taken as numbers in texts: paid, mixed (",
        "gives the target away by itself: is it known beforehand?: leak (data.columns.leak=drop",
    ):
        assert said in notes
    rows, lines = describe_columns(config)
    assert tuple(lines) == load_dataset(config).notes
    by_name = {row.name: row for row in rows}
    assert by_name["name"].kind == "left out"
    assert re.match(
        r"numbers in texts such as '[\d.]+'; others, such as 'unkn", by_name["mixed"].why
    )
    assert by_name["leak"].why.endswith("gives the target away")
    assert by_name["joined"].n_features == 4


def test_what_is_found_is_kept_with_the_study_but_changes_no_digest(config: DataConfig) -> None:
    found, before = (
        load_dataset(config),
        load_dataset(DataConfig(**{**vars(config), "rules": 0})),
    )
    assert found.kinds == {
        "customer_id": "drop",
        "joined": "date",
        "note": "text",
        "paid": "number",
        "mixed": "number",
        "city": "frequency",
        "when": "date",
    }
    assert before.kinds == {}
    assert found.digest == before.digest
    assert len(open_evaluation(config, None).part) == N // 5


def test_parts_of_one_column_are_shuffled_together() -> None:
    preprocessing = learned()
    columns, rows = preprocessing.columns, preprocessing.read(FRAME)
    since = [c.name for c in columns.numbers].index("joined.since")
    year = [c.name for c in columns.numbers].index("joined.year")

    def loss(some: Any) -> float:
        years = 1970 + some.numbers[:, since] / 86400 / 365.2425
        return float(np.abs(years - some.numbers[:, year] - 0.5).max() > 0.6)

    found = permutation_importances(columns, rows, loss, repeats=range(2), seed=0)
    assert sorted(found.index) == sorted(columns.sources)
    assert found["importance"].max() == 0


def test_numbers_told_apart_by_a_class_are_a_giveaway(table: WriteTable) -> None:
    rows = [f"{i / 2},{i * 7 % 10},{'u' if i < 60 else 'v'}" for i in range(120)]
    told = [n for n in load_dataset(table("a,b,y", *rows, rules=1)).notes if "away" in n]
    assert len(told) == 1
    assert ": a (" in told[0]
    amounts = [f"{i * 1.5},{i * 7 % 10},{i / 8}" for i in range(120)]
    told = [n for n in load_dataset(table("a,b,y", *amounts, rules=1)).notes if "away" in n]
    assert len(told) == 1
    few = [f"{i / 2},{i * 7 % 10},{'u' if i < 10 else 'v'}" for i in range(20)]
    assert not [n for n in load_dataset(table("a,b,y", *few)).notes if "away" in n]


def test_a_plain_number_is_no_made_one() -> None:
    assert NumberColumn("a", 0.0, 1.0, 0.0, False).made_of == ""
    assert learned().columns.plain_numbers == ("level",)
