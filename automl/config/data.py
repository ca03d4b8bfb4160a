"""Settings of the data: the table to learn from, the kinds of its columns, and its split."""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automl.config.checks import check_setting, checker, is_count, is_function_target, is_none
from automl.config.setting import setting


class DataKind(enum.Enum):
    disc = "disc"
    digits = "digits"
    csv = "csv"
    python = "python"


class Task(enum.Enum):
    auto = "auto"
    classification = "classification"
    regression = "regression"


class ColumnKind(enum.Enum):
    number = "number"
    category = "category"
    date = "date"
    text = "text"
    drop = "drop"


class DataRule(enum.IntEnum):
    """The rules by which tables are read, in the order in which versions added them.

    A study keeps the rules that it was begun with. Its `data.rules` is the number of the last one.
    """

    detect = 1
    """Dates, texts, numbers in texts and identifiers are detected; before, columns were numbers or
    categories."""
    detect_target = 2
    """A target of texts that say amounts (`1,234.50 €`), more than classes would be, is a
    regression's; before, its texts were classes."""
    detect_verbatim = 3
    """Columns of codes (`007`, `+4930123456`) are texts as they are written; before, they were
    numbers where they look so."""
    folds_by_cost = 4
    """data.folds=auto makes fewer models of wide tables, whose models take long; before, the rows
    alone decided."""
    combine = 5
    """data.combine=auto combines pairs of columns; before, none."""
    combine_three = 6
    """data.combine=auto tries products of three columns, too."""
    learn_time = 7
    """The column of data.time is learned from as any other; before, it ordered the rows alone."""
    combine_target = 8
    """data.combine=auto tries the mean target of each category of columns with many, too."""
    combine_judgement = 9
    """data.combine=auto judges columns by the first folds if these leave no doubt, before always by
    all five, and mean targets by up to 40,000 rows, before 10,000."""
    judged_rows = 10
    """A hold-out whose share is not said has at most MAX_HELD_OUT rows; before, a tenth of all."""


def stored_rules(data: Mapping[str, Any]) -> int:
    """Return the number of rules of stored settings of an earlier version, which has each rule as
    a setting of its own.

    Raises ConfigError where a rule was switched off and a later one was not.
    """
    followed = {rule for rule in DataRule if data.get(rule.name)}
    followed |= {DataRule.combine} if "combine" in data else set()  # a setting that may be off
    n_rules = next((rule - 1 for rule in DataRule if rule not in followed), len(DataRule))
    later = sorted(followed - {DataRule.combine, *list(DataRule)[:n_rules]})
    if later:
        missing = list(DataRule)[n_rules].name
        rule = f"{later[0].name} is a later rule. Begin such a study anew, by today's rules."
        check_setting(False, f"data.{missing}", False, rule)
    return n_rules


VALIDATION_FRACTION, FRACTION_OF_MANY, TEST_FRACTION = 0.2, 0.1, 0.2
MAX_HELD_OUT = 50_000
"""Rows that choose among trials, at most: predicting them takes part of the time of each trial."""


def test_setting(value: object) -> object:
    """Return a value of `data.test`, or its text, in one form: a share, auto, none or a file."""
    text = str(value)
    if value is None or text == "none":
        return "none"
    try:
        return float(text) or "none"
    except ValueError:
        return text


def is_test_file(text: str) -> bool:
    """Return whether a text of `data.test` names a file."""
    return isinstance(test_setting(text), str) and text not in ("auto", "none")


