"""The link to the best model of a study."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from automl.record.study_files import StudyFiles
from automl.record.winner_file import link_winner
from automl.trial import CheckpointKind


@pytest.fixture
def study(tmp_path: Path) -> StudyFiles:
    """A study with the models of two trials."""
    files = StudyFiles(tmp_path / "prices")
    for number in (0, 1):
        files.checkpoints(number).mkdir(parents=True)
        files.checkpoint(number, CheckpointKind.BEST).write_text(f"trial {number}")
    return files


def content(files: StudyFiles) -> str:
    return files.winner.read_text()


def test_the_link_leads_to_the_best_model_of_all(study: StudyFiles) -> None:
    link_winner(study.path, 0)
    assert content(study) == "trial 0"
    link_winner(study.path, 1)
    assert content(study) == "trial 1"
    study.ensemble.write_text("ensemble")
    link_winner(study.path, 1)
    assert content(study) == "ensemble"
    study.refit.write_text("refit")
    link_winner(study.path, 1)
    assert content(study) == "refit"
    study.refit.unlink()
    study.ensemble.unlink()
    link_winner(study.path, 0)
    assert content(study) == "trial 0"


def test_the_link_survives_a_move_and_a_copy(study: StudyFiles, tmp_path: Path) -> None:
    link_winner(study.path, 1)
    assert not os.path.isabs(os.readlink(study.winner))
    copy = shutil.copytree(study.path, tmp_path / "copy", symlinks=True)
    shutil.rmtree(study.path)
    assert content(StudyFiles(copy)) == "trial 1"


def test_no_model_has_no_link(study: StudyFiles) -> None:
    link_winner(study.path, None)
    assert not study.winner.exists()
    link_winner(study.path, 0)
    shutil.rmtree(study.checkpoints(0))
    link_winner(study.path, 0)
    assert not study.winner.is_symlink()


def test_what_a_killed_process_or_a_copy_left_is_replaced(study: StudyFiles) -> None:
    study.winner.write_text("a copy that followed the link")
    (study.path / f".best.pt.{os.getpid()}.part").symlink_to("nowhere")
    link_winner(study.path, 1)
    assert content(study) == "trial 1"
    assert sorted(path.name for path in study.path.iterdir()) == ["best.pt", "checkpoints"]


def test_a_folder_that_cannot_be_written_is_logged(
    study: StudyFiles, caplog: pytest.LogCaptureFixture
) -> None:
    study.winner.mkdir()
    with caplog.at_level("INFO"):
        link_winner(study.path, 1)
    assert "best.pt cannot be made" in caplog.text
