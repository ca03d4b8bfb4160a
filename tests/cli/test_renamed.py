"""Keys of earlier versions: on a line with one line of advice, in stored settings silently."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from automl.cli.arguments import parse_command_line
from automl.config.data import DataRule, stored_rules
from automl.config.renamed import DROPPED, MOVED, DroppedKey, rename_stored, rename_words
from automl.errors import ConfigError
from tests.cli.conftest import Compose

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
    ("devices=host", "devices.only=cpu"),
    ("devices=auto", "devices.only=auto"),
    ("devices=nvml devices.choose=all devices.only=[1,GPU-8f]", "devices.only=[nvml,all,1,GPU-8f]"),
    ("devices.choose=gpu", "devices.only=gpu"),
    ("devices.kind=host", "devices.only=cpu"),
    ("execution=auto", "execution=workers"),
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
    ({"devices": {"kind": "host", "only": []}}, {"devices": {"only": "cpu"}}),
    ({"devices": {"kind": "auto", "only": [], "choose": "auto"}}, {"devices": {"only": "auto"}}),
    (
        {"devices": {"kind": "auto", "only": ["0", "GPU-8f"], "choose": "gpu"}},
        {"devices": {"only": ["gpu", "0", "GPU-8f"]}},
    ),
    ({"devices": {"kind": "nvml", "only": "1"}}, {"devices": {"only": ["nvml", "1"]}}),
    ({"execution": {"kind": "auto"}}, {"execution": {"kind": "workers"}}),
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


@pytest.mark.parametrize("dropped", DROPPED, ids=lambda dropped: dropped.key)
def test_a_dropped_key_is_taken_with_its_default_alone(dropped: DroppedKey) -> None:
    section, _, name = dropped.key.partition(".")
    default = str(dropped.default)
    assert rename_words([f"{dropped.key}={default.lower()}"]) == ([], [])
    with pytest.raises(ConfigError, match=rf"^{dropped.key}=0.125: this is no setting any more\. "):
        rename_words([f"{dropped.key}=0.125"])
    for value in (dropped.default, "other"):
        assert rename_stored({section: {name: value, "kept": 1}}) == {section: {"kept": 1}}


RULES = [rule.name for rule in DataRule]


@pytest.mark.parametrize("n_rules", range(len(RULES) + 1))
def test_a_study_keeps_the_rules_that_it_was_begun_with(n_rules: int) -> None:
    of_before = {**dict.fromkeys(RULES[:n_rules], True), **dict.fromkeys(RULES[n_rules:], False)}
    if n_rules < DataRule.combine:
        del of_before["combine"]
    assert stored_rules(of_before) == n_rules
    if n_rules > DataRule.combine:
        assert stored_rules(of_before | {"combine": "off"}) == n_rules, "a setting, and no rule"
        with pytest.raises(ConfigError, match=r"^data\.detect_target=False: detect_verbatim is"):
            stored_rules(of_before | {"detect_target": False})


def test_data_that_are_no_table_have_no_rules() -> None:
    assert stored_rules({"kind": "disc", "combine": "off", "detect": False}) == 0
    assert stored_rules({}) == 0


def test_files_of_a_user_may_have_old_keys(
    composed: Compose, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "own" / "data").mkdir(parents=True)
    (folder / "own" / "begun_before.yaml").write_text(
        "defaults: [sweep, override /data: kept_before, _self_]\n"
        "tracking: {store: none, keep_best: 3}\n"
    )
    (folder / "own" / "data" / "kept_before.yaml").write_text("kind: digits\ntest_fraction: 0.3\n")
    config = composed("--config-dir", "own", "--config-name", "begun_before").config
    assert (config.tracking.uri, config.study.keep_best, config.data.test) == ("none", 3, 0.3)
    advice = capsys.readouterr().err
    assert (
        "automl: data/kept_before.yaml has old keys (data.test_fraction): write data.test."
        in advice
    )
    assert advice.count("begun_before.yaml has old keys") == 1


def test_an_unknown_device_is_not_taken_for_all() -> None:
    assert rename_words(["devices=cuda"])[0] == ["devices.only=cuda"]


def test_the_examples_above_have_each_old_key() -> None:
    typed = {word.partition("=")[0] for old, _ in LINES for word in old.split()}
    stored = {f"{section}.{name}" for old, _ in STORED for section in old for name in old[section]}
    for row in MOVED:
        sections = {old for old in row.old if "." in old}
        assert typed >= {*row.old} - {row.key}
        assert stored >= sections - {row.key}
