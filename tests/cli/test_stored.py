"""What a study stores of its config, and what resume, sync and ui compose from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from automl.config import (
    DataKind,
)
from automl.config.command_arguments import UIArguments
from automl.record.event_log import EventLog
from automl.record.studies import study_names
from automl.running.prepare.identity_settings import flat_settings
from automl.search.pruners.halving import SuccessiveHalving
from automl.search.pruners.median import MedianPruner
from automl.search.samplers.qmc import QMC
from automl.search.samplers.random import IndependentSampler
from automl.trial import SweepStarted
from tests.cli.conftest import Compose, Refuse


def store(folder: Path, name: str, text: str, *, at_seconds: float | None = None) -> Path:
    """Put a stored config where a sweep puts it."""
    path = folder / "studies" / name / "config.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if at_seconds is not None:
        os.utime(path, (at_seconds, at_seconds))
    return path


def unsealed_config(text: str) -> str:
    """Return a stored config as earlier versions wrote it, without a checksum."""
    return "".join(line for line in text.splitlines(keepends=True) if "checksum" not in line)


@pytest.fixture
def study(composed: Compose, folder: Path) -> Path:
    """A study `a` with choices that differ from every default."""
    found = composed(
        "data=digits",
        "sampler=qmc",
        "sampler.scramble=false",
        "pruner=median",
        "study.n_trials=7",
        "training.epochs=3",
        "space={lr: interval(1e-5,1), opt: choice(a,'1e-3'), note: '1e-3'}",
        "study.enqueue=[{lr: 0.1}]",
        "tracking.uri=sqlite:///mine.db",
    )
    return store(folder, "a", found.stored_config)


def test_a_study_of_before_sweeps_ended_with_a_refit_ends_as_it_did(
    composed: Compose, study: Path
) -> None:
    assert composed("resume", "study.name=a").config.study.finish == "auto"
    text = study.read_text()
    study.write_text(unsealed_config(text).replace("  finish: auto\n", "  ensemble: auto\n"))
    assert study.read_text() != text
    assert composed("resume", "study.name=a").config.study.finish == ["ensemble", "plots"]
    wanted = composed("resume", "study.name=a", "study.finish=auto").config
    assert wanted.study.finish == "auto"


def test_nothing_to_retype(composed: Compose, study: Path) -> None:
    config = composed("resume", "study.name=a").config
    assert (config.study.name, config.study.dir) == ("a", "studies")
    assert (config.study.n_trials, config.training.epochs) == (7, 3)
    assert config.study.enqueue == [{"lr": 0.1}]
    assert config.data.kind is DataKind.digits
    assert config.sampler == QMC(scramble=False)
    assert config.pruner == MedianPruner()
    assert config.tracking.uri == "sqlite:///mine.db"
    space = {"lr": {"low": 1e-5, "high": 1.0}, "opt": {"choices": ["a", "1e-3"]}, "note": "1e-3"}
    assert config.space == space


def test_storing_again_changes_nothing_but_the_name(composed: Compose, study: Path) -> None:
    again = composed("resume", "study.name=a").stored_config
    before = unsealed_config(study.read_text())
    assert unsealed_config(again) == before.replace("name: null", "name: a", 1)


def test_values_can_be_overridden(composed: Compose, study: Path) -> None:
    words = ("resume", "study.name=a", "study.n_trials=20", "space.lr.high=2", "devices.only=cpu")
    config = composed(*words).config
    assert config.study.n_trials == 20
    assert config.space["lr"] == {"low": 1e-5, "high": 2}
    assert config.devices.kind.name == "host"


def test_options_can_be_overridden(composed: Compose, study: Path) -> None:
    config = composed("resume", "study.name=a", "sampler=random", "pruner=halving").config
    assert config.sampler == IndependentSampler()
    assert config.pruner == SuccessiveHalving()
    assert config.training.epochs == 3
    assert set(composed("resume", "study.name=a", "space=grid").config.space) == {
        "depth",
        "width",
        "lr",
        "batch_size",
    }
    assert composed("resume", "study.name=a", "space={x: 1}").config.space == {"x": 1}


def test_a_later_conf_does_not_change_a_study(study: Path) -> None:
    text = study.read_text()
    assert "median_schema" in text
    assert "pruner: median\n" not in text  # no option of conf/ is looked up again
    assert "interval_steps: 1" in text


def test_a_study_that_was_moved_is_resumed_where_it_stands(
    composed: Compose, study: Path, folder: Path
) -> None:
    (folder / "studies").rename(folder / "it's elsewhere")
    config = composed("resume", "study.name=a", "study.dir='it\\'s elsewhere'").config
    assert config.study.dir == "it's elsewhere"


def test_whether_it_is_a_copy_is_no_setting_of_the_study(composed: Compose) -> None:
    asked = composed("copy=true")
    assert asked.config.study.copy is True
    assert asked.stored_config == composed().stored_config
    assert flat_settings(asked.config) == flat_settings(composed().config)


def test_references_stay_references(
    composed: Compose, refused: Refuse, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOML_TEST_URI", "http://ann:s3cret@h")
    text = composed("tracking.uri=${oc.env:AUTOML_TEST_URI}").stored_config
    store(folder, "a", text)
    assert composed("resume", "study.name=a").config.tracking.uri == "http://ann:s3cret@h"
    monkeypatch.delenv("AUTOML_TEST_URI")
    assert "'AUTOML_TEST_URI' not found" in refused("resume", "study.name=a")


@pytest.mark.parametrize("key", ["tracking.uri", "study.storage", "data.path"])
def test_a_credential_is_not_stored_and_asked_for_again(
    composed: Compose, refused: Refuse, folder: Path, key: str
) -> None:
    given = f"{key}='https://ann:s3cret@h/x?y=1'"
    found = composed(given, *(["target=y"] if key == "data.path" else []))
    assert "s3cret" in repr(found.config)
    assert "s3cret" not in found.stored_config
    store(folder, "a", found.stored_config)
    message = refused("resume", "study.name=a")
    assert message.startswith(f"{key} is not stored with study a, because it carries a credential")
    assert f"{key}='${{oc.env:NAME}}'" in message
    assert "s3cret" in repr(composed("resume", "study.name=a", given).config)


@pytest.mark.parametrize("command", ["sync", "ui"])
def test_sync_and_ui_take_where_the_study_is_tracked_and_no_more(
    composed: Compose, folder: Path, command: str
) -> None:
    text = composed(
        "tracking.uri=sqlite:///mine.db", "study.storage='postgresql://a:s3cret@h/x'"
    ).stored_config
    store(folder, "a", text)
    config = composed(command).config
    assert (config.study.name, config.tracking.uri) == ("a", "sqlite:///mine.db")
    assert (
        composed(command, "study.name=a", "tracking.uri=http://h").config.tracking.uri == "http://h"
    )


def test_the_newest_study_is_meant_where_none_is_named(composed: Compose, folder: Path) -> None:
    text = composed().stored_config
    for seconds, name in enumerate(["b", "c", "a"]):
        store(folder, name, text, at_seconds=1000.0 + seconds)
    assert study_names(folder / "studies") == ["a", "c", "b"]
    assert composed("sync").config.study.name == "a"
    status = folder / "studies" / "b" / "status.json"
    status.write_text("{}")
    os.utime(status, (2000.0, 2000.0))
    assert composed("sync").config.study.name == "b"


def test_ui_needs_no_study(composed: Compose) -> None:
    assert composed("ui", "port=5001").typed_arguments(UIArguments).port == 5001


def test_status_composes_without_a_study(composed: Compose) -> None:
    config = composed("status", "study.name=a", "study.dir=elsewhere").config
    assert (config.study.name, config.study.dir) == ("a", "elsewhere")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("resume", "resume needs a study: resume NAME. Studies in studies: a."),
        ("resume study.name=b", "study.name=b: no such study. Studies in studies: a."),
        ("resume study.name=a study.dir=x", "The folder x holds none; study.dir=… names another"),
        ("resume study.name=../a", "study.name=../a: a study name is"),
        ("resume study.name=a --config-name sweep", "takes the settings that the study stored"),
        ("resume study.name=a data.pth=3", "Did you mean data.path?"),
        ("resume study.name=a sampler=x", "sampler=x: there is no such option"),
        ("ui study.name=b", "study.name=b: no such study"),
    ],
)
def test_refused(refused: Refuse, study: Path, words: str, said: str) -> None:
    assert said in refused(*words.split(" "))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("study: [\n", "config.yaml, line 2: not valid YAML"),
        ("- 1\n", "is no config of automl"),
        ("study: {name: a}\n", "is no config of automl"),
    ],
)
def test_a_stored_config_that_was_damaged(
    refused: Refuse, folder: Path, text: str, said: str
) -> None:
    store(folder, "a", text)
    assert said in refused("resume", "study.name=a")


DAMAGES = {
    "another number": ("n_trials: 7", "n_trials: 5"),
    "another bound": ("high: 1", "high: 3"),
    "no YAML": ("study:", "study{"),
    "torn": ("tracking:", "\0"),
    "no head": ("defaults:", "\0"),
}


def damaged(text: str, damage: str) -> str:
    before, after = DAMAGES[damage]
    assert before in text
    return text.partition(before)[0] if after == "\0" else text.replace(before, after)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_config_is_named_and_the_last_sweeps_counts(
    composed: Compose,
    refused: Refuse,
    study: Path,
    damage: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = study.read_text()
    whole = composed("resume", "study.name=a").config
    study.write_text(damaged(text, damage))
    assert "config.yaml" in refused("resume", "study.name=a"), "no sweep has begun"
    with EventLog.open(study.with_name("events.log")) as log:
        log.append(SweepStarted(0.0, "a", "u", {}, text.replace("seed: 0", "seed: 1")))
        log.append(SweepStarted(1.0, "a", "u", {}, text))
        log.append(SweepStarted(2.0, "a", "u", {}))  # as an earlier version
    assert capsys.readouterr().out == ""
    assert composed("resume", "study.name=a").config == whole
    said = capsys.readouterr().out
    assert f"{Path('studies/a/config.yaml')} is damaged, or was changed by hand" in said
    assert "from events.log" in said
    study.write_text(text)
    assert composed("resume", "study.name=a").config == whole
    assert capsys.readouterr().out == ""


def test_a_config_changed_by_hand_counts_without_its_checksum(
    composed: Compose, study: Path
) -> None:
    """As the message says; and as configs of earlier versions, which have none."""
    study.write_text(unsealed_config(study.read_text()).replace("n_trials: 7", "n_trials: 9"))
    assert composed("resume", "study.name=a").config.study.n_trials == 9


def test_relative_paths_are_those_of_where_the_study_was_swept(
    composed: Compose, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From another folder they would be others, and a new store be made there without a word."""
    (folder / "elsewhere").mkdir()
    words = ("data=csv", "data.path=t.csv", "data.target=y", "study.storage=sqlite:///o.db")
    store(folder, "a", composed(*words).stored_config)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    at_home = composed("resume", "study.name=a").config
    assert (at_home.data.path, at_home.tracking.uri) == ("t.csv", None)
    monkeypatch.chdir(folder / "elsewhere")
    line = ("study.name=a", f"study.dir={folder / 'studies'}")
    found = composed("resume", *line)
    assert found.config.data.path == str(folder / "t.csv")
    assert found.config.study.storage == f"sqlite:///{folder}/o.db"
    assert found.config.tracking.uri == f"sqlite:///{folder}/mlflow.db"
    assert composed("ui", *line).config.tracking.uri == f"sqlite:///{folder}/mlflow.db"
    # What is stored from here goes on to mean the same, what is said here included.
    given = composed("resume", *line, "data.path=new.csv", "tracking.uri=http://127.0.0.1:5000")
    assert (given.config.data.path, given.config.data.test) == ("new.csv", "none")
    assert given.config.tracking.uri == "http://127.0.0.1:5000"
    store(folder, "a", given.stored_config)
    monkeypatch.chdir(folder)
    again = composed("resume", *line).config
    assert again.data.path == str(folder / "elsewhere" / "new.csv")
    assert again.study.storage == f"sqlite:///{folder}/o.db"


