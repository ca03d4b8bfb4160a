"""Keys of earlier versions: on a line with one line of advice, in stored settings silently."""

from __future__ import annotations

from typing import Any

import pytest

from automl.cli.arguments import parse_command_line
from automl.config.renamed import DROPPED, MOVED, rename_stored, rename_words

LINES = [
    ("tracking.keep_best=5", "study.keep_best=5"),
    ("study.checkpoints=s3://bucket/a", "study.checkpoint_copies=s3://bucket/a"),
]
"""Old words of a line, and the words of today."""
STORED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"tracking": {"keep_best": 5}}, {"tracking": {}, "study": {"keep_best": 5}}),
    ({"study": {"seed": 1, "checkpoints": None}}, {"study": {"seed": 1}}),
    ({"study": {"checkpoints": "s3://b/a"}}, {"study": {"checkpoint_copies": "s3://b/a"}}),
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
