"""Keys of earlier versions: on a line with one line of advice, in stored settings silently."""

from __future__ import annotations

from typing import Any

import pytest

from automl.cli.arguments import parse_command_line
from automl.config.renamed import DROPPED, MOVED, rename_stored, rename_words

LINES = [
    ("tracking.keep_best=5", "study.keep_best=5"),
    ("study.checkpoints=s3://bucket/a", "study.checkpoint_copies=s3://bucket/a"),
    ("study.ensemble=none", "study.finish=[refit,plots]"),
    ("study.ensemble=none study.refit=none study.plots=none", "study.finish=none"),
    ("study.refit=auto", "study.finish=auto"),
    ("data.test_path=later.csv", "data.test=later.csv"),
    ("data.test_fraction=0.3", "data.test=0.3"),
    ("data.test_fraction=0", "data.test=none"),
    ("data.test_path=null", ""),
    ("tracking.store=none", "tracking.uri=none"),
    ("tracking.store=mlflow", "tracking.uri=auto"),
    ("training.loss=quantile training.quantile=0.9", "training.loss=quantile:0.9"),
]
"""Old words of a line, and the words of today."""
STORED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tracking": {"keep_best": 5}}, {"tracking": {}, "study": {"keep_best": 5}}),
    ({"study": {"seed": 1, "checkpoints": None}}, {"study": {"seed": 1}}),
    ({"study": {"checkpoints": "s3://b/a"}}, {"study": {"checkpoint_copies": "s3://b/a"}}),
    (
        {"study": {"ensemble": "auto", "refit": "none", "plots": "auto"}},
        {"study": {"finish": ["ensemble", "plots"]}},
    ),
    ({"data": {"test_path": "t.csv", "test_fraction": 0.2}}, {"data": {"test": "t.csv"}}),
    ({"data": {"test_path": None, "test_fraction": 0.1}}, {"data": {"test": 0.1}}),
    ({"data": {"test_path": None, "test_fraction": 0.0}}, {"data": {"test": "none"}}),
    ({"tracking": {"uri": "sqlite:///a.db", "store": "none"}}, {"tracking": {"uri": "none"}}),
    (
        {"tracking": {"uri": "sqlite:///a.db", "store": "mlflow"}},
        {"tracking": {"uri": "sqlite:///a.db"}},
    ),
    (
        {"training": {"loss": "quantile", "quantile": 0.9}},
        {"training": {"loss": "quantile:0.9"}},
    ),
    ({"training": {"loss": "auto", "quantile": 0.5}}, {"training": {"loss": "auto"}}),
]
"""Stored settings of an earlier version, and those of today."""


@pytest.mark.parametrize(("old", "new"), LINES)
def test_an_old_word_is_taken_with_one_line_of_advice(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = parse_command_line(["sweep", "study.seed=1", *old.split(), "study.n_trials=3"])
    assert line.overrides == ("study.seed=1", *new.split(), "study.n_trials=3")
    (advice,) = capsys.readouterr().err.splitlines()
    expected = f"write {new}" if new else "leave it out"
    assert advice == f"automl: {old} is an old way to say it: {expected}."


@pytest.mark.parametrize("new", [new for _, new in LINES if new])
def test_a_word_of_today_stays_without_advice(new: str) -> None:
    assert rename_words(new.split()) == (new.split(), [])


@pytest.mark.parametrize(("old", "new"), STORED)
def test_stored_settings_of_before_are_read_with_keys_of_today(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert rename_stored(old) == new
    assert rename_stored(new) == new


def test_the_examples_above_have_each_old_key() -> None:
    typed = {word.partition("=")[0] for old, _ in LINES for word in old.split()}
    stored = {f"{section}.{name}" for old, _ in STORED for section in old for name in old[section]}
    for row in MOVED:
        sections = {old for old in row.old if "." in old}
        assert typed >= {*row.old} - {row.key}
        assert stored >= sections - {row.key}
    for dropped in DROPPED:
        assert dropped.key in typed
        assert dropped.key in stored