def test_paths_of_a_folder_that_is_gone_are_to_be_given_again(
    composed: Compose, refused: Refuse, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, here = folder / "gone", folder / "here"
    gone.mkdir()
    here.mkdir()
    monkeypatch.chdir(gone)
    line = ("study.name=a", f"study.dir={folder / 'studies'}")
    words = (*line[1:], "data=csv", "data.path=t.csv", "data.target=y")
    store(folder, "a", composed(*words).stored_config)
    monkeypatch.chdir(here)
    gone.rmdir()
    message = refused("resume", *line)
    assert f"relative to {gone}" in message
    assert "data.path=… tracking.uri=…" in message
    composed("resume", *line, "data.path=t.csv", "tracking.uri=sqlite:///m.db")


def test_a_study_that_was_moved_counts_from_where_it_is_used(
    composed: Compose, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = composed("data=csv", "data.path=t.csv", "data.target=y").stored_config
    path = store(folder, "a", text)
    shutil.copytree(path.parent, folder / "elsewhere" / "studies" / "a")
    monkeypatch.chdir(folder / "elsewhere")
    assert composed("resume", "study.name=a").config.data.path == "t.csv"
    home = f"study.dir={folder / 'studies'}"
    assert composed("resume", "study.name=a", home).config.data.path == str(folder / "t.csv")
    path.parent.rename(path.parent.with_name("b"))
    assert composed("resume", "study.name=b", home).config.data.path == str(folder / "t.csv")


def test_a_clone_stores_the_study_under_its_new_name_with_changes(
    composed: Compose, study: Path, folder: Path
) -> None:
    changes = ("name=b", "study.n_trials=9", "sampler=random", "warm=true")
    store(folder, "b", composed("clone", "study.name=a", *changes).stored_config)
    original, clone = (composed("resume", f"study.name={name}").config for name in "ab")
    assert (clone.study.name, clone.study.n_trials) == ("b", 9)
    assert clone.study.warm_from == ["a"]
    assert isinstance(clone.sampler, IndependentSampler)
    assert (clone.space, clone.study.enqueue) == (original.space, original.study.enqueue)
