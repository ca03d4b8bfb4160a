"""The files that a trial made: artifacts of its run when it has ended, and no file of others."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from automl.config import KeepCheckpoints
from automl.record.study_files import StudyFiles
from automl.tracking.deliver import artifacts
from automl.tracking.deliver.artifacts import add_own_files
from automl.tracking.view.run_update import RunUpdate
from automl.trial import LoggedPoint, ValuesLogged
from tests.tracking.conftest import Shown
from tests.tracking.deliveries import deliver
from tests.tracking.scenes import (
    BEGUN,
    begin,
    finish,
    interrupt,
    report,
    sweep_ended,
    sweep_started,
    write,
)


def write_file(study: Path, path: str, number: int = 0, *, logged: bool = True) -> Path:
    """One that a trial logged, or its program wrote."""
    files = StudyFiles(study)
    place = (files.logged_files(number) if logged else files.program_files(number)) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(path)
    return place


def stored(shown: Shown) -> dict[str, str]:
    """Path and content of the run's files."""
    folder = Path(shown.run("trial-00000").info.artifact_uri)
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text() for path in files}


def test_what_was_logged_is_in_the_run_as_it_was_laid_out(study: Path, shown: Shown) -> None:
    write_file(study, "model/MLmodel")
    write_file(study, "it.txt")
    write_file(study, "out.txt", logged=False)
    logged = ValuesLogged(0, BEGUN, (LoggedPoint("a", 0.5, -1, 1_700_000_000_123),), {"p": "1"})
    write(study, sweep_started(), begin(0), logged, report(0, 0), finish(0), sweep_ended(1))
    assert deliver(study) == []
    assert stored(shown) == {
        "model/MLmodel": "model/MLmodel",
        "it.txt": "it.txt",
        "files/out.txt": "out.txt",
    }
    assert shown.history("trial-00000", "a") == [(-1, 1_700_000_000_123, 0.5)]
    assert shown.run("trial-00000").data.params["p"] == "1"


def test_delivered_again_it_is_the_same(study: Path, shown: Shown) -> None:
    logged = ValuesLogged(0, BEGUN, (LoggedPoint("a", 0.5, 0, 17),), {"p": "1"})
    write(study, sweep_started(), begin(0), logged, finish(0), sweep_ended(1))
    assert deliver(study) == []
    StudyFiles(study).delivered.unlink()
    assert deliver(study) == []
    assert shown.history("trial-00000", "a") == [(0, 17, 0.5)]


def test_of_a_trial_that_goes_on_nothing_is_stored_yet(study: Path, shown: Shown) -> None:
    write_file(study, "it.txt")
    write(study, sweep_started(), begin(0), interrupt(0))
    assert deliver(study) == []
    assert stored(shown) == {}


@pytest.mark.parametrize("path", ["checkpoints/last.pt", "files/a", "config.yaml"])
def test_what_is_the_sweeps_own_is_not_written_over(path: str, tmp_path: Path) -> None:
    write_file(tmp_path, path)
    ((_, below),) = own(tmp_path)
    assert below.split("/")[0] == "artifacts"


@pytest.mark.parametrize(
    "link", ["checkpoints", "{own}", "{own}/..", "{own}/secret", "{own}/folder"]
)
@pytest.mark.parametrize("logged", [True, False])
def test_links_are_none_of_them(
    study: Path, shown: Shown, folder: Path, link: str, logged: bool
) -> None:
    theirs = write_file(folder / "theirs", "secret", logged=logged)
    ours = write_file(study, "x", logged=logged)
    ours.unlink()
    place = Path(os.path.normpath(study / link.format(own=ours.parent.relative_to(study))))
    there = Path(os.path.normpath(folder / "theirs" / place.relative_to(study)))
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(there if there.exists() else theirs.parent)
    write(study, sweep_started(), begin(0), finish(0), sweep_ended(1))
    deliver(study)
    assert stored(shown) == {}
    assert shown.run("trial-00000").info.status == "FINISHED"


def test_a_folder_of_a_data_set_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "MAX_FILES", 2)
    for name in "cab":
        write_file(tmp_path, name)
    update = add_own_files(make_update(), tmp_path, 0, KeepCheckpoints.all)
    assert [path[-1] for path, _ in update.own_files] == ["a", "b"]
    assert "has more than 2 files" in update.refused[0]


def test_what_was_logged_is_kept_where_checkpoints_are_not(tmp_path: Path) -> None:
    write_file(tmp_path, "a")
    write_file(tmp_path, "b", logged=False)
    update = add_own_files(make_update(), tmp_path, 0, KeepCheckpoints.none)
    assert update.own_files == [("checkpoints/trial-00000/artifacts/a", "")]


def own(study: Path) -> list[tuple[str, str]]:
    return list(add_own_files(make_update(), study, 0, KeepCheckpoints.all).own_files)


def make_update() -> RunUpdate:
    return RunUpdate("trial-00000", 0, {}, {}, {}, False, {}, ())
