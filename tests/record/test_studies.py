"""The studies of a folder, and the newest of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from automl.record.studies import study_names
from tests.end_to_end.test_rights import without_roots_rights


def make_study(path: Path, at_seconds: float) -> None:
    path.mkdir()
    (path / "config.yaml").touch()
    os.utime(path / "config.yaml", (at_seconds, at_seconds))


def test_the_one_that_was_at_work_last_comes_first(tmp_path: Path) -> None:
    for seconds, name in enumerate("bca"):
        make_study(tmp_path / name, 1000.0 + seconds)
    (tmp_path / "b" / "status.json").touch()
    assert study_names(tmp_path) == ["b", "a", "c"]


def test_what_has_no_stored_config_is_none(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    assert study_names(tmp_path) == []
    assert study_names(tmp_path / "nowhere") == []


def test_one_that_may_not_be_looked_into_hides_no_other(tmp_path: Path) -> None:
    for name in "abcd":
        make_study(tmp_path / name, 1000.0)
        (tmp_path / name).chmod(0o700 if name in "ad" else 0)
    code = "from automl.record.studies import *; print(sorted(study_names(Path('.'))))"
    done = subprocess.run(
        [*without_roots_rights(), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == "['a', 'd']\n"
