"""What data.task=auto takes for classes and what for values, and what the labels become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from automl.config import Task
from automl.data.load import load_dataset
from automl.errors import ConfigError
from tests.data.conftest import WriteTable
from tests.features import load_test, x_of


def rows(*targets: object) -> list[str]:
    return [f"{i},{target}" for i, target in enumerate(targets)]


@pytest.mark.parametrize(
    ("targets", "task", "classes"),
    [
        (["b", " a", "b "], Task.classification, ("a", "b")),
        ([1, 2, 10], Task.classification, (1, 2, 10)),
        (["1.0", "2.0", "NA", "1"], Task.classification, (1, 2)),
        (range(20), Task.classification, tuple(range(20))),
        (range(21), Task.regression, ()),
        ([0.5, 1, 2], Task.regression, ()),
        (["True", "False"], Task.classification, (False, True)),
        (["1", "2", "low"], Task.classification, ("1", "2", "low")),
        (["None", "Apnea", "null"], Task.classification, ("Apnea", "None", "null")),
        (["1", "2", "NaN", "null"], Task.classification, (1, 2)),
        ([0.5, "inf", "nan", 1e300, 2], Task.regression, ()),
        ([2**60, 2**60 + 1], Task.classification, (2**60, 2**60 + 1)),
    ],
)
def test_auto(table: WriteTable, targets: Any, task: Task, classes: tuple[object, ...]) -> None:
    data = load_dataset(table("a,y", *rows(*targets), n_times=10))
    assert (data.task, data.classes) == (task, classes)
    assert [type(label) for label in data.classes] == [type(label) for label in classes]
    assert any("taken as" in note for note in data.notes)


def test_integers_as_classes_come_with_the_setting_that_makes_them_amounts(
    table: WriteTable,
) -> None:
    config = table("a,y", *rows(*range(3, 10)), n_times=10)
    (note,) = (note for note in load_dataset(config).notes if "taken as" in note)
    assert note == (
        "y: integers, taken as 7 classes (3, 4, 5, 6, 7, 8, 9); "
        "data.task=regression predicts amounts instead."
    )


def test_the_task_can_be_chosen(table: WriteTable) -> None:
    integers = rows(1, 2, 3)
    data = load_dataset(table("a,y", *integers, n_times=10, task=Task.regression))
    assert data.task is Task.regression
    assert set(data.train.y.tolist()) == {1.0, 2.0, 3.0}
    data = load_dataset(table("a,y", *rows(0.5, 1, 2), n_times=10, task=Task.classification))
    assert data.classes == (0.5, 1, 2)


def test_class_numbers_follow_the_classes(table: WriteTable) -> None:
    # The column is its target: so the numbers can be checked from the features.
    data = load_dataset(table("a,y", "7,z", "8,m", "9,b", n_times=20))
    assert data.classes == ("b", "m", "z")
    order = np.argsort(x_of(data, data.train)[:, 0], kind="stable")
    assert data.train.y.dtype == np.int64
    assert (np.diff(data.train.y[order]) <= 0).all()


def test_regression_keeps_the_unit_and_gives_its_scale(table: WriteTable) -> None:
    targets = [1000.25, 3000.5, -500.0]
    config = table("a,y", *rows(*targets), n_times=30)
    data, test = load_dataset(config), load_test(config)
    for part in (data.train, data.validation, test):
        assert part.y.dtype == np.float64
        assert set(part.y.tolist()) == set(targets)
    y = data.train.y.astype(np.float64)
    assert data.target_mean == pytest.approx(y.mean())
    assert data.target_scale == pytest.approx(y.std())


def test_values_that_no_float32_holds_are_missing(table: WriteTable) -> None:
    data = load_dataset(table("a,y", *rows(0.5, "inf", 1e300, 2.5), n_times=10))
    dropped = "dropped 20 rows without a value of y, 20 of them infinite or too large (rows 2, 3,"
    assert any(note.startswith(dropped) for note in data.notes)
    assert np.isfinite(data.train.y).all()


def amounts(n: int = 25) -> list[str]:
    return [f'{i},"{i},{i:03}.50 €"' for i in range(1, n + 1)]


def test_texts_that_say_many_amounts_are_values(table: WriteTable) -> None:
    config = table("a,y", *amounts(), n_times=4, rules=2)
    data, test = load_dataset(config), load_test(config)
    assert (data.task, data.kinds) == (Task.regression, {"y": "number"})
    said = {1000 * i + i + 0.5 for i in range(1, 26)}
    assert {*data.train.y.tolist(), *data.validation.y.tolist(), *test.y.tolist()} == said
    (note,) = (note for note in data.notes if "taken as" in note)
    assert note == (
        "y: numbers in texts such as '1,001.50 €', taken as regression; "
        "data.task=classification predicts classes instead."
    )


def test_texts_that_say_few_amounts_are_classes_but_where_values_are_asked_for(
    table: WriteTable,
) -> None:
    few = amounts(20)
    data = load_dataset(table("a,y", *few, n_times=4, rules=2))
    assert (len(data.classes), data.kinds) == (20, {})
    data = load_dataset(table("a,y", *few, n_times=4, rules=2, task=Task.regression))
    assert data.task is Task.regression


@pytest.mark.parametrize("settings", [{}, {"rules": 2, "task": Task.classification}])
def test_texts_of_amounts_are_classes_where_somebody_says_so_or_did_before(
    table: WriteTable, settings: dict[str, Any]
) -> None:
    data = load_dataset(table("a,y", *amounts(), n_times=4, **settings))
    assert (data.task, len(data.classes), data.target_reading) == (Task.classification, 25, None)


def test_a_text_among_amounts_is_named_and_words_for_missing_are_left_out(
    table: WriteTable,
) -> None:
    config = table("a,y", *amounts(40), "41,n/a", rules=2, columns={"a": "number"})
    assert "dropped 1 row without a value of y (row 41)." in load_dataset(config).notes
    config = table(
        "a,y", *amounts(40), "41,on request", "42,on request", rules=2, columns={"a": "number"}
    )
    with pytest.raises(ConfigError, match=r"2 of 42 rows hold something else, such as 'on requ"):
        load_dataset(config)


def test_a_later_table_is_read_as_the_training_table_was(table: WriteTable, tmp_path: Path) -> None:
    later = tmp_path / "later.csv"
    later.write_text('a,y\n1,"7,250 kg"\n2,8\n3,n/a\n')  # by itself it would be 7250
    lines = [f'{i},"{i},5 kg"' for i in range(30)]
    test = load_test(table("a,y", *lines, rules=2, columns={"a": "number"}, test=str(later)))
    assert test.y.tolist() == [7.25, 8.0]
