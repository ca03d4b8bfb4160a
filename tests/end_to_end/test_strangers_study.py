"""A study that somebody else made: what it names is shown, and used once it is given again.

The tests run as root, who can give files to another user; elsewhere the caller is every owner.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml

from automl.trial import CheckpointWritten
from tests.end_to_end.conftest import Call
from tests.end_to_end.program import OBJECTIVES, Program
from tests.end_to_end.records import Records

pytestmark = pytest.mark.slow

STRANGER = 12345
WORDS = (
    "study.name=theirs",
    "study.n_trials=1",
    "objective=python",
    f"objective.target={OBJECTIVES}:counts",
    "space={x: 1}",
    "sampler=random",
    "devices.only=cpu",
    "execution=inline",
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture(scope="module")
def swept(module_program: Program) -> Path:
    """A folder with a small study in it."""
    assert module_program.call(*WORDS).code == 0
    return module_program.folder


@pytest.fixture
def study(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of that study in a folder of its own, where there is a secret in the environment."""
    shutil.copytree(swept, tmp_path / "copy")
    (tmp_path / "copy" / "studies" / "theirs" / "place.json").unlink()  # else it is asked for
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("A_SECRET", "s3cret")
    return tmp_path / "copy" / "studies" / "theirs"


def give_away(study: Path) -> None:
    for path in (study, *study.rglob("*")):
        os.chown(path, STRANGER, STRANGER)


def change(study: Path, key: str, value: object) -> None:
    """Write a value into the stored config."""
    path = study / "config.yaml"
    stored = yaml.safe_load(path.read_text())
    part, _, last = key.rpartition(".")
    (stored[part] if part else stored)[last] = value
    path.write_text(yaml.safe_dump(stored))


REFERENCE = "sqlite:///${oc.env:A_SECRET}.db"


@needs_root
@pytest.mark.parametrize("command", ["sync", "resume", "ui"])
def test_a_reference_in_anothers_study_is_shown_and_not_resolved(
    study: Path, call: Call, command: str
) -> None:
    change(study, "tracking.uri", REFERENCE)
    give_away(study)
    again = () if command != "resume" else (f"objective.target={OBJECTIVES}:counts",)
    refused = call(command, "study.name=theirs", *again)
    assert refused.code == 2
    assert f"tracking.uri='{REFERENCE}'" in refused.stderr
    assert "belongs to user 12345" in refused.stderr
    assert "s3cret" not in refused.stdout + refused.stderr
    assert not list(study.parents[1].glob("*s3cret*"))


@needs_root
@pytest.mark.parametrize("name", ["", "config.yaml"])
def test_a_study_is_anothers_when_its_folder_or_its_config_is(
    study: Path, call: Call, name: str
) -> None:
    change(study, "tracking.uri", REFERENCE)
    os.chown(study / name, STRANGER, STRANGER)
    assert "belongs to user 12345" in call("sync", "study.name=theirs").stderr


@needs_root
def test_it_is_resolved_once_it_is_given_again(study: Path, call: Call) -> None:
    change(study, "tracking.uri", REFERENCE)
    give_away(study)
    done = call("sync", "study.name=theirs", f"tracking.uri='{REFERENCE}'")
    assert (done.code, done.stderr) == (0, "")
    assert (study.parents[1] / "s3cret.db").exists()


def test_in_ones_own_study_nothing_is_retyped(study: Path, call: Call) -> None:
    change(study, "tracking.uri", REFERENCE)
    assert call("sync", "study.name=theirs").code == 0
    assert (study.parents[1] / "s3cret.db").exists()


@needs_root
@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("study.metric", "${oc.env:A_SECRET}", "study.metric='${oc.env:A_SECRET}'"),
        ("study.metric", "${oc.decode:${oc.env:A_SECRET}}", "oc.decode"),
        ("study.enqueue", [{"x": "${oc.env:A_SECRET}"}], "study.enqueue"),
        ("space.x", "${oc.env:A_SECRET}", "space.x='${oc.env:A_SECRET}'"),
        ("space.x", {"choices": [1, "${oc.env:A_SECRET}"]}, "space.x.choices"),
        ("tracking.uri", "http://127.0.0.1:1", "tracking.uri='http://127"),
        ("tracking.uri", "mssql+pyodbc:///?odbc_connect=DRIVER=/evil.so", "tracking.uri='mssql"),
        ("study.storage", "postgresql://127.0.0.1:1/x", "study.storage='postgresql://"),
        ("objective.target", "os:system", "objective.target='os:system'"),
        ("objective.command", "rm -r x", "objective.command='rm -r x'"),
        ("data.source", "os:getcwd", "data.source='os:getcwd'"),
        ("training.loss", "os:system", "training.loss='os:system'"),
        ("study.metric", "os:system", "study.metric='os:system'"),
        ("study.metric_function", "os:system", "study.metric_function='os:system'"),
        ("study.metric", "\x1b[2J${oc.env:A_SECRET}", "study.metric="),
    ],
)
def test_whatever_leaves_or_runs_has_to_be_given_again(
    study: Path, call: Call, key: str, value: object, shown: str
) -> None:
    change(study, key, value)
    give_away(study)
    before = (study / "events.log").read_bytes()
    refused = call("resume", "study.name=theirs", "study.n_trials=2")
    assert refused.code == 2
    assert shown in refused.stderr
    assert "\x1b" not in refused.stderr
    assert "s3cret" not in refused.stdout + refused.stderr
    assert (study / "events.log").read_bytes() == before


@needs_root
def test_anothers_study_goes_on_with_what_was_given_again(study: Path, call: Call) -> None:
    give_away(study)
    again = f"objective.target={OBJECTIVES}:counts"
    done = call("resume", "study.name=theirs", "study.n_trials=2", again)
    assert (done.code, done.stderr) == (0, "")
    assert len(Records(study.parents[1], "theirs").outcomes()) == 2


@needs_root
@pytest.mark.parametrize(
    "name", ["events.log", "lock", "checkpoints", "checkpoints/trial-00000/last.pt"]
)
def test_anothers_study_with_a_link_in_it_is_refused(study: Path, call: Call, name: str) -> None:
    mine = study.parents[1] / "mine"
    (study / name).rename(mine)
    (study / name).symlink_to(mine)
    give_away(study)
    again = f"objective.target={OBJECTIVES}:counts"
    refused = call("resume", "study.name=theirs", "study.n_trials=2", again)
    assert refused.code == 2
    assert f"{name!r} is a link" in refused.stderr


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("defaults", ["config_schema", {"data": "csv"}, "_self_"]),
        ("defaults", ["config_schema", {"/hydra@x": "default"}, "_self_"]),
        ("defaults", ["config_schema", {"pruner": "${oc.env:A_SECRET}"}, "_self_"]),
        ("hydra", {"searchpath": ["pkg://this"]}),
    ],
)
def test_a_stored_config_takes_nothing_from_elsewhere(
    study: Path, call: Call, key: str, value: object
) -> None:
    change(study, key, value)
    (study / "events.log").unlink()  # which has the config, too
    refused = call("resume", "study.name=theirs")
    assert refused.code == 2
    assert "config.yaml is no config of automl" in refused.stderr
    assert "s3cret" not in refused.stderr


def test_the_paths_of_checkpoints_are_relative_to_the_study(swept: Path) -> None:
    events = Records(swept, "theirs").events()
    paths = {event.path for event in events if isinstance(event, CheckpointWritten)}
    assert paths == {f"checkpoints/trial-00000/{name}.pt" for name in ("last", "best")}