@dataclass
class DataConfig:
    """The table to learn from, and the way in which it is split."""

    kind: DataKind = setting("nobody", DataKind.disc)
    path: str | None = setting("all", None)
    """The table, a CSV or Parquet file (kind csv)."""
    target: str | None = setting("all", None)
    """Name of the column to predict (kind csv)."""
    source: str | None = setting("some", None)
    """`module:function` that returns the parts (kind python), called without arguments: {"train":
    (x, y), "validation": (x, y)}, and "test" if there is one; tensors, arrays, frames, or torch
    Datasets of (x, y) pairs. It is called in every process that trains."""
    task: Task = setting("some", Task.auto)
    """auto: text and integers of at most 20 values are classes, all else is regression."""
    columns: dict[str, Any] = setting("some", factory=dict)
    """The kind of a column, `data.columns.NAME=number|category|date|text|drop`; the kinds of others
    are detected."""
    combine: Any = setting("some", "auto")
    """Columns that are combined to more: a list, as `["price / area", "town & month"]`, where
    `"TARGET by town"` is the mean target of each category;
    auto: those that improve predictions of rows left out, by more than chance; none: no column."""
    test: Any = setting("some", "auto")
    """The rows that no sweep ever sees: a separate table, FILE; a share of the rows of `path`, such
    as 0.2; or none. auto: none with model=auto on a table (data=csv), else 0.2."""
    validation_fraction: float | None = setting("few", None)
    """Share of the rows that choose among trials. auto: 0.1 where data.folds=auto makes no folds,
    there being more than 20,000 rows, but at most 50,000 rows, else 0.2."""
    split_seed: int = setting("few", 0)
    """Seed of the split into parts and folds."""
    folds: Any = setting("some", None)
    """Number of models that a trial trains, each judged by rows that it never saw, so that all rows
    but the test part train and judge; 1: one, judged by the validation part; auto: 5, from three
    divisions of the rows below 1,000, and 1 above 20,000. Where it is not given: auto with
    model=auto on a table (data=csv), except with data.sweep_rows, else 1."""
    group: str | None = setting("some", None)
    """Column that says which rows belong together (a patient, a shop): all rows of a group are in
    one part, or fold. It is not learned from."""
    time: str | None = setting("some", None)
    """Column by which rows are in order (numbers, or times as 2024-05-31 14:00): each part, or
    fold, is judged by later rows than it trains on."""
    sweep_rows: float | None = setting("some", None)
    """Trials train on so many of the training rows, or on this share of them; none: on all."""
    n_train: int = setting("option", 1000)
    """Number of training points (kind disc)."""
    n_validation: int = setting("option", 500)
    """Number of validation points (kind disc)."""

    rules: int | None = setting("nobody", None)
    """Set by a sweep itself: the number of the rules of `DataRule` by which the table is read."""

    def __post_init__(self) -> None:
        check = checker("data", self)
        n_rules = len(DataRule)
        is_known = self.rules is None or 0 <= self.rules <= n_rules
        check(
            "rules", is_known, f"this version knows the rules from 0 to {n_rules}: use a newer one."
        )
        self.test = test_setting(self.test)
        # `decide` checks again what auto becomes.
        held_out = self.held_out(has_folds=False)
        test_fraction = 0.0 if self.test == "auto" else self.test_fraction
        check("validation_fraction", 0 < held_out < 1, "must be between 0 and 1.")
        rule = "must be auto, none, a share of the rows (above 0, below 1), or a FILE."
        check("test", 0 <= test_fraction < 1 and self.test != "", rule)
        self._check_folds()
        check_setting(
            held_out + test_fraction < 1,
            "data.validation_fraction + data.test",
            held_out + test_fraction,
            "must leave rows for training: make one of them smaller.",
        )
        self.combine = "none" if is_none(self.combine) else self.combine
        rule = 'must be auto, none, or a list of pairs such as ["price / area", "town & month"].'
        named = self.combine in ("auto", "none")
        is_list = isinstance(self.combine, Sequence) and all(
            isinstance(pair, str) for pair in self.combine
        )
        check("combine", named or (is_list and not isinstance(self.combine, str)), rule)
        check("split_seed", 0 <= self.split_seed < 2**32, "must be from 0 to 4294967295.")
        if self.sweep_rows is not None:
            is_number = self.sweep_rows >= 2 and self.sweep_rows % 1 == 0
            rule = "must be a number of rows (2 or more) or a share of them (above 0, below 1)."
            check("sweep_rows", is_number or 0 < self.sweep_rows < 1, rule)
        check("n_train", self.n_train >= 1, "must be at least 1.")
        check("n_validation", self.n_validation >= 1, "must be at least 1.")
        self._check_kind()

    def _check_kind(self) -> None:
        """Raise ConfigError for a setting of another kind of data, or one that the kind needs."""
        check = checker("data", self)
        if self.kind is DataKind.python:
            is_target = self.source is not None and is_function_target(self.source)
            rule = "data=python needs data.source=module:function, or file.py:function."
            check("source", is_target, rule)
        else:
            check("source", self.source is None, "is for data=python: add it.")
        kinds = [kind.value for kind in ColumnKind]
        rule = f"must be one of {', '.join(kinds)}."
        for name, kind in self.columns.items():
            check_setting(kind in kinds, f"data.columns.{name}", kind, rule)
        if self.kind is DataKind.csv:
            check("path", self.path is not None, "data=csv needs table=FILE.")
            check("target", self.target is not None, "data=csv needs target=COLUMN.")
        else:
            names = ", ".join(self.columns)
            rule = "is for a table of yours: add data=csv, or leave it out."
            check_setting(not names, "data.columns", names, rule)

    def follows(self, rule: DataRule) -> bool:
        """Return whether the table is read by a rule, which older studies are not."""
        return self.rules is not None and self.rules >= rule.value

    @property
    def test_path(self) -> str | None:
        """Return the separate test table; None: there is none."""
        return self.test if isinstance(self.test, str) and is_test_file(self.test) else None

    @property
    def test_fraction(self) -> float:
        """Return the share of the rows of `path` that no sweep ever sees."""
        share = TEST_FRACTION if self.test == "auto" else self.test
        return share if isinstance(share, float) else 0.0

    def held_out(self, *, has_folds: bool, few_rows: bool = False) -> float:
        """Return the share of the rows that choose among trials, with or without folds."""
        if self.validation_fraction is not None:
            return self.validation_fraction
        many_rows = self.folds == "auto" and not has_folds and not few_rows
        return FRACTION_OF_MANY if many_rows else VALIDATION_FRACTION

    @property
    def max_held_out(self) -> int:
        """Return the largest number of rows that choose among trials without folds."""
        is_open = self.validation_fraction is None and self.folds == "auto"
        return MAX_HELD_OUT if is_open and self.follows(DataRule.judged_rows) else sys.maxsize

    def _check_folds(self) -> None:
        check = checker("data", self)
        rule = "must be auto, or the number of models that a trial trains (a whole number from 1)."
        check("folds", self.folds in (None, "auto") or is_count(self.folds), rule)
        is_whole = self.folds in (None, 1) or self.sweep_rows is None
        rule = "trials with folds (data.folds) train on all rows but the test part: leave it out."
        check("sweep_rows", is_whole, rule)
        rule = "with data.group rows are either kept together or in order: leave one of them out."
        check("time", self.group is None or self.time is None, rule)
        if self.kind is DataKind.python:
            rule = "is for tables; the parts of data=python are your function's: leave it out."
            check("folds", self.folds in (None, 1), rule)
            check("group", self.group is None, rule)
            check("time", self.time is None, rule)
